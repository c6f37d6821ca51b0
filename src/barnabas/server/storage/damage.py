"""Machine: decides whether damage in a log is a torn end, which recovery cuts off, or bit rot, which recovery reports.

A process that was killed leaves whole batches, and possibly one incomplete batch at the end: the page cache survives. A
power failure loses what was not synced, page by page and in any order: a batch can be incomplete, a lost page reads as
zeros, and later pages and later segments can nevertheless be there. Nothing that was synced is lost in either case. The
first row that applies decides:

    the damage lies below the synced offset (the recovery point)           rot: a sync had made these bytes durable
    no whole batch follows in this segment or in a later one               torn end
    the damaged bytes contain a lost page, or the file ends too early,     torn end: the power failed before a sync, and
    or a truncation was lost                                               a later page was written before this one
    the first whole batch that follows has a later leader epoch than the   torn end: the log may have been truncated
    batch before the damage                                                here, and old bytes may be back in the page
    whole batches follow                                                   rot: every byte was written, one has changed

Apache Kafka does not distinguish them: `LogSegment.recover` truncates a segment at the first invalid batch, `LogLoader`
deletes all later segments, and for the metadata log KafkaRaftLog does the same, also below the high watermark. In
Kafka, replicas on other nodes repair such a log, if there are any. Here, rot in the metadata log prevents the start,
and rot in another log takes this one replica offline, until an operator has decided where the records come from.

The test for a lost page can take rot for a torn end, if the damage lies above the synced offset and if the records of
the damaged batch happen to contain zeros at the end of a sector. The cut is logged in every case.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from barnabas.core.buffers import Buffer

SECTOR: Final = 512
"""Disks write sectors of at least this size atomically; pages consist of sectors."""
_FEWEST_ZEROS: Final = 6
"""The fewest zeros at the end of a sector that count as a lost write. A base offset begins with as many zeros."""


class BatchesBehind(Struct, frozen=True):
    """Whole batches with correct CRCs behind damage, in the same file."""

    position: int
    first_offset: int
    last_offset: int
    count: int
    leader_epoch: int = -1
    """The leader epoch of the first of them."""


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


def has_lost_page(region: Buffer, position: int, *, ends_file: bool) -> bool:
    """Whether `region`, the damaged bytes at `position` of a file, contains a page of which a write was lost: zeros up
    to the end of a sector (or of the file, if `ends_file`). The bytes before the zeros may be there, because the file
    ended inside the sector when it was last written."""
    view = memoryview(region)
    head = min(SECTOR - position % SECTOR, len(view))
    if head >= _FEWEST_ZEROS and not any(view[:head]):
        return True
    left = (position + len(view)) % SECTOR
    if ends_file and 0 < left < len(view) and not any(view[-left:]):
        return True  # the last sector of the file, however few bytes of it there are
    ends = [*range(SECTOR - position % SECTOR, len(view) + 1, SECTOR), *([len(view)] if ends_file else [])]
    return any(end >= _FEWEST_ZEROS and not any(view[end - _FEWEST_ZEROS : end]) for end in ends)


def region_of(data: memoryview, position: int, behind: int | None) -> memoryview:
    """The bytes of `data`, which begins at `position` of a file, that may be damaged: up to the whole batch at
    `behind`. The zeros with which the base offset of that batch begins may end a lost page, and belong to it."""
    if behind is None:
        return data
    sector_end = -(-behind // SECTOR) * SECTOR
    return data[: (sector_end if sector_end - behind <= _FEWEST_ZEROS else behind) - position]
