"""Shell: a follower's side of replication: requests to the leader, and the effect of the leader's answers on the log.

The machine `rules/follower.py` decides; this module appends and truncates. Appends are writes into the page cache from
the event loop, as on a leader, and record batches stay the bytes that the leader sent. With flush.messages=1 a follower
sends its next fetch, which acknowledges the previous records, only after those records are synced.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.server.replication.local_replica import LocalReplica
from barnabas.server.replication.rules import follower as rules
from barnabas.server.replication.rules.follower import (
    BoundsRequest,
    FetchAnswer,
    FetchFrom,
    FollowerState,
    TieredRequest,
)
from barnabas.server.storage.errors import StorageError
from barnabas.server.tiering.values import CopiedState

log = get_logger("barnabas.server.replication")


class FollowerRole:
    """The role of a partition that another broker leads, or that has no leader."""

    def __init__(self, replica: LocalReplica, state: FollowerState, on_fetchable: Callable[[], None]) -> None:
        """`on_fetchable` is called when a flush has made more of the log durable, so that a fetch may be sent."""
        self.state = state
        self.lag = -1
        """The records by which the log was behind the leader's high watermark after the last fetch; -1 before the first
        fetch, as in Kafka's FetcherLagMetrics."""
        self._replica = replica
        self._context = replica.context
        self._on_fetchable = on_fetchable

    def on_durable(self) -> None:
        """A flush of the log has finished."""
        self._on_fetchable()

    @property
    def waits_for_flush(self) -> bool:
        """Whether the next fetch must wait for an fsync (flush.messages=1)."""
        target = self._replica.open_log
        return self._replica.flushes_first and target.durable_offset < target.log_end_offset

    def next_fetch(self, now_ms: int) -> FetchFrom | BoundsRequest | TieredRequest | None:
        """The next request to the leader. None while the follower waits for its retry time, a flush, or an image."""
        target = self._replica.open_log
        request = rules.next_request(self.state, target, now_ms)
        if isinstance(request, FetchFrom) and self.waits_for_flush:
            self._context.flush(target)
            return None
        return request

    def on_fetched(
        self, request: FetchFrom, answer: FetchAnswer, records: Buffer, now_ms: int, *, backoff_ms: int
    ) -> int:
        """Apply the leader's answer to the log. Returns the number of bytes appended. `now_ms` is wall clock time."""
        self.state, step = rules.on_answer(self.state, request, answer, self._replica.open_log)
        try:
            match step:
                case rules.AppendFetched():
                    return self._append(step, answer, records, now_ms)
                case rules.TruncateLog() | rules.RestartLog():
                    self._truncate(step, now_ms)
                case None:
                    pass
        except KafkaError as error:  # corrupt records or a disk error: the log is unchanged
            log.error("fetched records were not appended", partition=str(self._replica.name), reason=str(error))
            self.on_fetch_failed(request, ErrorCode.CORRUPT_MESSAGE, self._context.now_ms(), backoff_ms=backoff_ms)
        return 0

    def on_leader_bounds(
        self, request: BoundsRequest, leader_start: int, leader_end: int, now_ms: int, *, backoff_ms: int
    ) -> None:
        """Apply the leader's log start and end offsets after an OFFSET_OUT_OF_RANGE. `now_ms` is wall clock time."""
        self.state, step = rules.on_bounds(
            self.state,
            request,
            leader_start,
            leader_end,
            self._replica.open_log,
            self._context.now_ms(),
            backoff_ms=backoff_ms,
        )
        if step is not None:
            assert not isinstance(step, rules.AppendFetched)
            try:
                self._truncate(step, now_ms)
            except StorageError as error:
                log.error("the log could not be truncated", partition=str(self._replica.name), reason=str(error))
                self.on_fetch_failed(
                    request, ErrorCode.KAFKA_STORAGE_ERROR, self._context.now_ms(), backoff_ms=backoff_ms
                )

    def on_tiered(self, request: TieredRequest, leader_start: int, copied: CopiedState, now_ms: int) -> None:
        """Continue with the state at the end of the leader's copies. `now_ms` is wall clock time. Raises
        StorageError."""
        replica, target = self._replica, self._replica.open_log
        self.state, step = rules.on_tiered(self.state, request, leader_start, copied.end_offset, target)
        match step:
            case rules.RestartLog():
                self._truncate(step, now_ms)
            case rules.ContinueAbove(offset, log_start_offset):
                log.info(
                    "the replica continues above the leader's copies in the object store",
                    partition=str(replica.name),
                    end_offset=target.log_end_offset,
                    continues_at=offset,
                )
                target.continue_above_copies(
                    offset, log_start_offset, copied.leader_epochs, copied.producers, now_ms=now_ms
                )
                if replica.log is target:
                    self._set_high_watermark(offset)  # what was copied was committed
                    self._context.flush(target)
                    replica.mark_changed()
            case None:
                pass

    def on_fetch_failed(
        self, request: FetchFrom | BoundsRequest | TieredRequest, error: ErrorCode, now_ms: int, *, backoff_ms: int
    ) -> None:
        """Choose the next step after the leader has rejected `request`, or has not answered (REQUEST_TIMED_OUT).

        `now_ms` is a time of the monotonic clock `ReplicationContext.now_ms`.
        """
        self.state = rules.on_error(self.state, request, error, now_ms, backoff_ms=backoff_ms)

    # -- the log ---------------------------------------------------------------------------------------------------

    def _append(self, step: rules.AppendFetched, answer: FetchAnswer, records: Buffer, now_ms: int) -> int:
        replica, target = self._replica, self._replica.open_log
        size = 0
        if len(records):
            first = int.from_bytes(records[:8], "big")
            if first < target.log_end_offset == target.log_start_offset:  # the log start lies inside the first batch
                target.truncate_fully_and_start_at(first, target.log_start_offset, now_ms=now_ms)
            info = target.append_as_follower(records, now_ms=now_ms, leader_epoch=step.leader_epoch)
            size = 0 if info is None else info.size
        if size:
            replica.traffic.replication_bytes_in += size
            replica.add_unannounced(size)
            if replica.must_flush:
                self._context.flush(target)
        self.lag = max(answer.high_watermark - target.log_end_offset, 0)
        bounds = rules.after_append(answer, target, replica.high_watermark)
        if bounds.log_start_offset > target.log_start_offset:
            target.advance_log_start(bounds.log_start_offset)
        if replica.log is target:  # False if the epoch file could not be written: that takes the log offline silently
            self._set_high_watermark(bounds.high_watermark)
        return size

    def _truncate(self, step: rules.TruncateLog | rules.RestartLog, now_ms: int) -> None:
        """Remove the records that the leader does not have."""
        replica, target = self._replica, self._replica.open_log
        if rules.loses_committed(step, replica.high_watermark):
            write, why = log.error, "an unclean leader election lost committed records"
            if target.config.is_mirror:
                write, why = log.warning, "the source of the mirror does not have them; the leader has saved them"
            write(
                f"records below the high watermark are truncated: {why}",
                partition=str(replica.name),
                leader=replica.leader_id,
                leader_epoch=replica.leader_epoch,
                high_watermark=replica.high_watermark,
                truncated_to=step.offset,
            )
        elif isinstance(step, rules.RestartLog) and step.offset < target.log_start_offset:
            log.warning(
                "the log is empty and begins above the leader's: it begins again at the leader's log start, so that no "
                "records are missing",
                partition=str(replica.name), leader=replica.leader_id, log_start_offset=target.log_start_offset,
                leader_log_start_offset=step.offset,
            )  # fmt: skip
        elif step.offset != target.log_end_offset:
            log.info(
                "log truncated",
                partition=str(replica.name),
                end_offset=target.log_end_offset,
                truncated_to=step.offset,
            )
        if isinstance(step, rules.TruncateLog):
            target.truncate_to(step.offset, now_ms=now_ms)
        else:
            target.truncate_fully_and_start_at(step.offset, now_ms=now_ms)
        if replica.log is not target:
            return  # as in `_append`
        self._set_high_watermark(rules.after_truncation(target, replica.high_watermark).high_watermark)
        self._context.flush(target)  # `high_watermark_to_checkpoint` is bounded by the truncation until this flush
        replica.mark_changed()

    def _set_high_watermark(self, high_watermark: int) -> None:
        """Take the leader's high watermark, or the lower one that a truncation left."""
        replica = self._replica
        rose = high_watermark > replica.high_watermark
        replica.high_watermark = high_watermark
        if rose:
            replica.announce_high_watermark(replica.open_log.log_end_offset)
