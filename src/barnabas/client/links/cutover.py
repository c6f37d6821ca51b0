"""Shell: waits for mirrors, and cuts them over: `promote` when nothing is missing, `failover` at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.links import STOPPED, Link, LinkDescription, MirrorAction, MirrorChange, MirrorStatus
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.known_sums import sum_of_known
from barnabas.protocol.wire.regex import Re2Pattern

CHECK_INTERVAL_S: Final = 0.1
NAMES_MAX: Final = 100
"""The number of topics in one request. A broker accepts 200 patterns."""

Progress = Callable[[str], None]


class NotInTimeError(KafkaError):
    """Mirrors have not reached a state in time. The command can be repeated."""


async def require_link(admin: AsyncAdmin, name: str) -> LinkDescription:
    """The description of a link. Raises KafkaError RESOURCE_NOT_FOUND."""
    found = (await admin.describe_links([name])).get(name)
    if found is None:
        raise KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND, f"There is no link {name}. `barnabas links list` shows the links."
        )
    return found


async def promote(
    admin: AsyncAdmin, link: str, topics: Sequence[str], *, timeout_s: float, progress: Progress
) -> list[MirrorChange]:
    """Stop mirrors when they have all records of the source; producers must have stopped there. A topic that becomes a
    mirror while this call waits is not stopped. Raises NotInTimeError, after which the mirrors run on, and KafkaError.
    """
    planned = await admin.alter_mirrors(link, MirrorAction.STOP, topics, validate_only=True)
    names = sorted(change.topic for change in planned if change.error is None)
    await _wait_caught_up(admin, link, names, timeout_s=timeout_s, progress=progress)
    changes = await _alter_named(admin, link, MirrorAction.STOP, names)
    stopped = {change.topic for change in changes if change.error is None}
    await wait_stopped(admin, link, stopped, timeout_s=timeout_s)
    return [*changes, *(change for change in planned if change.error is not None)]


async def failover(admin: AsyncAdmin, link: str, topics: Sequence[str], *, timeout_s: float) -> list[MirrorChange]:
    """Stop mirrors now, and return when their topics take writes. Raises NotInTimeError, KafkaError."""
    changes = await admin.alter_mirrors(link, MirrorAction.STOP, topics)
    names = {change.topic for change in changes if change.error is None}
    await wait_stopped(admin, link, names, timeout_s=timeout_s)
    return changes


async def reverse(
    here: AsyncAdmin,
    there: AsyncAdmin,
    link: str,
    back: Link,
    topics: Sequence[str],
    *,
    validate_only: bool = False,
) -> list[MirrorChange]:
    """After a cut-over of `link` on the cluster of `here`, make its topics mirrors of this cluster in the cluster of
    `there`, the former source. `back` is the link there; its patterns are added. `topics` are regular expressions of
    names; without any, all stopped topics go back.

    What `there` has and `here` has not is cut off; the brokers save it to files first. Raises KafkaError.
    """
    described = await require_link(here, link)
    mirrors = described.mirrors
    stopped = {mirror.topic for mirror in mirrors if mirror.topic is not None}
    stopped -= {mirror.topic for mirror in mirrors if mirror.state != STOPPED}
    if not stopped:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Link {link} has no stopped topics. Stop them first: `barnabas links promote {link}`.",
        )
    names = sorted(stopped)
    selected = {pattern: Re2Pattern(pattern).select(names) for pattern in topics}
    wanted = sorted({name for found in selected.values() for name in found}) if topics else names
    missing = sorted(pattern for pattern, found in selected.items() if not found)
    if missing:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Not stopped, or not of link {link}: {', '.join(missing)}. Use `barnabas links promote {link}` first.",
        )
    if len(wanted) == len({mirror.topic for mirror in mirrors if mirror.topic is not None}):
        of = described.link  # all topics go back, so new ones follow by the same patterns
        back = replace(back, topics=of.topics, topics_exclude=of.topics_exclude)
    back = replace(back, groups=described.link.groups, groups_exclude=described.link.groups_exclude)
    if back.name not in await there.describe_links([back.name]):
        await there.create_link(back, validate_only=validate_only)
        if validate_only:
            return [MirrorChange(topic, "active", -1, None) for topic in wanted]
    return await _alter_named(there, back.name, MirrorAction.START, wanted, validate_only=validate_only)


async def _alter_named(
    admin: AsyncAdmin, link: str, action: MirrorAction, names: Sequence[str], *, validate_only: bool = False
) -> list[MirrorChange]:
    """Change the topics of these names, however many there are."""
    changes: list[MirrorChange] = []
    for first in range(0, len(names), NAMES_MAX):
        patterns = [re.escape(name) for name in names[first : first + NAMES_MAX]]
        changes += await admin.alter_mirrors(link, action, patterns, validate_only=validate_only)
    return changes


async def _wait_caught_up(
    admin: AsyncAdmin, link: str, topics: Collection[str], *, timeout_s: float, progress: Progress
) -> None:
    """Wait until the lag of every partition is 0, by an answer of the source that has come during this call."""
    first: dict[TopicPartition, int] = {}
    """When the source had last answered at the beginning of the wait, by the clock of the mirror's leader."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    shown = ""
    while True:
        statuses = [status for status in await admin.describe_mirrors([link]) if status.partition.topic in topics]
        late = [
            status
            for status in statuses
            if status.lag != 0 or status.last_fetch_ms <= first.setdefault(status.partition, status.last_fetch_ms)
        ]
        found = {status.partition.topic for status in statuses}
        if not late and found >= set(topics):
            return
        text = f"waiting for {len(late)} partitions; lag {_lag_text(sum_of_known(one.known_lag for one in late))}"
        if text != shown:
            progress(text)
            shown = text
        if asyncio.get_running_loop().time() >= deadline:
            raise NotInTimeError(ErrorCode.REQUEST_TIMED_OUT, _late_text(late, timeout_s))
        await asyncio.sleep(CHECK_INTERVAL_S)


def _lag_text(records: int | None) -> str:
    return "unknown" if records is None else f"{records} records"


def _late_text(late: Sequence[MirrorStatus], timeout_s: float) -> str:
    worst = max(late, key=lambda status: status.lag, default=None)
    lag = "" if worst is None else _lag_text(worst.known_lag)
    where = "" if worst is None else f", for example {worst.partition} (lag {lag}, {worst.state} {worst.reason})"
    return (
        f"{len(late)} partitions have not caught up within {timeout_s:g} s{where}. The mirrors run on. Stop the "
        "producers on the source and try again, or use `barnabas links failover`, which loses what is missing."
    )


async def wait_stopped(admin: AsyncAdmin, link: str, topics: Collection[str], *, timeout_s: float) -> None:
    """Return when every partition of these topics is STOPPED and the topics take writes. Raises NotInTimeError."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        described = await require_link(admin, link)
        waiting = [m for m in described.mirrors if m.topic in topics and m.state != STOPPED]
        known = {m.topic for m in described.mirrors}
        if not waiting and known >= set(topics):
            left = {s.partition.topic for s in await admin.describe_mirrors([link])} & set(topics)
            if not left:
                return
        if asyncio.get_running_loop().time() >= deadline:
            names = sorted({m.topic or m.topic_id for m in waiting} | (set(topics) - known))
            raise NotInTimeError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Not stopped within {timeout_s:g} s: {', '.join(names) or 'the topics'}. `barnabas links describe "
                f"{link}` shows the states; the command can be repeated.",
            )
        await asyncio.sleep(CHECK_INTERVAL_S / 4)
