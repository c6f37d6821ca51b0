"""Shell: appending record batches to a log, as leader or as follower.

An append is one `writev` into the page cache, and is complete when the call returns. The order of the calls is
therefore the order of the records. If an append raises an exception, no record has been added to the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode
from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.errors import RecordValidationError
from barnabas.protocol.records.validate import (
    Checked,
    Origin,
    Validated,
    ValidationRules,
    validate_and_assign,
    validate_replicated,
)
from barnabas.server.storage.errors import DiskFullError, StorageError, TransientStorageError
from barnabas.server.storage.flushing import LogFlusher
from barnabas.server.storage.producers.markers import markers_of
from barnabas.server.storage.producers.state import ProducerAppend
from barnabas.server.storage.rolling import roll
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.state import LogState
from barnabas.server.storage.values import AppendInfo

log = get_logger("barnabas.server.storage")


class Appender:
    """Appends to one log."""

    __slots__ = ("_client_rules", "_flusher", "_other_rules", "_segment_size", "_state")

    def __init__(self, state: LogState, flusher: LogFlusher) -> None:
        self._state = state
        self._flusher = flusher
        self.on_config_changed()

    def on_config_changed(self) -> None:
        """Take over the state's config."""
        self._client_rules: ValidationRules | None = None
        self._other_rules: ValidationRules | None = None
        """The rules of the last origin that was not a client."""
        self._segment_size = self._state.config.segment_size

    def rules(self, origin: Origin) -> ValidationRules:
        """The rules by which batches of this origin are checked."""
        known = self._client_rules if origin is Origin.CLIENT else self._other_rules
        if known is not None and known.origin is origin:
            return known
        rules = self._state.config.validation_rules(self._state.topic_partition.topic, origin)
        if origin is Origin.CLIENT:
            self._client_rules = rules
        else:
            self._other_rules = rules
        return rules

    def append_as_leader(
        self, buf: Buffer, leader_epoch: int, now_ms: int, origin: Origin, checked: Checked | None = None
    ) -> AppendInfo:
        """Validate batches, assign offsets and the leader epoch, and append them; see `Log.append_as_leader`."""
        state = self._state
        if state.failure is not None:
            state.check_usable()
        valid = validate_and_assign(
            buf,
            (self._client_rules if origin is Origin.CLIENT else None) or self.rules(origin),
            first_offset=state.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            checked=checked,
        )
        batches = valid.batches
        if valid.size > self._segment_size:
            raise RecordValidationError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{valid.size} bytes do not fit a segment of {state.topic_partition}: segment.bytes is "
                f"{self._segment_size}",
            )
        prepared = None
        if _from_producers(batches):
            if origin is Origin.CLIENT:
                known = state.producers.duplicate_of(batches[0])
                if known is not None:
                    start = state.log_start_offset
                    return AppendInfo(known.first_offset, known.last_offset, known.timestamp, start, duplicate=True)
            prepared = state.producers.prepare(batches, markers_of(buf, batches), origin)
        rolled = self._write(valid, prepared, now_ms)
        return AppendInfo(
            valid.first_offset,
            valid.last_offset,
            valid.log_append_time_ms,
            state.log_start_offset,
            valid.size,
            last_leader_epoch=leader_epoch,
            rolled=rolled,
        )

    def append_as_follower(self, buf: Buffer, now_ms: int, leader_epoch: int | None) -> AppendInfo | None:
        """Append batches with the offsets and epochs that the leader gave them; see `Log.append_as_follower`."""
        state = self._state
        state.check_usable()
        checked = validate_replicated(buf, expected_offset=state.log_end_offset)
        if leader_epoch is not None:
            later = next((i for i, b in enumerate(checked.batches) if b.partition_leader_epoch > leader_epoch), None)
            if later is not None:
                kept = sum(b.size for b in checked.batches[:later])
                checked = validate_replicated(memoryview(buf)[:kept], expected_offset=state.log_end_offset)
        batches = checked.batches
        if not batches:
            return None
        prepared = None
        if _from_producers(batches):
            prepared = state.producers.prepare(batches, markers_of(buf, batches), None)
        rolled = self._write(checked, prepared, now_ms)
        return AppendInfo(
            batches[0].base_offset,
            checked.last_offset,
            -1,
            state.log_start_offset,
            checked.size,
            last_leader_epoch=batches[-1].partition_leader_epoch,
            rolled=rolled,
        )

    def _write(self, checked: Validated, prepared: ProducerAppend | None, now_ms: int) -> bool:
        """Write the batches and advance the state. Returns whether a new segment was begun."""
        state = self._state
        batches = checked.batches
        active = state.segments.active
        rolled = False
        try:
            if not active.ready:
                active.prepare_append(state.log_end_offset)
            if self._must_roll(active, checked, now_ms):
                active = roll(state, self._flusher, now_ms, batches[0].base_offset, checked.last_offset)
                rolled = True
            active.append(checked.parts, batches, checked.size)
        except TransientStorageError as e:
            if isinstance(e, DiskFullError):
                log.warning("records were not written", path=state.path, reason=str(e))
            raise
        except StorageError as e:
            state.fail(e)
            raise
        state.log_end_offset = end = checked.last_offset + 1
        producers = state.producers
        if prepared is None:
            producers.end_offset = end
        else:
            for txn in producers.commit(prepared, end):
                active.txn_index.append(txn)
        latest = state.epochs.latest
        if latest is None or latest.epoch != batches[-1].partition_leader_epoch:
            for header in batches:
                if header.partition_leader_epoch >= 0:
                    state.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if state.epochs.changed:
            state.save_epochs()
        return rolled

    def _must_roll(self, active: Segment, checked: Validated, now_ms: int) -> bool:
        """Whether the batches need a new segment (Kafka's LogSegment.shouldRoll).

        The reason is segment.bytes, segment.ms, full indexes, or an offset too large for the 32 bits of an index entry.
        """
        config = self._state.config
        size = active.size
        if size > self._segment_size - checked.size or not active.takes_offset(checked.last_offset):
            return True
        if size:
            first = active.first_timestamp
            waited = checked.max_timestamp - first if first is not None and first >= 0 else now_ms - active.created_ms
            if waited > config.segment_ms - active.jitter_ms:
                return True
        return active.indexes_full(config.segment_index_bytes, size)


def _from_producers(batches: Sequence[BatchHeader]) -> bool:
    """Whether a batch has a producer id, that is, comes from an idempotent or transactional producer."""
    for header in batches:  # noqa: SIM110 - `any` with a generator takes three times as long, on every append
        if header.producer_id >= 0:
            return True
    return False
