"""Shell: one cleaning pass over one partition. A pass only reads and writes files, so it can run in any thread or
process.

    build    read the dirty part of the log and add the newest offset of each key to the map, until the map is full
    group    choose groups of adjacent segments, from the log's start to the end of the map
    write    copy each group into one `.cleaned` segment, without superseded records; sync the segment and report it

The caller puts each reported group in place (`job.py`) before it requests the next. The groups are in the order of
their offsets. A pass that ends early therefore does no harm: a tombstone is never removed before the values it deletes.

The rules are those of Kafka's Cleaner and MemoryRecords.filterTo, with three differences, each of which retains more:
batches at or above the end of the map are copied unchanged; the last batch of each new segment is retained, possibly
without records, so that the segment's end offset stays the same; and if a live producer's last batch is a marker, the
marker is retained, so that a replay restores the producer's epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import KafkaError
from barnabas.protocol.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    iter_records,
    read_header,
)
from barnabas.protocol.records.build import rebuild_batch, seal
from barnabas.server.storage import names
from barnabas.server.storage.cleaner.errors import CleaningError
from barnabas.server.storage.cleaner.grouping import Sizes, group_segments
from barnabas.server.storage.cleaner.keys import KeyEngine, Placed, PlainKeys, RecordVerdict
from barnabas.server.storage.cleaner.offset_map import OffsetMap
from barnabas.server.storage.cleaner.sources import CleanedSegments
from barnabas.server.storage.cleaner.task import MAP_ENTRY_BYTES, CleaningStats, CleaningTask, GroupCleaned, PassDone
from barnabas.server.storage.cleaner.transactions import CleanedTransactions
from barnabas.server.storage.errors import FileMissingError, StorageError
from barnabas.server.storage.fs import Access, FileSystem
from barnabas.server.storage.producers.markers import read_marker
from barnabas.server.storage.segments.segment import Segment

_INT32_MAX: Final = (1 << 31) - 1
_SLOTS_MIN: Final = 4096

EngineFactory = Callable[[OffsetMap, tuple[int, int], int], KeyEngine]


class _Fate(Struct, frozen=True):
    """The decision about a batch that does not depend on its records."""

    drop: bool
    """All records are removed."""
    keep_empty: bool
    """The batch is retained without records if all records are removed."""
    set_horizon: bool
    """The batch is a marker without data, whose delete horizon begins now."""


class CleaningPass:
    """One pass; `run` is called once. `take(size)` is called before bytes are read or written, to throttle the pass. It
    can raise an exception to stop the pass."""

    def __init__(
        self,
        fs: FileSystem,
        task: CleaningTask,
        *,
        engine: EngineFactory = PlainKeys,
        take: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._fs = fs
        self._task = task
        self._take = take
        self._make_engine = engine
        self._sources = CleanedSegments(fs, task, take)
        self._transactions = CleanedTransactions()
        self.stats = CleaningStats()
        self._end = task.first_dirty_offset

    def run(self) -> Iterator[GroupCleaned | PassDone]:
        """Yields each cleaned group, then the result. Raises CorruptBatchError, CleaningError, StorageError."""
        task, stats = self._task, self.stats
        offset_map = OffsetMap(self._map_bytes(), task.config.log_cleaner_io_buffer_load_factor)
        engine = self._make_engine(offset_map, task.secret, task.max_decompressed_message_bytes)
        self._end = self._build(engine)
        stats.map_entries, stats.map_slots = offset_map.used, offset_map.slots
        sizes = self._sources.sizes(self._end)
        for group in group_segments(sizes, task.segment_bytes, task.segment_index_bytes):
            yield self._clean(group, engine)
        yield PassDone(self._end, stats)

    def _map_bytes(self) -> int:
        """The size of the map, smaller for a small dirty part. If the estimate is too low, because the batches are
        compressed, the pass ends early."""
        dirty = sum(s.size for i, s in enumerate(self._task.segments) if self._sources.end_of(i) > self._end)
        return min(self._task.config.log_cleaner_dedupe_buffer_size, max(dirty // 4, _SLOTS_MIN) * MAP_ENTRY_BYTES)

    # --- build

    def _build(self, engine: KeyEngine) -> int:
        """Fill the map. Returns the offset below which the map contains every key."""
        task, sources = self._task, self._sources
        transactions = CleanedTransactions()
        for i in range(len(sources.segments)):
            if sources.end_of(i) <= task.first_dirty_offset:
                continue
            transactions.add_aborted(sources.aborted(i))
            for buf, batches in sources.chunks(i, task.first_dirty_offset):
                self.stats.map_bytes_read += len(buf)
                wanted = [p for p in batches if self._has_keys(buf, p, transactions)]
                full = engine.add(buf, wanted, task.first_dirty_offset)
                if full is not None:
                    return full
        return max(task.upper_offset, task.first_dirty_offset)

    def _has_keys(self, buf: Buffer, placed: Placed, transactions: CleanedTransactions) -> bool:
        pos, header = placed
        if header.is_control:
            transactions.on_control(header, read_marker(buf, pos, header))
            return False
        aborted = transactions.on_data(header)
        return not aborted and header.record_count > 0 and header.last_offset >= self._task.first_dirty_offset

    # --- write

    def _clean(self, group: Sequence[Sizes], engine: KeyEngine) -> GroupCleaned:
        """Write the segment of one group. If the writing fails, the files are deleted."""
        task = self._task
        bases = tuple(sizes.base_offset for sizes in group)
        cleaned = Segment(
            self._fs,
            task.path,
            bases[0],
            index_interval_bytes=task.index_interval_bytes,
            created_ms=task.now_ms,
            suffix=names.CLEANED,
        ).create()
        try:
            last_offset = self._last_offset(group)
            rewritten = 0
            for base in bases:
                rewritten += self._clean_into(cleaned, self._sources.index_of(base), last_offset, engine)
            source_bytes = sum(sizes.log for sizes in group)
            if len(group) == 1 and not rewritten and cleaned.size == source_bytes:
                cleaned.unlink()
                return GroupCleaned(bases, source_bytes, changed=False)
            self._take(0)  # may raise, to stop the pass before the files are sealed
            cleaned.seal()
            self._sync(cleaned)
            size = cleaned.size
            cleaned.cool()
            return GroupCleaned(bases, size, changed=True)
        except KafkaError:
            with suppress(StorageError):
                cleaned.unlink()
            raise

    def _last_offset(self, group: Sequence[Sizes]) -> int:
        """The last offset of the group's last batch, -1 if the group has no batch."""
        for sizes in reversed(group):
            if sizes.log:
                return self._sources.segments[self._sources.index_of(sizes.base_offset)].next_offset() - 1
        return -1

    def _sync(self, segment: Segment) -> None:
        for kind in names.SEGMENT_SUFFIXES:
            with suppress(FileMissingError):  # the transaction index exists only if it has entries
                file = self._fs.open(segment.file_path(kind), Access.READ)
                try:
                    file.sync()
                finally:
                    file.close()

    def _clean_into(self, cleaned: Segment, index: int, last_offset: int, engine: KeyEngine) -> int:
        """Copy the retained records of one source segment. Returns the number of batches that changed or were
        removed."""
        task, stats, transactions = self._task, self.stats, self._transactions
        transactions.add_aborted(self._sources.aborted(index))
        rewritten = 0
        for buf, batches in self._sources.chunks(index):
            fates = [self._fate(buf, placed, last_offset) for placed in batches]
            opened = [
                p for p, f in zip(batches, fates, strict=True) if not f.drop and self._opens(p[1])
            ]  # the batches whose records have to be judged
            verdicts = iter(engine.judge(buf, opened, self._end, task.now_ms))
            output = _Output()
            for placed, fate in zip(batches, fates, strict=True):
                header = placed[1]
                if fate.drop or not self._opens(header):
                    verdict = None
                else:
                    verdict = next(verdicts)
                self._write(output, buf, placed, fate, verdict, engine)
            rewritten += output.rewritten
            stats.records_read += sum(header.record_count for _, header in batches)
            stats.records_kept += sum(header.record_count for header in output.headers)
            stats.bytes_read += sum(header.size for _, header in batches)
            if output.size:
                self._take(output.size)
                if cleaned.size + output.size > _INT32_MAX:
                    raise CleaningError(
                        f"the compacted segment {cleaned.base_offset} of {task.partition} would exceed 2 GiB: "
                        "lower segment.bytes"
                    )
                cleaned.append(output.parts, output.headers, output.size)
                stats.bytes_written += output.size
        for txn in transactions.kept:
            cleaned.txn_index.append(txn)
        transactions.kept.clear()
        return rewritten

    def _opens(self, header: BatchHeader) -> bool:
        """Whether the offset map decides which records of the batch are kept. It does so for data batches that begin
        below the end of the map."""
        return not header.is_control and header.record_count > 0 and header.base_offset < self._end

    def _fate(self, buf: Buffer, placed: Placed, last_offset: int) -> _Fate:
        pos, header = placed
        if header.is_control:
            discardable = self._transactions.on_control(header, read_marker(buf, pos, header))
            horizon = header.delete_horizon_ms
            due = discardable and horizon is not None and horizon <= self._task.now_ms
        else:
            discardable = due = self._transactions.on_data(header)
        if header.base_offset >= self._end:
            return _Fate(drop=False, keep_empty=True, set_horizon=False)
        known = self._task.producers.get(header.producer_id) if header.producer_id >= 0 else None
        is_last_of_producer = False
        if known is not None:
            if known.last_data_offset is not None:
                is_last_of_producer = header.last_offset == known.last_data_offset
            elif header.is_control and header.producer_epoch == known.epoch:
                return _Fate(drop=False, keep_empty=True, set_horizon=False)
        keep_empty = is_last_of_producer or header.last_offset == last_offset
        # an emptied marker is removed, unless it is the last batch of the segment
        drop = due or (header.is_control and not header.record_count)
        return _Fate(drop, keep_empty, set_horizon=header.is_control and discardable and not drop)

    def _write(
        self,
        output: _Output,
        buf: Buffer,
        placed: Placed,
        fate: _Fate,
        verdict: RecordVerdict | None,
        engine: KeyEngine,
    ) -> None:
        pos, header = placed
        count = header.record_count
        kept = 0 if fate.drop else count if verdict is None else verdict.kept
        if not kept:
            if not fate.keep_empty:
                output.drop()
            elif count:
                output.put_new(emptied(header))
            else:
                output.copy(buf, pos, header)
            return
        horizon = None
        has_tombstone = verdict is not None and verdict.keeps_tombstone and header.last_offset < self._end
        if header.delete_horizon_ms is None and (fate.set_horizon or has_tombstone):
            # delete.retention.ms begins with this pass (KIP-534).
            horizon = self._task.now_ms + self._task.delete_retention_ms
        if kept == count and horizon is None:
            output.copy(buf, pos, header)
        elif verdict is None:
            check_crc(buf, pos, header)
            output.put_new(rebuild_batch(header, iter_records(buf, pos, header), delete_horizon_ms=horizon))
        else:
            output.put_new(engine.rebuild(buf, placed, verdict.keep, horizon))


class _Output:
    """The retained batches of one chunk: slices of the chunk, where adjacent batches share a slice, and rewritten
    batches."""

    __slots__ = ("_copied_from", "_copied_to", "headers", "parts", "rewritten", "size")

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self.headers: list[BatchHeader] = []
        self.size = 0
        self.rewritten = 0
        self._copied_to = -1
        self._copied_from = -1

    def copy(self, buf: Buffer, pos: int, header: BatchHeader) -> None:
        """Add a batch unchanged."""
        end = pos + header.size
        if pos == self._copied_to:
            self.parts[-1] = memoryview(buf)[self._copied_from : end]
        else:
            self.parts.append(memoryview(buf)[pos:end])
            self._copied_from = pos
        self._copied_to = end
        self.headers.append(header)
        self.size += header.size

    def put_new(self, batch: bytes) -> None:
        self.parts.append(batch)
        self.headers.append(read_header(batch))
        self.size += len(batch)
        self.rewritten += 1
        self._copied_to = -1

    def drop(self) -> None:
        self.rewritten += 1


def emptied(header: BatchHeader) -> bytes:
    """The batch without records. Offsets, producer, sequence numbers and largest timestamp are kept (Kafka's
    DefaultRecordBatch.writeEmptyHeader)."""
    bare = header._replace(
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    batch = seal(bare, b"")
    assert len(batch) == HEADER_SIZE
    return batch
