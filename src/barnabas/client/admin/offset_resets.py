"""Shell: the lag of groups, and plans for resetting their offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.client.values import EARLIEST, LATEST
from barnabas.core.clock import SystemClock
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.values import GroupDescription

_DURATION = re.compile(
    r"^P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?$"
)


async def describe_lag(admin: AsyncAdmin, group: GroupDescription) -> list[dict[str, Any]]:
    """One row for each partition that has a committed offset or is assigned: committed, start and end offset, lag, and
    member.
    """
    committed = await admin.list_group_offsets(group.group_id)
    readers = {p: m for m in group.members for p in m.assignment}
    partitions = sorted(set(committed) | set(readers))
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    rows = []
    for partition in partitions:
        position = _offset(committed.get(partition))
        end = _offset(ends.get(partition))
        reader = readers.get(partition)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": position,
                "start": _offset(starts.get(partition)),
                "end": end,
                "lag": None if position is None or end is None else max(0, end - position),
                "member": reader.member_id if reader else None,
                "host": reader.client_host if reader else None,
                "client": reader.client_id if reader else None,
            }
        )
    return rows


def _offset(answer: Any) -> int | None:
    """The offset of an admin result; None for an error, a missing result, or -1 (no committed offset)."""
    if answer is None or isinstance(answer, KafkaError) or answer.offset < 0:
        return None
    return int(answer.offset)


async def select_partitions(admin: AsyncAdmin, group: str, topics: Iterable[str]) -> list[TopicPartition]:
    """The partitions that arguments such as `TOPIC` and `TOPIC:0,2` name; without arguments, all that the group has
    committed.
    """
    selected: list[TopicPartition] = []
    for argument in topics:
        topic, colon, numbers = argument.partition(":")
        if colon:
            selected += [TopicPartition(topic, int(n)) for n in numbers.split(",")]
            continue
        view = (await admin.describe_topics([topic]))[topic]
        if isinstance(view, KafkaError):
            raise KafkaError(view.code, f"topic {topic}: {view}")
        selected += [p.topic_partition for p in view.partitions]
    return selected or sorted(await admin.list_group_offsets(group))


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The position to which offsets are reset. `kind` is earliest, latest, current, offset, shift, time or file.

    `number` is the offset for offset, the difference to the committed offset for shift, and milliseconds since the
    epoch for time. `offsets` has the offsets of a file.
    """

    kind: str
    number: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> ResetTarget:
        """Parse the argument of a reset. Raises ValueError that lists the accepted forms."""
        if text in ("earliest", "latest", "current"):
            return cls(text)
        if re.fullmatch(r"[+-]\d+", text):
            return cls("shift", int(text))
        if text.isdigit():
            return cls("offset", int(text))
        if text.startswith("P"):
            return cls("time", SystemClock().now_ms() - parse_duration_ms(text))
        return cls("time", parse_time_ms(text))

    @classmethod
    def from_file(cls, path: str) -> ResetTarget:
        """Read a CSV file with one `topic,partition,offset` per line."""
        offsets = {}
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            cells = [cell.strip() for cell in line.split(",")]
            if not line.strip():
                continue
            if len(cells) != 3 or not cells[1].isdigit() or not cells[2].isdigit():
                raise ValueError(f"{path}:{number}: expected topic,partition,offset, found {line!r}")
            offsets[TopicPartition(cells[0], int(cells[1]))] = int(cells[2])
        return cls("file", offsets=offsets)


def parse_duration_ms(text: str) -> int:
    """An ISO-8601 duration such as PT1H30M or P2D."""
    match = _DURATION.match(text)
    if not match or text in ("P", "PT"):
        raise ValueError(f"{text!r} is not a duration: write it as PT30M, PT1H30M or P2D")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return int((days * 86_400 + hours * 3_600 + minutes * 60 + seconds) * 1000)


def parse_time_ms(text: str) -> int:
    """An ISO-8601 time as milliseconds since the epoch; a time without an offset is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a position: write earliest, latest, current, an offset, +N, -N, "
            "a time such as 2026-11-20T10:00:00Z, or a duration such as PT1H"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class ResetRow:
    """The reset of one partition: its committed offset and the new offset."""

    partition: TopicPartition
    old: int | None
    new: int


async def plan_reset(admin: AsyncAdmin, group: str, topics: list[str], target: ResetTarget) -> list[ResetRow]:
    """Compute the new offsets, limited to the range between log start and end offset of each partition. Changes
    nothing.
    """
    partitions = sorted(target.offsets) if target.kind == "file" else await select_partitions(admin, group, topics)
    committed = await admin.list_group_offsets(group, partitions)
    starts = await _offsets_at(admin, partitions, EARLIEST)
    ends = await _offsets_at(admin, partitions, LATEST)
    at_time = await _offsets_at(admin, partitions, target.number) if target.kind == "time" else {}
    rows = []
    for partition in partitions:
        old = _offset(committed.get(partition))
        match target.kind:
            case "earliest":
                wanted = starts[partition]
            case "latest":
                wanted = ends[partition]
            case "offset":
                wanted = target.number
            case "shift" | "current":
                wanted = (ends[partition] if old is None else old) + target.number
            case "time":
                wanted = at_time[partition] if at_time[partition] >= 0 else ends[partition]
            case _:
                wanted = target.offsets[partition]
        rows.append(ResetRow(partition, old, min(max(wanted, starts[partition]), ends[partition])))
    return rows


async def _offsets_at(
    admin: AsyncAdmin, partitions: Iterable[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    answers = await admin.list_offsets(dict.fromkeys(partitions, timestamp))
    offsets = {}
    for partition, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise KafkaError(answer.code, f"{partition}: {answer}")
        offsets[partition] = answer.offset
    return offsets
