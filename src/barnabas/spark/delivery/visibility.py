"""Machine: whether the rows of a commit are visible to readers with read_committed, and what holds them back.

    log of a partition    ... | rows of another producer | rows of the commit | marker | ...
                              ^ first offset of an open transaction

A consumer with read_committed reads below the last stable offset: the first offset of the earliest transaction that is
open, or whose marker is not written yet. So the rows of a commit are visible once the last stable offset of each
partition is above the newest batch that the commit has written there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.core.ids import TopicPartition

VISIBLE_TIMEOUT_MS: Final = 30_000
"""The default of `delivery.visible.timeout.ms`."""
PAUSE_MIN_MS: Final = 5
PAUSE_MAX_MS: Final = 500
KNOWN_MAX: Final = 1_000
"""The number of transactions that are remembered as waited for; the oldest is forgotten first."""
SHOWN_MAX: Final = 5
"""The number of partitions that a warning names."""

Newest = Mapping[TopicPartition, int]
"""The first offset of the newest batch that a commit has written to each partition."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The open transaction that holds back a partition from `first_offset` on. None: not known, or not shown by the
    brokers. `started_ms` is when it began, or, with `is_last_write`, when its producer has written last."""

    producer_id: int
    first_offset: int
    transactional_id: str | None = None
    started_ms: int | None = None
    is_last_write: bool = False

    def __str__(self) -> str:
        name = f"the transaction of producer id {self.producer_id}"
        return name if self.transactional_id is None else f"{name} (transactional id {self.transactional_id})"

    def age(self, now_ms: int) -> str:
        """How long the transaction has been open, as text."""
        if self.started_ms is None:
            return "open for an unknown time"
        seconds = max(0, now_ms - self.started_ms) / 1_000
        return f"its last record is {seconds:.0f} s old" if self.is_last_write else f"open for {seconds:.0f} s"


def newest_batches(parts: Iterable[Newest]) -> dict[TopicPartition, int]:
    """The newest batch in each partition over all tasks of a commit."""
    found: dict[TopicPartition, int] = {}
    for part in parts:
        for partition, offset in part.items():
            found[partition] = max(offset, found.get(partition, offset))
    return found


def hidden(newest: Newest, stable: Newest) -> list[TopicPartition]:
    """The partitions in which rows are not visible yet. `stable` has the last stable offsets; a partition that it does
    not have was deleted, and no reader waits for its rows."""
    return [
        partition for partition in sorted(newest) if stable.get(partition, newest[partition] + 1) <= newest[partition]
    ]


def next_pause_ms(pause_ms: int) -> int:
    """The pause after one of `pause_ms`: markers are written within milliseconds, other transactions last longer."""
    return min(PAUSE_MAX_MS, pause_ms * 2)


class WaitedFor:
    """The transactions for which a commit has waited for the whole time. Later commits do not wait for them again: a
    transaction that hangs would slow down every micro-batch."""

    def __init__(self) -> None:
        self._known: dict[tuple[TopicPartition, int, int], None] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, holders: Mapping[TopicPartition, Holder]) -> None:
        for partition, holder in holders.items():
            self._known[partition, holder.producer_id, holder.first_offset] = None
        while len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def has_all(self, partitions: Iterable[TopicPartition], holders: Mapping[TopicPartition, Holder]) -> bool:
        """Whether each of the partitions is held back by a transaction for which a commit has waited before."""
        return all(
            (holder := holders.get(partition)) is not None
            and (partition, holder.producer_id, holder.first_offset) in self._known
            for partition in partitions
        )


def warning(
    what: str,
    waited_ms: int,
    partitions: Iterable[TopicPartition],
    holders: Mapping[TopicPartition, Holder],
    now_ms: int,
) -> str:
    """The warning of a commit whose rows are not visible within `delivery.visible.timeout.ms`. `what` says what is
    done, such as "the batch write is committed"."""
    blocked = sorted(partitions)
    parts = []
    for partition in blocked[:SHOWN_MAX]:
        holder = holders.get(partition)
        if holder is None:
            parts.append(f"{partition} by a transaction that the brokers do not show")
        else:
            parts.append(f"{partition} from offset {holder.first_offset} by {holder}, {holder.age(now_ms)}")
    more = f", and {len(blocked) - SHOWN_MAX} more partitions" if len(blocked) > SHOWN_MAX else ""
    return (
        f"{what}, but after {waited_ms / 1_000:g} s consumers with read_committed do not see all of its"
        f" rows. These are held back: {'; '.join(parts)}{more}. The transaction may belong to another program; the rows"
        " become visible when it ends. `barnabas transactions describe` shows it, `barnabas transactions fence` aborts"
        " it. To wait longer, set delivery.visible.timeout.ms"
    )
