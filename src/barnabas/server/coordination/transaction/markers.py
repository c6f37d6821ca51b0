"""Shell: sends the markers of prepared transactions to the partition leaders until all are written.

This is Kafka's TransactionMarkerChannelManager.

    put(job) ──► queue by leader ──► WriteTxnMarkers ──► response ──► no partition left: done(job)
                    ▲                                       │ retriable error, or no response
                    └──────────── after RETRY_MS ◄──────────┘

One request per broker is in flight at a time; markers queued in the meantime are sent together in the next request. A
job ends when each of its partitions has its marker or has been deleted, or when this node loses the leadership of the
job's partition of `__transaction_state` (`drop`); the new leader finds the job in its log. A partition is queued for
one broker at a time. When its leader changes (`on_leaders_changed`), the partition is queued for the new leader at
once, without waiting for the request to the old leader to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.protocol.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.server.coordination.transaction.ports import MarkerChannel, MarkerJob

log = get_logger("barnabas.server.coordination.transaction")

RETRY_MS: Final = 100
MARKERS_PER_REQUEST: Final = 1_000

_SUPERSEDED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""The partition has seen a newer epoch of this producer, so the transaction has already ended there."""


class _PendingJob:
    """A job with its remaining partitions."""

    __slots__ = ("at", "dropped", "job", "remaining", "retrying")

    def __init__(self, job: MarkerJob) -> None:
        self.job = job
        self.remaining = set(job.partitions)
        self.at: dict[TopicPartition, int] = {}
        """The broker for which each partition is queued or sent."""
        self.retrying = False
        self.dropped = False


class MarkerSender:
    """Sends the transaction markers of this node's coordinators; implements `MarkerQueue`. `coordinator_epoch` returns
    None for a partition of `__transaction_state` that this node does not lead."""

    def __init__(
        self,
        channel: MarkerChannel,
        coordinator_epoch: Callable[[int], int | None],
        done: Callable[[MarkerJob], None],
    ) -> None:
        self._channel = channel
        self._coordinator_epoch = coordinator_epoch
        self._done = done
        self._jobs: dict[tuple[int, str], _PendingJob] = {}
        self._outgoing: dict[int, list[tuple[_PendingJob, list[TopicPartition]]]] = {}
        self._busy: set[int] = set()
        self._tasks: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        """The number of prepared transactions with unwritten markers."""
        return len(self._jobs)

    async def run(self) -> None:
        """Run the sending tasks until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None

    def put(self, job: MarkerJob) -> None:
        key = (job.state_partition, job.transactional_id)
        earlier = self._jobs.pop(key, None)
        if earlier is not None:
            earlier.dropped = True
        pending = self._jobs[key] = _PendingJob(job)
        # deferred, because the state machine calls `put` in an operation, and the end of a job starts another operation
        asyncio.get_running_loop().call_soon(self._route_unless_dropped, pending)

    def drop(self, state_partition: int) -> None:
        for key in [key for key in self._jobs if key[0] == state_partition]:
            self._jobs.pop(key).dropped = True

    def on_leaders_changed(self) -> None:
        """Route the remaining partitions again: some leaders have changed."""
        for pending in list(self._jobs.values()):
            self._route_unless_dropped(pending)

    # -- sending ---------------------------------------------------------------------------------------------------

    def _route(self, pending: _PendingJob) -> None:
        """Queue the remaining partitions that are not queued or sent yet, by leader. Schedule a retry for those without
        a leader, and finish a job without remaining partitions."""
        by_leader: dict[int, list[TopicPartition]] = {}
        leaderless = False
        for tp in sorted(pending.remaining):
            leader = self._channel.leader(tp)
            if leader is None:
                pending.remaining.discard(tp)  # a deleted partition needs no marker
            elif leader < 0:
                leaderless = True
            elif pending.at.get(tp) != leader:
                pending.at[tp] = leader
                by_leader.setdefault(leader, []).append(tp)
        for leader, partitions in by_leader.items():
            self._outgoing.setdefault(leader, []).append((pending, partitions))
            if leader not in self._busy and self._tasks is not None:
                self._busy.add(leader)
                self._tasks.create_task(self._send_queued(leader), name=f"markers for broker {leader}")
        if not pending.remaining:
            self._finish(pending)
        elif leaderless:
            self._schedule_retry(pending)

    def _schedule_retry(self, pending: _PendingJob) -> None:
        if not pending.retrying:
            pending.retrying = True
            asyncio.get_running_loop().call_later(RETRY_MS / 1000, self._retry, pending)

    def _retry(self, pending: _PendingJob) -> None:
        pending.retrying = False
        self._route_unless_dropped(pending)

    def _route_unless_dropped(self, pending: _PendingJob) -> None:
        if not pending.dropped and self._tasks is not None:
            self._route(pending)

    async def _send_queued(self, leader: int) -> None:
        outgoing = self._outgoing[leader]
        try:
            while outgoing:
                batch = outgoing[:MARKERS_PER_REQUEST]
                del outgoing[:MARKERS_PER_REQUEST]
                sent = [entry for pending, tps in batch if (entry := self._still_due(leader, pending, tps)) is not None]
                if sent:
                    await self._send(leader, sent)
        finally:
            self._busy.discard(leader)
            self._outgoing.pop(leader, None)

    def _still_due(
        self, leader: int, pending: _PendingJob, partitions: list[TopicPartition]
    ) -> tuple[_PendingJob, list[TopicPartition], int] | None:
        """The job, those of `partitions` whose marker must still be sent to broker `leader`, and the coordinator epoch.
        None if there is no such partition, if the job was dropped, or if this node is no longer the coordinator."""
        epoch = None if pending.dropped else self._coordinator_epoch(pending.job.state_partition)
        left = [tp for tp in partitions if tp in pending.remaining and pending.at.get(tp) == leader]
        return None if epoch is None or not left else (pending, left, epoch)

    async def _send(self, leader: int, sent: list[tuple[_PendingJob, list[TopicPartition], int]]) -> None:
        request = WriteTxnMarkersRequest(markers=[_marker(p.job, tps, epoch) for p, tps, epoch in sent])
        failed: dict[_PendingJob, None] = {}
        try:
            response = await self._channel.write(leader, request)
        except KafkaError as error:
            log.info("transaction markers could not be sent; retrying", broker=leader, error=error.code.name)
            failed = {pending: None for pending, _, _ in sent}
        else:
            failed = self._handle_response(response, sent)
        for pending, partitions, _ in sent:
            for tp in partitions:
                if pending.at.get(tp) == leader:
                    del pending.at[tp]
            if pending in failed:
                if not pending.dropped:
                    self._schedule_retry(pending)
            elif not pending.remaining:
                self._finish(pending)

    def _handle_response(
        self, response: WriteTxnMarkersResponse, sent: list[tuple[_PendingJob, list[TopicPartition], int]]
    ) -> dict[_PendingJob, None]:
        """Remove the partitions with written markers from their jobs. Returns the jobs with failed markers. Results are
        in the order of the request."""
        if len(response.markers) != len(sent):
            log.error(
                "a WriteTxnMarkers response has the wrong number of results",
                requested=len(sent),
                results=len(response.markers),
            )
            return {pending: None for pending, _, _ in sent}
        failed: dict[_PendingJob, None] = {}
        for (pending, partitions, _), result in zip(sent, response.markers, strict=True):
            codes = {
                TopicPartition(topic.name, p.partition_index): error_code(p.error_code)
                for topic in result.topics
                for p in topic.partitions
            }
            for tp in partitions:
                code = codes.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR)
                if code is ErrorCode.NONE:
                    pending.remaining.discard(tp)
                elif code in _SUPERSEDED:
                    log.warning(
                        "a transaction marker was rejected because the partition has a newer producer epoch",
                        partition=tp,
                        producer_id=pending.job.producer_id,
                    )
                    pending.remaining.discard(tp)
                elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                    log.warning(
                        "transaction markers are dropped because another coordinator has taken over",
                        transactional_id=pending.job.transactional_id,
                    )
                    self._drop_job(pending)
                else:
                    failed[pending] = None
        return failed

    # -- completion ------------------------------------------------------------------------------------------------

    def _drop_job(self, pending: _PendingJob) -> None:
        pending.dropped = True
        key = (pending.job.state_partition, pending.job.transactional_id)
        if self._jobs.get(key) is pending:
            del self._jobs[key]

    def _finish(self, pending: _PendingJob) -> None:
        """Call `done`, which writes the completion to the log. If the write fails, retry later; but drop the job if
        this node is no longer the coordinator."""
        if pending.dropped:
            return
        try:
            self._done(pending.job)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_COORDINATOR:
                self._drop_job(pending)
            else:
                self._schedule_retry(pending)
            return
        self._drop_job(pending)


def _marker(job: MarkerJob, partitions: list[TopicPartition], coordinator_epoch: int) -> WritableTxnMarker:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, WritableTxnMarkerTopic(name=tp.topic)).partition_indexes.append(tp.partition)
    return WritableTxnMarker(
        producer_id=job.producer_id,
        producer_epoch=job.epoch,
        transaction_result=job.commit,
        topics=list(topics.values()),
        coordinator_epoch=coordinator_epoch,
        transaction_version=job.version,
    )
