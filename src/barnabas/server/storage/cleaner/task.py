"""Value: what one cleaning pass is told, and what it answers. All of it can be sent to another process.

    0 ............ first_dirty_offset ............ upper_offset ............ log_end_offset
    clean          dirty: its keys go into the map  too young, open, or active: not touched

A pass reads the dirty part once to learn the newest offset of each key, and then writes every segment below the offset
it got to (`end_offset`: the map may fill up before `upper_offset`) anew without the records that are superseded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from barnabas.server.storage.values import AbortedTxn

MAP_ENTRY_BYTES: Final = 24
"""16 bytes of hash, 8 of offset."""


class SourceSegment(Struct, frozen=True):
    """A sealed segment as it was when the pass was planned."""

    base_offset: int
    size: int


class LastRecord(Struct, frozen=True):
    """Where a live producer's last sequence number stands; None if only a marker remembers the producer."""

    last_data_offset: int | None
    epoch: int


class CleanerConfig(Struct, frozen=True):
    """The `log.cleaner.*` configs of the broker. The sizes and the rate are for all cleaner threads together."""

    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float

    @property
    def per_thread(self) -> CleanerConfig:
        """The share of one cleaner thread."""
        threads = max(self.log_cleaner_threads, 1)
        return replace(
            self,
            log_cleaner_dedupe_buffer_size=self.log_cleaner_dedupe_buffer_size // threads,
            log_cleaner_io_buffer_size=self.log_cleaner_io_buffer_size // threads,
            log_cleaner_io_max_bytes_per_second=self.log_cleaner_io_max_bytes_per_second / threads,
        )


class CleaningTask(Struct, frozen=True):
    """One pass over one partition."""

    path: str
    partition: str
    segments: Sequence[SourceSegment]
    """All below `upper_offset`, in order."""
    first_dirty_offset: int
    upper_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    secret: tuple[int, int]
    """Keys the hash of the record keys, a fresh one for each pass."""
    config: CleanerConfig
    producers: Mapping[int, LastRecord] = field(default_factory=dict)
    later_aborted: Sequence[AbortedTxn] = ()
    """Aborted transactions whose markers lie at or above `upper_offset`."""


class CleaningStats(Struct):
    """What a pass did."""

    map_records_read: int = 0
    map_bytes_read: int = 0
    map_entries: int = 0
    map_slots: int = 0
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    batches_rewritten: int = 0
    keyless_dropped: int = 0
    seconds: float = 0.0

    @property
    def map_utilization(self) -> float:
        return self.map_entries / self.map_slots if self.map_slots else 0.0


class GroupCleaned(Struct, frozen=True):
    """Some neighbouring segments have become one, whose files lie, synced, under `.cleaned`."""

    sources: tuple[int, ...]
    """Their base offsets; the first is also that of the new segment."""
    size: int
    changed: bool
    """False: nothing was removed, there are no new files, and the segment stays as it is."""


class PassDone(Struct, frozen=True):
    """Everything below `end_offset` is clean now."""

    end_offset: int
    stats: CleaningStats
