"""Shell: one partition's log: its segments, leader epochs and producers, and the offsets that bound it.

    log_start_offset <= recovery_point <= log_end_offset       (the recovery point may also lie below the start)
    ^ oldest record     ^ durable below     ^ next to be written

The caller passes the file system and the time. A log is used on one thread, the event loop. An append is one `writev`
into the page cache and is complete when the call returns, so the order of the calls is the order of the records.
Operations that may wait for the device are returned as jobs: `plan_read`, `flush_job`. The high watermark belongs to
replication and is passed as an argument where an operation depends on it.

`Log` is the interface for other packages, and the only object that they have of a log, so it has a method for every
operation. A method documents the operation and passes the call on. The state is a `LogState`, and each operation has a
module of its own: `appending.py`, `rolling.py`, `reading.py`, `lookups.py`, `flushing.py`, `truncating.py`,
`retention.py`, `deleting.py`, `recovery.py` (opening), `closing.py` and `directory/relocation.py` (moving to another
directory).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from uuid import UUID

from barnabas.core.buffers import Buffer
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.validate import Checked, Origin, ValidationRules
from barnabas.server.storage import closing, lookups, reading, retention
from barnabas.server.storage.appending import Appender
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.deleting import SegmentDeleter
from barnabas.server.storage.directory import relocation
from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.storage.errors import LogFailedError, StorageError
from barnabas.server.storage.flushing import FlushJob, LogFlusher
from barnabas.server.storage.fs import FileSystem
from barnabas.server.storage.listener import LogListener
from barnabas.server.storage.lookups import TimestampSearch
from barnabas.server.storage.producers.state import ProducerEntry, ProducerState
from barnabas.server.storage.reading import LogReadPlan
from barnabas.server.storage.recovery import LoadRequest, load
from barnabas.server.storage.retention import RetentionStatus, SegmentRetention
from barnabas.server.storage.rolling import roll_if_filled
from barnabas.server.storage.segments.open_segments import OpenSegments
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.segments.segments import Segments
from barnabas.server.storage.state import LogState, OngoingCleaning
from barnabas.server.storage.truncating import Truncator
from barnabas.server.storage.values import AbortedTxn, AppendInfo, EpochEndOffset, ReadResult, TimestampOffset


class Log:
    """One partition's log. `Log.open` opens a log; `LogDir.open_log` opens a log in a data directory."""

    def __init__(
        self,
        request: LoadRequest,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        listeners: Sequence[LogListener],
        open_segments: OpenSegments | None,
    ) -> None:
        loaded = load(request)
        state = LogState(
            fs=request.fs,
            path=request.path,
            topic_partition=topic_partition,
            config=request.config,
            segments=loaded.segments,
            epochs=loaded.epochs,
            producers=loaded.producers,
            snapshots=loaded.snapshots,
            log_start_offset=loaded.log_start_offset,
            log_end_offset=loaded.log_end_offset,
            recovery_point=loaded.recovery_point,
            now_ms=request.now_ms,
            open_segments=OpenSegments() if open_segments is None else open_segments,
            listeners=tuple(listeners),
        )
        # The leader epoch checkpoint is written with the next records; until then, a restart drops the same entries.
        torn = loaded.report.bytes_truncated or loaded.report.segments_dropped
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.recovery = loaded.report
        """The repairs made when the log was opened."""
        self._state = state
        self._flusher = LogFlusher(state, unsynced_truncation=loaded.log_end_offset if torn else None)
        self._deleter = SegmentDeleter(state)
        self._appender = Appender(state, self._flusher)
        self._truncator = Truncator(state, self._flusher, self._deleter)
        self._retention = SegmentRetention(state, self._flusher, self._deleter)

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
        verify_bytes: int = 0,
        synced_offset: int = 0,
        contiguous: bool = False,
        topic_id: UUID | None = None,
        producer_id_expiration_ms: int = 86_400_000,
        listeners: Sequence[LogListener] = (),
        open_segments: OpenSegments | None = None,
    ) -> Log:
        """Open the directory `path`, which must exist.

        Unless `clean_shutdown` is true, the records from `recovery_point` on are checked. A torn end is cut off; the
        attribute `recovery` of the log reports the repairs. Raises DamagedLogError for bit rot (`damage.py`), and
        StorageError if the disk fails. See `LoadRequest` for the other arguments.
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
            producer_id_expiration_ms=producer_id_expiration_ms,
            cleaned_offset=cleaned_offset,
            verify_bytes=verify_bytes,
            synced_offset=synced_offset,
            contiguous=contiguous,
        )
        return cls(request, topic_partition, topic_id, listeners, open_segments)

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    # --- the state

    @property
    def fs(self) -> FileSystem:
        return self._state.fs

    @property
    def path(self) -> str:
        return self._state.path

    @property
    def config(self) -> LogConfig:
        return self._state.config

    @property
    def log_start_offset(self) -> int:
        return self._state.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """The oldest offset that can be read from the local segments. Only in a tiered log the offset may be above
        `log_start_offset`; the records in between are in the object store."""
        return self._state.local_log_start_offset

    @property
    def lacks_lineage(self) -> bool:
        """Whether the log has records only in the object store, and does not know their leader epochs or, if it has no
        local records, their producers: a crash has interrupted `continue_above_copies`."""
        state = self._state
        if not state.is_continued_below:
            return False
        entries, base = state.epochs.entries, state.segments.first.base_offset
        knows_producers = state.log_end_offset > base or base in state.snapshots.offsets
        return not (entries and entries[0].start_offset <= state.log_start_offset and knows_producers)

    @property
    def highest_copied_offset(self) -> int:
        """Everything from the local start up to this offset, inclusive, is in the object store; -1: nothing."""
        return self._state.highest_copied_offset

    @highest_copied_offset.setter
    def highest_copied_offset(self, offset: int) -> None:
        self._state.highest_copied_offset = offset

    @property
    def log_end_offset(self) -> int:
        return self._state.log_end_offset

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is durable, including the indexes of segments that have been rolled."""
        return self._state.recovery_point

    @property
    def durable_offset(self) -> int:
        """Every record below this offset is durable. A roll lowers the recovery point, but not this offset."""
        return self._state.durable_offset

    @property
    def segments(self) -> Segments:
        return self._state.segments

    @property
    def producers(self) -> ProducerState:
        return self._state.producers

    @property
    def size_bytes(self) -> int:
        return self._state.size_bytes

    def figures(self) -> tuple[int, int, int, int, int]:
        """The size in bytes, the number of segments, the log start offset, the log end offset and the number of
        producers: what a page of metrics shows of each log, in one call."""
        return self._state.figures()

    def update_config(self, config: LogConfig) -> None:
        """Use `config` from the next operation on."""
        self._state.config = config
        self._appender.on_config_changed()
        for segment in self._state.segments:
            segment.index_interval_bytes = config.index_interval_bytes

    def add_listener(self, listener: LogListener) -> None:
        """Notify `listener` of the log's events from now on."""
        self._state.listeners = (*self._state.listeners, listener)

    def remove_listener(self, listener: LogListener) -> None:
        """Stop notifying `listener`. Has no effect if the listener is not registered."""
        self._state.listeners = tuple(known for known in self._state.listeners if known is not listener)

    # --- failure

    @property
    def failure(self) -> StorageError | None:
        """Why the log is offline, or None."""
        return self._state.failure

    @property
    def failed(self) -> bool:
        return self._state.failure is not None

    def check_usable(self) -> None:
        """Raises LogFailedError once the log has failed."""
        self._state.check_usable()

    def fail(self, error: StorageError) -> None:
        """Take the log offline and notify the listeners. A second call has no effect."""
        self._state.fail(error)

    def retire(self, reason: str) -> None:
        """Refuse all operations from now on, without notifying the listeners: the log has been closed for good."""
        if self._state.failure is None:
            self._state.failure = LogFailedError(reason)

    def guarded(self) -> AbstractContextManager[None]:
        """Take the log offline if the `with` block raises a StorageError other than TransientStorageError."""
        return self._state.guarded()

    # --- appending

    @property
    def client_rules(self) -> ValidationRules:
        """The rules by which `append_as_leader` checks a client's batch."""
        return self._appender.rules(Origin.CLIENT)

    def append_as_leader(
        self,
        buf: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        checked: Checked | None = None,
    ) -> AppendInfo:
        """Validate batches, assign the next offsets and the leader epoch to them, and append them.

        With `checked`, the result of `validate.check` for `buf` and `client_rules`, the records are not read again.

        Raises RecordValidationError and CorruptBatchError for bad batches, KafkaError (OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED), and StorageError. After any of
        these the log is unchanged.
        """
        return self._appender.append_as_leader(buf, leader_epoch, now_ms, origin, checked)

    def append_as_follower(self, buf: Buffer, *, now_ms: int, leader_epoch: int | None = None) -> AppendInfo | None:
        """Append batches as a leader sent them, with their offsets and epochs. A partial last batch is left out.

        Returns None if `buf` contains no whole batch. With `leader_epoch`, batches of a later epoch are left out too:
        the response to an older fetch must not append them (KAFKA-18723). Raises CorruptBatchError, StorageError, and
        KafkaError(OFFSET_OUT_OF_RANGE) for batches that overlap the log.
        """
        return self._appender.append_as_follower(buf, now_ms, leader_epoch)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment unless the active one is empty. The old segment is then due to be flushed."""
        roll_if_filled(self._state, self._flusher, now_ms)

    # --- reading

    def plan_read(
        self, offset: int, max_bytes: int, *, upper_offset: int | None = None, min_one_batch: bool = True
    ) -> LogReadPlan:
        """Plan a read of about `max_bytes` from the batch that contains `offset`, below `upper_offset`.

        `upper_offset` is the log end offset by default. If the first batch is larger than `max_bytes`, the result is
        that whole batch with `min_one_batch`, and empty without. Raises KafkaError: OFFSET_OUT_OF_RANGE if `offset` is
        not between the log start offset and the log end offset, OFFSET_MOVED_TO_TIERED_STORAGE if a tiered log has no
        local segment with `offset` any more. Raises StorageError, too.
        """
        return reading.plan_read(self._state, offset, max_bytes, upper_offset, min_one_batch)

    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int | None = None, min_one_batch: bool = True
    ) -> ReadResult:
        """Read in the calling thread; see `plan_read`."""
        plan = reading.plan_read(self._state, offset, max_bytes, upper_offset, min_one_batch)
        try:
            return plan.run()
        except StorageError as e:
            self._state.fail(e)
            raise

    def search_timestamp(self, timestamp: int | None) -> TimestampSearch:
        """The search for the first record whose timestamp is not less than `timestamp`, or, for None, for the first
        record with the largest timestamp (KIP-734)."""
        return TimestampSearch(self._state, timestamp)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The offset and timestamp of the first record whose timestamp is not less than `timestamp`, or None."""
        return lookups.find_first(self.search_timestamp(timestamp))

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp, or None for an empty log (KIP-734)."""
        return lookups.find_first(self.search_timestamp(None))

    # --- transactions and producers

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which read_committed consumers may read."""
        unstable = self._state.producers.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions with records in [start_offset, end_offset)."""
        return lookups.aborted_transactions(self._state, start_offset, end_offset)

    def expire_producers(self, now_ms: int) -> int:
        """Remove producers that have been idle for producer.id.expiration.ms, and return their number."""
        return self._state.producers.expire(now_ms)

    # --- leader epochs

    @property
    def epoch_entries(self) -> tuple[EpochEntry, ...]:
        return self._state.epochs.entries

    @property
    def latest_epoch(self) -> int | None:
        latest = self._state.epochs.latest
        return None if latest is None else latest.epoch

    def epoch_end_offset(self, epoch: int) -> EpochEndOffset:
        """The largest known leader epoch not above `epoch`, and its end offset; (-1, -1) if `epoch` is later than all.

        OffsetForLeaderEpoch returns the result, and Fetch needs it to find where two logs diverge (KIP-320).
        """
        return self._state.epochs.end_offset(epoch, self._state.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        return self._state.epochs.epoch_for_offset(offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Record that the leader epoch `epoch` begins at `start_offset`.

        The checkpoint is written with the first records of the epoch, or by the next flush. An epoch without records
        that a crash removes leaves no trace in any log, and a file for each partition at each election takes long.
        """
        self._state.epochs.assign(epoch, start_offset)

    # --- flushing

    @property
    def unflushed_messages(self) -> int:
        return self._flusher.unflushed_messages

    @property
    def must_flush(self) -> bool:
        """Whether flush.messages requires a flush."""
        state = self._state
        return state.log_end_offset - state.recovery_point >= state.config.flush_messages

    @property
    def unsynced_truncation(self) -> int | None:
        """The lowest offset to which the log has been truncated since the last flush, or None.

        If the power fails before a flush, records that lay at or above this offset may reappear.
        """
        return self._flusher.unsynced_truncation

    def flush_due(self, now_ms: int) -> bool:
        """Whether a rolled segment, flush.messages or flush.ms require a flush, and none is under way."""
        return self._flusher.is_due(now_ms)

    def flush_job(self, *, everything: bool = True) -> FlushJob | None:
        """A job that makes the log durable up to its end, or None if nothing needs a sync or a job is under way.

        With `everything=False` the active segment is left out unless flush.messages or flush.ms require it.
        """
        return self._flusher.build_job(everything=everything)

    def flush(self) -> None:
        """Make the whole log durable in the calling thread."""
        self._flusher.flush()

    def build_last_job(self) -> FlushJob | None:
        """Write what a clean close writes. Returns the flush that makes it durable, or None if nothing needs one.

        The caller runs and finishes the flush, and calls `close` afterwards, without appending in between. Raises
        StorageError.
        """
        return closing.build_last_job(self._state, self._flusher)

    def close(self, *, clean: bool = True, flushed: bool = False) -> None:
        """Close the files. With `clean`, first write the indexes and a producer snapshot and sync everything, so that
        the next start needs no recovery; with `flushed`, the job of `build_last_job` has done so.

        Raises StorageError if that fails: then the clean-shutdown marker must not be written.
        """
        closing.close(self._state, self._flusher, self._deleter, clean=clean, flushed=flushed)

    # --- truncating and deleting

    def truncate_to(self, offset: int, *, now_ms: int | None = None) -> bool:
        """Remove the records at and above `offset`. Returns False if the log ends at or below `offset` already.

        A batch that contains `offset` is removed as a whole.
        """
        return self._truncator.truncate_to(offset, now_ms)

    def truncate_fully_and_start_at(
        self, offset: int, log_start_offset: int | None = None, *, now_ms: int | None = None
    ) -> None:
        """Remove all records. The log is then empty and ends at `offset`. It also starts there, unless
        `log_start_offset` is given."""
        self._truncator.truncate_fully_and_start_at(offset, log_start_offset, now_ms)

    def continue_above_copies(
        self,
        offset: int,
        log_start_offset: int,
        epochs: Sequence[EpochEntry],
        producers: Sequence[ProducerEntry],
        *,
        now_ms: int,
    ) -> None:
        """Remove all local records and continue at `offset`. The records from `log_start_offset` up to there are in the
        object store; `epochs` are their leader epochs, `producers` the producers as of `offset` (KIP-405).

        If a crash interrupts this, the log is empty and `lacks_lineage`.
        """
        self._truncator.continue_above_copies(offset, log_start_offset, epochs, producers, now_ms)

    def skip_to(self, offset: int, *, now_ms: int) -> None:
        """Continue at `offset`, above the log's end, without records in between.

        Used for the copy of a log whose last records have been removed by compaction.
        """
        self._truncator.skip_to(offset, now_ms)

    def advance_log_start(self, offset: int) -> bool:
        """Raise the log start offset. Returns False if the log starts at or above `offset` already.

        Consumers cannot read the records below; the next retention deletes segments that hold nothing else. Raises
        KafkaError(OFFSET_OUT_OF_RANGE) beyond the log's end.
        """
        return retention.advance_log_start(self._state, offset)

    def delete_records(self, before_offset: int, high_watermark: int, *, now_ms: int) -> int:
        """Raise the log start offset to `before_offset` (-1: to the high watermark) and apply retention: DeleteRecords.

        Returns the log start offset. Raises KafkaError: OFFSET_OUT_OF_RANGE above the high watermark or below -1,
        POLICY_VIOLATION if the topic is only compacted.
        """
        return self._retention.delete_records(before_offset, high_watermark, now_ms)

    def enforce_retention(self, now_ms: int, high_watermark: int) -> int:
        """Apply retention and return the number of segments deleted.

        Their files are unlinked after file.delete.delay.ms, by `delete_pending_files`.
        """
        return self._retention.enforce_retention(now_ms, high_watermark)

    def explain_retention(self, high_watermark: int, now_ms: int) -> RetentionStatus:
        """Whether `enforce_retention` would delete the oldest segment now, and why or why not."""
        return retention.explain_retention(self._state, high_watermark, now_ms)

    def delete_pending_files(self, now_ms: int | None) -> int:
        """Unlink the `.deleted` files whose delay is over, or all of them if `now_ms` is None.

        Returns the number of segments whose files were unlinked.
        """
        return self._deleter.delete_pending_files(now_ms)

    # --- compaction

    @property
    def cleaned_offset(self) -> int:
        """Compaction has processed everything below this offset."""
        return self._state.cleaned_offset

    @cleaned_offset.setter
    def cleaned_offset(self, offset: int) -> None:
        self._state.cleaned_offset = offset

    @property
    def cleaning(self) -> OngoingCleaning | None:
        """The compaction pass under way, or None."""
        return self._state.cleaning

    @cleaning.setter
    def cleaning(self, job: OngoingCleaning | None) -> None:
        self._state.cleaning = job

    def abort_cleaning(self) -> None:
        """Abort the compaction pass that is under way."""
        self._state.abort_cleaning()

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment], *, now_ms: int) -> None:
        """Put compacted segments in the place of their sources; see `SegmentDeleter.replace_segments`."""
        self._deleter.replace_segments(new, old, now_ms=now_ms)

    # --- moving to another directory

    @property
    def moving(self) -> bool:
        """Whether the log is being copied to another directory, which suspends its compaction."""
        return self._state.moving

    @moving.setter
    def moving(self, moving: bool) -> None:
        self._state.moving = moving

    @property
    def snapshot_paths(self) -> list[str]:
        """The producer snapshots in the log's directory, the oldest first."""
        snapshots = self._state.snapshots
        return [snapshots.path(offset) for offset in snapshots.offsets]

    def relocate(self, path: str) -> None:
        """The log's directory has been renamed to `path`. No flush may be under way."""
        relocation.change_directory(self._state, self._flusher, self._deleter, path)

    def continue_from(self, original: Log) -> None:
        """Prepare this complete copy of `original` to take its place. Raises StorageError."""
        assert self.log_end_offset == original.log_end_offset, "the copy is not complete"
        with self._state.guarded():
            self.update_config(original.config)
            relocation.take_over_from(self._state, self._flusher, original._state)

    def exchange_producers(self, other: Log) -> None:
        """Exchange the producer state with the copy or original of this log, which ends at the same offset."""
        relocation.exchange_producers(self._state, other._state)
