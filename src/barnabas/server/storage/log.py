"""Machine: one partition's log: its segments, leader epochs and producers, and the offsets that bound it.

    log_start_offset <= recovery_point <= log_end_offset       (the recovery point may also lie below the start)
    ^ oldest record     ^ durable below     ^ next to be written

It is given its disk and the time, and is used from one thread, the event loop. Appends are one `writev` into the page
cache, done when they return: that fixes their order. Whatever may wait for the device is a job: `plan_read`,
`flush_job`. The high watermark belongs to replication, which passes it in where it matters.

This file appends, rolls and answers questions; `reading.py` reads, `flushing.py` syncs and closes, `reshaping.py`
truncates, deletes and replaces, `retention.py` decides what is too old, `directory/relocation.py` lets it go on under
another path, `recovery.py` opens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode
from barnabas.core.hashing import murmur2
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.errors import RecordRefusedError
from barnabas.protocol.records.validate import (
    Origin,
    Validated,
    ValidationRules,
    validate_and_assign,
    validate_replicated,
)
from barnabas.server.storage import flushing, lookups, names, reading, reshaping, retention
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.directory import relocation
from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.storage.errors import DiskFullError, LogFailedError, StorageError
from barnabas.server.storage.flushing import FlushJob
from barnabas.server.storage.fs import FileSystem, replace_file
from barnabas.server.storage.producers.markers import markers_of
from barnabas.server.storage.producers.state import ProducerAppend
from barnabas.server.storage.recovery import LoadRequest, load
from barnabas.server.storage.segments.segment import Segment, reaches
from barnabas.server.storage.segments.segments import WarmSegments
from barnabas.server.storage.values import AbortedTxn, AppendInfo, EpochEndOffset

if TYPE_CHECKING:
    from barnabas.server.storage.cleaner.job import CleaningJob


class Log:
    """Open one with `Log.open`; a `LogDir` does that for a whole data directory."""

    def __init__(
        self,
        request: LoadRequest,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        on_failure: Callable[[StorageError], None] | None,
        warm: WarmSegments | None,
    ) -> None:
        loaded = load(request)
        self.fs: FileSystem = request.fs
        self.path = request.path
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = request.config
        self.segments = loaded.segments
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        """Everything below is durable, its indexes too where the segment has been rolled."""
        self.durable_offset = loaded.recovery_point
        """Every record below is durable. A roll does not lower it."""
        torn = loaded.report.bytes_truncated or loaded.report.segments_dropped
        self.unsynced_cut: int | None = loaded.log_end_offset if torn else None
        """Where the log was cut, until a flush: if the power fails, what lay above may be back. Below it all stays."""
        self.on_durable: Callable[[], None] | None = None
        """Called when a flush has made more durable."""
        self.on_start: Callable[[], None] | None = None
        """Called when the log begins later than before."""
        self.recovery = loaded.report
        self.failure: StorageError | None = None
        """Why this log serves nothing any more, or None."""
        self.warm = warm or WarmSegments()
        self.pending_deletes: list[tuple[int, list[str]]] = []
        """(time in ms, paths): files already renamed to `.deleted` that may go at that time."""
        self.last_flush_ms = request.now_ms
        self._on_failure = on_failure
        self.flushing: FlushJob | None = None
        self.cleaning: CleaningJob | None = None
        """The compaction under way."""
        self.moving = False
        """Being copied to another directory: compaction rests, for a tombstone that goes now may leave the record it
        deletes behind in the copy."""
        self.on_cut: Callable[[], None] | None = None
        """Called when the log has been truncated."""
        self.cleaned_offset = 0
        """Below it compaction has done its work; remembered by the log's directory."""
        self.on_cleaned_lowered: Callable[[], None] | None = None
        self.on_recovery_point_lowered: Callable[[], None] | None = None
        """Called before synced records are cut off: nobody may believe any more that what is there is synced."""
        self.seen_ms = request.now_ms
        """The latest time this log was told."""
        self.named = False
        """Whether the entry of this directory in its parent is known to be durable."""
        self._rules: dict[Origin, ValidationRules] = {}
        self.save_epochs()

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        config: LogConfig,
        *,
        topic_partition: TopicPartition,
        now_ms: int,
        clean_shutdown: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        cleaned_offset: int = 0,
        topic_id: UUID | None = None,
        producer_expiration_ms: int = 86_400_000,
        on_failure: Callable[[StorageError], None] | None = None,
        warm: WarmSegments | None = None,
    ) -> Log:
        """Open the directory `path`, which must exist, and repair it unless `clean_shutdown` vouches for it.

        Raises StorageError only if the disk fails; what was repaired is in `recovery`.
        """
        request = LoadRequest(
            fs,
            path,
            config,
            str(topic_partition),
            now_ms,
            clean=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            producer_expiration_ms=producer_expiration_ms,
            cleaned_offset=cleaned_offset,
        )
        return cls(request, topic_partition, topic_id, on_failure, warm)

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    # --- failure

    @property
    def failed(self) -> bool:
        return self.failure is not None

    def check_usable(self) -> None:
        if self.failure is not None:
            raise LogFailedError(f"the log of {self.topic_partition} is offline since: {self.failure}")

    def fail(self, error: StorageError) -> None:
        """Serve nothing any more, and report it (once)."""
        if self.failure is None:
            self.failure = error
            if self._on_failure is not None:
                self._on_failure(error)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """A full disk refuses the operation; any other failure of the disk ends the log."""
        self.check_usable()
        try:
            yield
        except DiskFullError:
            raise
        except StorageError as e:
            self.fail(e)
            raise

    # --- appending

    def append_as_leader(
        self, buf: Buffer, *, leader_epoch: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        """Validate batches, give them the next offsets and the epoch, write them.

        Raises RecordRefusedError and CorruptBatchError (the batch is at fault), KafkaError
        (OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED),
        StorageError. After any of them the log is as it was.
        """
        self.check_usable()
        rules = self._rules.get(origin)
        if rules is None:
            rules = self._rules[origin] = self.config.validation_rules(self.topic_partition.topic, origin)
        checked = validate_and_assign(
            buf, rules, first_offset=self.log_end_offset, leader_epoch=leader_epoch, now_ms=now_ms
        )
        batches = checked.batches
        if checked.size > self.config.segment_size:
            raise RecordRefusedError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{checked.size} bytes do not fit a segment of {self.topic_partition}: segment.bytes is "
                f"{self.config.segment_size}",
            )
        prepared = None
        if _from_producers(batches):
            if origin is Origin.CLIENT:
                known = self.producers.duplicate_of(batches[0])
                if known is not None:
                    start = self.log_start_offset
                    return AppendInfo(known.first_offset, known.last_offset, known.timestamp, start, duplicate=True)
            prepared = self.producers.prepare(batches, markers_of(buf, batches), origin)
        rolled = self._write(checked, prepared, now_ms)
        return AppendInfo(
            checked.first_offset,
            checked.last_offset,
            checked.log_append_time_ms,
            self.log_start_offset,
            checked.size,
            last_leader_epoch=leader_epoch,
            rolled=rolled,
        )

    def append_as_follower(self, buf: Buffer, *, now_ms: int, leader_epoch: int | None = None) -> AppendInfo | None:
        """Write batches as a leader sent them, offsets and epochs included; a partial last one is left out.

        None if there is no whole batch. With `leader_epoch`, batches of a later epoch are left out too: the
        response of an older fetch must not bring them in (KAFKA-18723). Raises CorruptBatchError, StorageError,
        and KafkaError(OFFSET_OUT_OF_RANGE) for batches that overlap the log.
        """
        self.check_usable()
        checked = validate_replicated(buf, expected_offset=self.log_end_offset)
        if leader_epoch is not None:
            later = next((i for i, b in enumerate(checked.batches) if b.partition_leader_epoch > leader_epoch), None)
            if later is not None:
                kept = sum(b.size for b in checked.batches[:later])
                checked = validate_replicated(memoryview(buf)[:kept], expected_offset=self.log_end_offset)
        batches = checked.batches
        if not batches:
            return None
        prepared = None
        if _from_producers(batches):
            prepared = self.producers.prepare(batches, markers_of(buf, batches), None)
        rolled = self._write(checked, prepared, now_ms)
        return AppendInfo(
            batches[0].base_offset,
            checked.last_offset,
            -1,
            self.log_start_offset,
            checked.size,
            last_leader_epoch=batches[-1].partition_leader_epoch,
            rolled=rolled,
        )

    def _write(self, checked: Validated, prepared: ProducerAppend | None, now_ms: int) -> bool:
        """All or nothing. Whether a new segment was begun."""
        batches = checked.batches
        active = self.segments.active
        rolled = False
        try:
            if not active.ready:
                active.prepare_append()
            if self._must_roll(active, checked, now_ms):
                active = self._roll(now_ms, batches[0].base_offset, checked.last_offset)
                rolled = True
            active.append(checked.parts, batches, checked.size)
        except DiskFullError:
            raise
        except StorageError as e:
            self.fail(e)
            raise
        self.log_end_offset = end = checked.last_offset + 1
        for txn in self.producers.commit(prepared, end):
            active.txn_index.append(txn)
        latest = self.epochs.latest
        if latest is None or latest.epoch != batches[-1].partition_leader_epoch:
            for header in batches:
                if header.partition_leader_epoch >= 0:
                    self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            self.save_epochs()
        return rolled

    def _must_roll(self, active: Segment, checked: Validated, now_ms: int) -> bool:
        config = self.config
        size = active.size
        if size > config.segment_size - checked.size or not active.takes_offset(checked.last_offset):
            return True
        if size:
            first = active.first_timestamp
            waited = checked.max_timestamp - first if first is not None and first >= 0 else now_ms - active.created_ms
            if waited > config.segment_ms - active.jitter_ms:
                return True
        return active.indexes_full(config.segment_index_bytes)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty. The old one is then due to be flushed."""
        with self.guarded():
            active = self.segments.active
            if active.size > 0:
                if not active.ready:
                    active.prepare_append()
                self._roll(now_ms)

    def _roll(self, now_ms: int, first_offset: int = 0, last_offset: int = 0) -> Segment:
        """A new segment for batches from `first_offset` to `last_offset`. It begins where the log ends, also where a
        follower's first batch lies behind a gap: a recovery then knows that nothing is missing in between. Only a gap
        so wide that the segment could not reach over it is left between two segments."""
        base_offset = self.log_end_offset
        if not reaches(base_offset, last_offset):
            base_offset = max(base_offset, first_offset)
        active = self.segments.active
        active.seal()
        # It may have been synced while it was active, but its indexes were not: they are of sealed segments only.
        self.lower_recovery_point(active.base_offset)
        self.producers.end_offset = base_offset
        self.snapshots.take(self.producers)
        segment = self.new_segment(base_offset, now_ms)
        self.segments.add(segment)
        return segment

    def new_segment(self, base_offset: int, now_ms: int, suffix: str = "") -> Segment:
        """An empty segment of this log's settings, not yet part of it."""
        jitter_max = self.config.segment_jitter_ms
        # Spread over partitions without asking for chance, so that a replayed simulation rolls at the same moments.
        spread = murmur2(f"{self.topic_partition}@{base_offset}".encode()) % jitter_max if jitter_max > 0 else 0
        return Segment.create(
            self.fs,
            self.path,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=now_ms,
            jitter_ms=min(spread, self.config.segment_ms),
            suffix=suffix,
        )

    def keep_warm(self, segment: Segment) -> None:
        """A sealed segment is about to be read: it may stay open, and another one may close.

        One that is not yet flushed keeps its descriptor in any case, because a failing fsync shows there.
        """
        if segment is not self.segments.active and segment.base_offset < self.recovery_point:
            self.warm.touch(segment)

    # --- questions

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where read_committed readers may read."""
        unstable = self.producers.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions with records in [start, end)."""
        with self.guarded():
            found: list[AbortedTxn] = []
            for segment in self.segments.starting_from(start_offset):
                some, complete = segment.txn_index.collect(start_offset, end_offset)
                found += some
                if complete:
                    break
            return found

    @property
    def latest_epoch(self) -> int | None:
        latest = self.epochs.latest
        return None if latest is None else latest.epoch

    def epoch_end_offset(self, epoch: int) -> EpochEndOffset:
        """For OffsetForLeaderEpoch and fetch divergence (KIP-320)."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        return self.epochs.epoch_for_offset(offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader's epoch begins at `start_offset`."""
        if self.epochs.assign(epoch, start_offset):
            self.save_epochs()

    @property
    def epoch_entries(self) -> tuple[EpochEntry, ...]:
        return self.epochs.entries

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self.producers.has_ongoing_transaction(producer_id, producer_epoch)

    def save_epochs(self) -> None:
        """Write the epoch file without a sync; a flush makes it durable, and recovery can do without it."""
        if self.epochs.changed:
            try:
                path = f"{self.path}/{names.LEADER_EPOCH_CHECKPOINT}"
                replace_file(self.fs, path, self.epochs.encode(), durable=False)
                self.epochs.changed = False
            except DiskFullError:
                pass  # stays changed; the next flush tries again
            except StorageError as e:
                self.fail(e)

    # --- flushing

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def flush_due(self, now_ms: int) -> bool:
        """Whether a flush job is worth asking for."""
        self.seen_ms = now_ms
        return (
            self.failure is None
            and self.flushing is None
            and (self.recovery_point < self.segments.active.base_offset or self.fsync_due(now_ms))
        )

    def fsync_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms demand that the active segment be synced."""
        unflushed = self.log_end_offset - self.recovery_point
        return unflushed >= self.config.flush_messages or (
            unflushed > 0 and now_ms - self.last_flush_ms >= self.config.flush_ms
        )

    # --- the rest of what a log does: each in the module that explains it

    read = reading.read
    plan_read = reading.plan_read
    offset_for_timestamp = lookups.offset_for_timestamp
    offset_of_max_timestamp = lookups.offset_of_max_timestamp
    flush_job = flushing.flush_job
    flush = flushing.flush
    on_flushed = flushing.on_flushed
    lower_recovery_point = flushing.lower_recovery_point
    lower_durable_offset = flushing.lower_durable_offset
    note_cut = flushing.note_cut
    close = flushing.close
    truncate_to = reshaping.truncate_to
    truncate_fully_and_start_at = reshaping.truncate_fully_and_start_at
    advance_log_start = reshaping.advance_log_start
    delete_records = reshaping.delete_records
    skip_to = reshaping.skip_to
    relocate = relocation.relocate
    continue_from = relocation.continue_from
    drop_segment = reshaping.drop_segment
    abort_cleaning = reshaping.abort_cleaning
    lower_cleaned_offset = reshaping.lower_cleaned_offset
    replace_segments = reshaping.replace_segments
    delete_pending_files = reshaping.delete_pending_files
    delete_old_segments = retention.delete_old_segments

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers idle for producer.id.expiration.ms; how many."""
        return self.producers.expire(now_ms)

    def update_config(self, config: LogConfig) -> None:
        """Obey new settings from the next operation on."""
        self.config = config
        self._rules = {}
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes


def _from_producers(batches: Sequence[BatchHeader]) -> bool:
    for header in batches:  # noqa: SIM110 - `any` with a generator takes three times as long, on every append
        if header.producer_id >= 0:
            return True
    return False
