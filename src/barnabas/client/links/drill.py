"""Shell: a failover drill that changes nothing: what a failover of a link would do now, and whether it would work.

The report says for each mirror what would be lost (RPO), and for each group where its consumers would go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.links import FAILED, LinkDescription, MirrorAction, MirrorStatus
from barnabas.client.admin.share_groups import list_share_group_offsets
from barnabas.client.links.cutover import require_link
from barnabas.client.links.verifying import Comparison, verify
from barnabas.client.values import LATEST, GroupListing
from barnabas.core.clock import SystemClock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.known_sums import sum_of_known

_STALE_MS = 10_000
"""A mirror whose source has not answered for this long has an unknown lag."""
_VERIFIED_RECORDS = 1_000
_TIMEOUT_S = 60.0
"""How long one look-up of a share group's offsets may take."""


@dataclass(frozen=True, slots=True)
class GroupMove:
    """Where a group would go on in one partition. `on_source` is None if the source was not asked."""

    group_id: str
    partition: TopicPartition
    on_source: int | None
    here: int | None
    behind: int
    """Records that the group has already processed and would read again."""


@dataclass(frozen=True, slots=True)
class DrillReport:
    """What a failover would do now."""

    link: LinkDescription
    mirrors: tuple[MirrorStatus, ...]
    lost_records: int | None
    """The lag: records that the source has acknowledged and the mirrors do not have; None if it is unknown."""
    oldest_answer_ms: int
    """The longest time since the source has answered for a mirror; -1 if it never has."""
    groups: tuple[GroupMove, ...]
    comparisons: tuple[Comparison, ...]
    problems: tuple[str, ...]


async def drill(mirror: AsyncAdmin, source: AsyncAdmin | None, name: str, topics: Sequence[str]) -> DrillReport:
    """Report on a failover of a link, without changing anything. Without `source`, as when the source is gone. Raises
    KafkaError."""
    link = await require_link(mirror, name)
    planned = await mirror.alter_mirrors(name, MirrorAction.STOP, topics, validate_only=True)
    problems = [str(change.error) for change in planned if change.error is not None]
    names = {change.topic for change in planned if change.error is None}
    statuses = [status for status in await mirror.describe_mirrors([name]) if status.partition.topic in names]
    now_ms = SystemClock().now_ms()
    problems += _problems(link, statuses, names, now_ms)
    answered = [status.last_fetch_ms for status in statuses]
    oldest = -1 if not answered or min(answered) < 0 else max(now_ms - min(answered), 0)
    partitions = [status.partition for status in statuses]
    groups = await _groups(mirror, source, partitions)
    comparisons: list[Comparison] = []
    if source is not None:
        comparisons = [found async for found in verify(source, mirror, partitions, _VERIFIED_RECORDS)]
        problems += [_difference(found) for found in comparisons if not found.is_equal]
    return DrillReport(
        link,
        tuple(statuses),
        sum_of_known(status.known_lag for status in statuses) if statuses else 0,
        oldest,
        tuple(groups),
        tuple(comparisons),
        tuple(problems),
    )


def _difference(found: Comparison) -> str:
    if found.differs_at is None:
        return f"{found.partition} could not be compared with the source: {found.error}"
    return f"{found.partition} differs from the source at offset {found.differs_at}."


def _problems(link: LinkDescription, statuses: Sequence[MirrorStatus], names: set[str], now_ms: int) -> list[str]:
    problems = [link.trouble] if link.trouble else []
    if not names:
        problems.append("The link has no mirror topics, so nothing would be taken over.")
    for status in statuses:
        if status.state == FAILED:
            problems.append(f"{status.partition} is FAILED: {status.reason}")
        elif status.state != "MIRRORING":
            problems.append(f"{status.partition} is {status.state}, not MIRRORING. {status.reason}".rstrip())
        elif status.last_fetch_ms < now_ms - _STALE_MS:
            problems.append(f"{status.partition}: the source has not answered lately, so its lag is not known.")
        if status.skipped_records:
            problems.append(
                f"{status.partition}: retention on the source has overtaken the mirror; "
                f"{status.skipped_records} offsets were never mirrored."
            )
    missing = names - {status.partition.topic for status in statuses}
    problems += [
        f"No broker reports on mirror topic {name}: its partitions have no leader." for name in sorted(missing)
    ]
    return problems


async def _groups(
    mirror: AsyncAdmin, source: AsyncAdmin | None, partitions: Sequence[TopicPartition]
) -> list[GroupMove]:
    """Where the groups of the source, or else those known here, would go on."""
    wanted = set(partitions)
    ends = await mirror.list_offsets(dict.fromkeys(wanted, LATEST))
    listed = await (source or mirror).list_groups()
    moves: list[GroupMove] = []
    for listing in sorted(listed, key=lambda listing: listing.group_id):
        there = {} if source is None else await _offsets(source, listing)
        here = await _offsets(mirror, listing)
        for partition in sorted((there.keys() | here.keys()) & wanted):
            end = ends.get(partition)
            limit = None if end is None or isinstance(end, KafkaError) else end.offset
            known, own = there.get(partition), here.get(partition)
            would = own if own is not None else 0
            processed = known if known is not None else would
            if limit is not None:
                processed = min(processed, limit)
            moves.append(GroupMove(listing.group_id, partition, known, own, max(processed - would, 0)))
    return moves


async def _offsets(admin: AsyncAdmin, group: GroupListing) -> Mapping[TopicPartition, int]:
    """Where the group goes on in each partition for which it has an offset. Raises KafkaError."""
    if group.type.lower() == "share":
        return await _share_offsets(admin, group.group_id)
    found = await admin.list_group_offsets(group.group_id)
    return {
        partition: committed.offset
        for partition, committed in found.items()
        if not isinstance(committed, KafkaError) and committed.offset >= 0
    }


async def _share_offsets(admin: AsyncAdmin, group_id: str) -> Mapping[TopicPartition, int]:
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_S
    try:
        found = await list_share_group_offsets(admin.cluster, group_id, deadline=deadline)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return {}
    return {
        partition: offset.start_offset
        for partition, offset in found.items()
        if not isinstance(offset, KafkaError) and offset.start_offset is not None
    }
