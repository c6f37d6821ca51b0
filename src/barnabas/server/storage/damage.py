"""Machine: decides whether damage in a log is a torn end, which recovery cuts off, or bit rot, which recovery reports.

A process that was killed leaves whole batches, and possibly one incomplete batch at the end: the page cache survives. A
power failure loses what was not synced, page by page and in any order: a batch can be incomplete, a lost page reads as
zeros, and later pages and later segments can nevertheless be there. Nothing that was synced is lost in either case.
Everything below the synced offset, at least up to the recovery point, was synced. The first rule that applies decides:

    1. The damage lies below the synced offset.              Rot: a sync had made these bytes durable.
    2. No whole batch follows the damage, neither in this    Torn end: the last write was not finished.
       segment nor at the start of a later one.
    3. The damaged bytes contain a lost page, or the file    Torn end: the power failed before a sync, and a later
       ends inside the damaged batch.                        page or segment was written before this one.
    4. The damaged batch has an older leader epoch than      Torn end: the power failed after a truncation that was
       the leader epoch checkpoint has for its offset.       not synced, and the truncated batch is back.
    5. The first whole batch behind the damage has a later   Torn end: the log may have been truncated where the
       leader epoch than the batch before the damage in      epoch begins, and one page may hold old bytes again.
       this segment.
    6. Otherwise.                                            Rot: every byte was written, and one has changed.

`scanning.examine` finds out which of the rules 2 to 5 apply, and `Damage.is_rot` decides.

Apache Kafka handles torn ends and rot alike: `LogSegment.recover` truncates a segment at the first invalid batch,
`LogLoader` deletes all later segments, and for the metadata log KafkaRaftLog does the same, also below the high
watermark. In Kafka, replicas on other nodes repair such a log, if there are any. Here, rot in the metadata log prevents
the start, and rot in another log takes this one replica offline, until an operator has decided where the records come
from.

Rule 3 takes rot above the synced offset for a torn end if the records of the damaged batch happen to contain zeros from
the start to the end of a sector. The cut is logged in every case. Old bytes that are back in some sectors of a page,
and not in others, behind whole batches of the new leader epoch, count as rot. That takes a power failure during the
write of the very page in which the log was truncated, before any sync; and nothing is cut off then.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from barnabas.core.buffers import Buffer

SECTOR: Final = 512
"""Disks write sectors of at least this size atomically; pages consist of sectors."""


class BatchesBehind(Struct, frozen=True):
    """Whole batches with correct CRCs behind damage, in the same file."""

    position: int
    first_offset: int
    last_offset: int
    count: int
    leader_epoch: int = -1
    """The leader epoch of the first of these batches, or -1."""


class Damage(Struct, frozen=True):
    """The first damage in a log."""

    path: str
    position: int
    """The first damaged byte; everything before it is whole batches."""
    offset: int
    """The first offset that is missing because of the damage."""
    size: int
    """The bytes from `position` to the end of the file."""
    reason: str
    torn: bool
    """Whether an unfinished write or a lost truncation may have left the bytes."""
    behind: BatchesBehind | None = None
    later_segments: int = 0
    """The number of later segments that begin with a whole batch."""

    @property
    def is_last(self) -> bool:
        """Whether no whole batch follows."""
        return self.behind is None and not self.later_segments

    def is_rot(self, synced_offset: int) -> bool:
        """Whether the damage is bit rot; see the module's docstring. Everything below `synced_offset` was synced."""
        return self.offset < synced_offset or not (self.is_last or self.torn)

    def describe(self) -> str:
        """Where the damage is and what follows it, as one or two sentences."""
        return f"{self.path} is damaged at byte {self.position}, where offset {self.offset} begins: {self.reason}. " + (
            self.describe_behind()
        )

    def describe_behind(self) -> str:
        found = []
        behind = self.behind
        if behind is not None:
            found.append(
                f"{behind.count} whole batches in the same file (from byte {behind.position}, offsets "
                f"{behind.first_offset} to {behind.last_offset})"
            )
        if self.later_segments:
            found.append(f"{self.later_segments} later segments")
        return f"Behind the damage: {' and '.join(found)}." if found else "Behind the damage there is no whole batch."


def has_lost_page(region: Buffer, position: int, offset: int, *, ends_file: bool) -> bool:
    """Whether `region`, the damaged bytes at `position` of a file, contains a page of which a write was lost.

    The bytes of such a page are zeros up to the end of a sector, or to the end of the file if `ends_file`, or in the
    whole region. The zeros begin where the sector begins, or where the region begins. They cannot begin elsewhere,
    because a synced file ends with a whole batch: in each sector either all bytes of the first damaged batch were
    durable, or none of them. The batch of `offset` should begin with the region, so the first bytes of the region are
    the first bytes of that offset. If these are zeros, they do not prove that a write was lost.
    """
    view = memoryview(region)
    size = len(view)
    zeros_in_any_case = 8 - (offset.bit_length() + 7) // 8 if offset else 11  # the size follows; it has 4 bytes
    start, fewest = 0, zeros_in_any_case + 1
    if size >= fewest and not any(view):
        return True
    for end in range(SECTOR - position % SECTOR, size + SECTOR, SECTOR):
        ends_with_file = ends_file and end >= size
        if ((end <= size and end - start >= fewest) or ends_with_file) and not any(view[start : min(end, size)]):
            return True
        start, fewest = end, SECTOR
    return False


def region_of(data: memoryview, position: int, behind: int | None) -> memoryview:
    """The bytes of `data` that may be damaged: all bytes before the whole batch at `behind`. `data` begins at
    `position` of a file, and `behind` is a position in that file. If the first bytes of that batch are zeros up to the
    end of a sector, the region includes them: they may be the end of a lost page, and not the start of a base offset.
    """
    if behind is None:
        return data
    end = behind - position
    sector_end = end + -behind % SECTOR
    return data[: end if any(data[end:sector_end]) else sector_end]
