"""Shell: what a follower does with its log: asks, appends, cuts, begins again, as `rules/follower.py` says.

Appends are writes into the page cache from the loop, like a leader's. Batches stay the bytes that the leader sent. With
flush.messages=1 a follower asks for more, and thereby says that it has what it asked for before, only once that is on
its disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.server.replication.rules import follower as rules
from barnabas.server.replication.rules.follower import AskBounds, FetchAnswer, FetchFrom
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.log import Log

if TYPE_CHECKING:
    from barnabas.server.replication.partition import Partition

log = get_logger("barnabas.server.replication")


def next_fetch(self: Partition, now_ms: int) -> FetchFrom | AskBounds | None:
    """What to ask the leader now; None for nothing: until its retry time, its flush, or an image."""
    state, target = self.follower, self.log
    if state is None or target is None:
        return None
    asked = rules.next_request(state, target, now_ms)
    if isinstance(asked, FetchFrom) and self.flushes_first and target.durable_offset < target.log_end_offset:
        self.host.flush(target)
        return None
    return asked


def on_fetched(
    self: Partition, asked: FetchFrom, answer: FetchAnswer, records: Buffer, now_ms: int, *, backoff_ms: int
) -> int:
    """Carry out what the leader's answer asks for. How many bytes were appended; `now_ms` is the wall clock's."""
    state, target = self.follower, self.log
    if state is None or target is None:
        return 0
    self.follower, step = rules.on_answer(state, asked, answer, target)
    try:
        match step:
            case rules.Append():
                return _append(self, target, step, answer, records, now_ms)
            case rules.Truncate() | rules.Restart():
                _cut(self, target, step, now_ms)
            case None:
                pass
    except KafkaError as error:  # bad bytes, or the disk: the log is as it was
        log.error("fetched records were not appended", partition=str(self.name), reason=str(error))
        on_fetch_failed(self, asked, ErrorCode.CORRUPT_MESSAGE, self.host.now_ms(), backoff_ms=backoff_ms)
    return 0


def _append(self: Partition, target: Log, step: rules.Append, answer: FetchAnswer, records: Buffer, now_ms: int) -> int:
    size = 0
    if len(records):
        info = target.append_as_follower(records, now_ms=now_ms, leader_epoch=step.leader_epoch)
        size = 0 if info is None else info.size
    if size:
        self.add_untold(size)
        if self.must_flush:
            self.host.flush(target)
    bounds = rules.applied(answer, target, self.high_watermark)
    if bounds.log_start_offset > target.log_start_offset:
        target.advance_log_start(bounds.log_start_offset)
    if self.log is target:  # else its disk failed at the file of epochs, which no error tells: `fail` was called
        self.follow_watermark(bounds.high_watermark)
    return size


def _cut(self: Partition, target: Log, step: rules.Truncate | rules.Restart, now_ms: int) -> None:
    """Give up what the leader does not have."""
    if rules.loses_committed(step, self.high_watermark):
        log.error(
            "records below the high watermark are cut: they were committed, and an unclean election lost them",
            partition=str(self.name),
            leader=self.leader_id,
            leader_epoch=self.leader_epoch,
            high_watermark=self.high_watermark,
            cut_to=step.offset,
        )
    elif step.offset != target.log_end_offset:
        log.info("log cut", partition=str(self.name), end_offset=target.log_end_offset, cut_to=step.offset)
    if isinstance(step, rules.Truncate):
        target.truncate_to(step.offset, now_ms=now_ms)
    else:
        target.truncate_fully_and_start_at(step.offset, now_ms=now_ms)
    if self.log is not target:
        return  # as in `_append`
    self.follow_watermark(rules.cut(target, self.high_watermark).high_watermark)
    self.host.flush(target)  # until then its watermark is not remembered beyond the cut
    self.mark_changed()


def on_leader_bounds(
    self: Partition, asked: AskBounds, leader_start: int, leader_end: int, now_ms: int, *, backoff_ms: int
) -> None:
    """Where the leader's log begins and ends, after we asked for something outside; `now_ms` is the wall clock's."""
    state, target = self.follower, self.log
    if state is None or target is None:
        return
    self.follower, step = rules.on_bounds(
        state, asked, leader_start, leader_end, target, self.host.now_ms(), backoff_ms=backoff_ms
    )
    if step is not None:
        assert not isinstance(step, rules.Append)
        try:
            _cut(self, target, step, now_ms)
        except StorageError as error:
            log.error("the log could not be cut", partition=str(self.name), reason=str(error))
            on_fetch_failed(self, asked, ErrorCode.KAFKA_STORAGE_ERROR, self.host.now_ms(), backoff_ms=backoff_ms)


def on_fetch_failed(
    self: Partition, asked: FetchFrom | AskBounds, error: ErrorCode, now_ms: int, *, backoff_ms: int
) -> None:
    """The leader refused or was not reached; `now_ms` is the host's."""
    if self.follower is not None:
        self.follower = rules.on_error(self.follower, asked, error, now_ms, backoff_ms=backoff_ms)
