"""Value: the input and the results of one cleaning pass. All values can be sent to another process.

    0 ............ first_dirty_offset ............ upper_offset ............ log_end_offset
    clean          dirty: keys are added to the map  too young, in a transaction, or active: not read

A pass first reads the dirty part to find the newest offset of each key, up to `end_offset`, which is below
`upper_offset` if the map is full before. The pass then writes all segments below `end_offset` again, without the
records that are superseded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from barnabas.server.storage.values import AbortedTxn

MAP_ENTRY_BYTES: Final = 24
"""The size of an entry of the offset map: 16 bytes for the hash of the key and 8 for the offset."""


class SourceSegment(Struct, frozen=True):
    """A sealed segment as it was when the pass was planned."""

    base_offset: int
    size: int


class LastRecord(Struct, frozen=True):
    """The offset of a live producer's last data batch, or None if the producer's last batch is a marker."""

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
        """These configs with the buffers and the I/O rate divided equally among the cleaner threads."""
        threads = max(self.log_cleaner_threads, 1)
        return replace(
            self,
            log_cleaner_dedupe_buffer_size=self.log_cleaner_dedupe_buffer_size // threads,
            log_cleaner_io_buffer_size=self.log_cleaner_io_buffer_size // threads,
            log_cleaner_io_max_bytes_per_second=self.log_cleaner_io_max_bytes_per_second / threads,
        )


class CleaningTask(Struct, frozen=True):
    """The input of one pass over one partition."""

    path: str
    partition: str
    segments: Sequence[SourceSegment]
    """The segments below `upper_offset`, in order."""
    first_dirty_offset: int
    upper_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    secret: tuple[int, int]
    """The key of the hash function, a new one for each pass."""
    config: CleanerConfig
    max_decompressed_message_bytes: int
    producers: Mapping[int, LastRecord] = field(default_factory=dict)
    later_aborted: Sequence[AbortedTxn] = ()
    """The aborted transactions whose markers are at or above `upper_offset`."""


class CleaningStats(Struct):
    """Statistics of a pass."""

    map_bytes_read: int = 0
    map_entries: int = 0
    map_slots: int = 0
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0

    @property
    def map_utilization(self) -> float:
        return self.map_entries / self.map_slots if self.map_slots else 0.0


class GroupCleaned(Struct, frozen=True):
    """A group of adjacent segments has been merged into one, whose files are synced and have the suffix `.cleaned`."""

    sources: tuple[int, ...]
    """The base offsets of the merged segments. The first is also the base offset of the new segment."""
    size: int
    changed: bool
    """Whether a record was removed; if not, the segment is unchanged, and there are no new files."""


class PassDone(Struct, frozen=True):
    """The pass has completed: the log is clean below `end_offset`."""

    end_offset: int
    stats: CleaningStats
