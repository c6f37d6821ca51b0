"""Shell: reads the partitions of one Fetch request, in passes, until `min_bytes` are found (Kafka's DelayedFetch).

A request without a session reads all its partitions in every pass. A request of a session reads the marked partitions
(`FetchSession`), so that the cost does not depend on the number of partitions without new records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.transport.ports import Peer
from barnabas.protocol.wire.messages.fetch import AbortedTransaction, EpochEndOffset, LeaderIdAndEpoch, PartitionData
from barnabas.server.broker.fetching.reads import FetchParams, FetchRead, read_for_consumer, read_for_follower
from barnabas.server.broker.fetching.session import PartitionKey, RequestedPartition
from barnabas.server.broker.fetching.session_cache import FetchContext
from barnabas.server.broker.handlers.data.port import DataPort
from barnabas.server.replication.partition import NEWS_S, Partition, PartitionRead
from barnabas.server.replication.purgatory import Purgatory, wait_for_bytes

_PARTITIONS_PER_TURN = 2048
"""Partitions that are read before other tasks of the event loop may run."""
_NOT_READ = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
"""Errors that Kafka finds before it reads a partition. The list of aborted transactions in the response is empty for
these errors, and null for all other errors."""
_LEADER_CHANGED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class DelayedFetch:
    """One Fetch request, whose partitions are read in one or more passes. `answers` holds the latest result of each
    partition that was read."""

    def __init__(
        self,
        port: DataPort,
        context: FetchContext,
        params: FetchParams,
        max_bytes: int,
        client: Peer,
        may_read: Callable[[str], bool] | None = None,
    ) -> None:
        """What a consumer reads is added to `client.usage`. `may_read` is None if the client may read every topic."""
        self._client = client
        self._may_read = may_read
        self.answers: dict[PartitionKey, PartitionData] = {}
        self._port = port
        self._replication = port.partitions.context
        self._context = context
        self._session = context.session
        self._params = params
        self._from_follower = params.from_follower
        self._max_bytes = max_bytes
        self._passes = 0
        self._size = 0
        """Bytes of records in the latest pass. A partition that returned data is read again by the next pass."""
        self._sent: list[tuple[Partition, int]] = []
        """The bytes of records of each partition in the latest pass."""
        self.errors: list[int] | None = None
        """The errors of partitions; None if there are none."""
        self._remote: list[tuple[Partition, PartitionKey, PartitionRead]] = []
        """The reads of the latest pass that need the object store."""
        self._reserved = 0
        """The bytes that the reads in `_remote` may return."""
        self._throttled_size = 0
        """Bytes of records in the latest pass that count against leader.replication.throttled.rate."""
        self._must_complete = False
        """The client must get an error, a diverging epoch or a preferred read replica at once."""
        self._purgatories: list[Purgatory] = []
        """The purgatories of the partitions of the latest pass, if there is no session."""

    async def run(self, min_bytes: int, deadline: float) -> None:
        """Read, wait and read again, until there are `min_bytes`, a reason to respond at once, or no time left."""
        session, params = self._session, self._params
        if session is None:
            await self._run(min_bytes, deadline)
        else:
            session.on_request(params.reader, self._replication.now_ms(), reads_all=params.reads_all)
            session.requests_in_progress += 1
            try:
                await self._run(min_bytes, deadline)
            finally:
                session.requests_in_progress -= 1
        usage = self._client.usage
        for partition, size in self._sent:
            if self._from_follower:
                partition.traffic.replication_bytes_out += size
            else:
                partition.traffic.bytes_out += size
                used = usage.partitions.get(partition) or usage.start(self._client, partition)
                used.bytes_out += size
        if self._throttled_size:
            self._replication.leader_throttle.take(self._throttled_size, self._replication.now_ms())

    async def _run(self, min_bytes: int, deadline: float) -> None:
        await self._read_all()
        min_bytes = min(min_bytes, max(self._max_bytes, 1))
        loop = asyncio.get_running_loop()
        if self._is_complete(min_bytes) or self._context.is_empty or loop.time() >= deadline:
            return
        if self._has_new_offsets():
            deadline = min(deadline, loop.time() + NEWS_S)
        while not self._is_complete(min_bytes) and loop.time() < deadline:
            await self._wait(min_bytes - self._size, deadline)
            await self._read_all()
            if self._has_new_offsets():
                break

    async def _wait(self, missing: int, deadline: float) -> None:
        """Wait until about `missing` more bytes can be read."""
        self._replication.traffic.waiting_fetches += 1
        try:
            if self._session is None:
                await wait_for_bytes(self._purgatories, missing, deadline)
            else:
                await self._session.wait(missing, deadline)
        finally:
            self._replication.traffic.waiting_fetches -= 1

    def _is_complete(self, min_bytes: int) -> bool:
        return self._size >= min_bytes or self._must_complete

    def _has_new_offsets(self) -> bool:
        """Whether a follower must get a new high watermark or log start offset soon, even if there are no records."""
        session = self._session
        if session is None or not self._from_follower:
            return False
        return any(session.has_new_offsets(key, data) for key, data in self.answers.items())

    async def _read_all(self) -> None:
        """Make one pass over the partitions, in order. Once the pass has read `max_bytes`, the remaining partitions are
        read without records."""
        self._passes += 1
        self._size = self._throttled_size = self._reserved = 0
        self._sent = []
        self._remote = []
        self._must_complete = self._session is not None and self._session.closed
        self._purgatories = []
        if self._session is not None:
            self._session.begin_pass()
        partitions, may_read = self._port.partitions, self._may_read
        for count, (key, requested) in enumerate(self._context.to_read(), 1):
            if count % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            topic, index = key
            name = topic if isinstance(topic, str) else partitions.topic_name(topic)
            try:
                if name is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                if may_read is not None and not may_read(name):
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                self.answers[key] = await self._read(partitions.require(name, index), key, requested)
            except KafkaError as error:
                self._fail(key, name, error.code)
        if self._remote:
            # All of them at once, for remote.fetch.max.wait.ms. What the store has not delivered by then is still
            # fetched, so that the client's next request finds it.
            await asyncio.gather(*(self._read_remote(*remote) for remote in self._remote))
            self._must_complete = True

    def _fail(self, key: PartitionKey, name: str | None, code: ErrorCode, *, is_counted: bool = False) -> None:
        self._must_complete = True
        self._count_failure(name, code, is_counted=is_counted)
        self.answers[key] = _error_answer(self._port, name, key[1], code)

    async def _read(self, partition: Partition, key: PartitionKey, requested: RequestedPartition) -> PartitionData:
        found, purgatory, at_end, throttled, on_caught_up = self._read_at_once(partition, requested)
        if self._session is None:
            self._purgatories.append(purgatory)
        else:
            self._session.on_read(key, requested, purgatory, on_caught_up, at_end=at_end)
        if found.pending is not None:  # not in the page cache: an executor reads, so that the event loop does not wait
            self._replication.traffic.disk_reads += 1
            found = await partition.read_from_disk(found, self._port.disk)
        elif found.remote is not None and not partition.is_remote_throttled:
            self._remote.append((partition, key, found))
            self._reserved += found.remote.max_bytes
        if found.diverging is not None or found.preferred_read_replica >= 0:
            self._must_complete = True
        size = len(found.data)
        if size:
            self._sent.append((partition, size))
        if self._passes == 1:
            partition.traffic.reads += 1
        self._size += size
        if throttled:
            self._throttled_size += size
        return _answer(key[1], found)

    async def _read_remote(self, partition: Partition, key: PartitionKey, read: PartitionRead) -> None:
        try:
            found = await partition.read_remote(read)
        except KafkaError as error:
            # the first pass has counted the read, which was begun
            self._fail(key, partition.name.topic, error.code, is_counted=self._passes == 1)
            return
        self._sent.append((partition, len(found.data)))
        self._size += len(found.data)
        self.answers[key] = _answer(key[1], found)

    def _count_failure(self, name: str | None, code: ErrorCode, *, is_counted: bool) -> None:
        """Count a read that failed. `is_counted` says that it is already among the topic's reads."""
        if self.errors is None:
            self.errors = []
        self.errors.append(code)
        known = self._replication.traffic.topics.get(name or "")
        if known is not None:
            known.reads += not is_counted
            known.failed_reads += 1

    def _read_at_once(self, partition: Partition, requested: RequestedPartition) -> FetchRead:
        params, left = self._params, self._max_bytes - self._size - self._reserved
        max_bytes = min(requested.max_bytes, left) if left > 0 else 0
        min_one_batch = self._size == 0 and not self._remote
        if self._from_follower:
            return read_for_follower(
                self._replication,
                params,
                partition,
                requested,
                max_bytes,
                min_one_batch=min_one_batch,
                first_pass=self._passes == 1,
            )
        return read_for_consumer(params, partition, requested, max_bytes, min_one_batch=min_one_batch)


def _answer(index: int, found: PartitionRead) -> PartitionData:
    answer = PartitionData(
        partition_index=index,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=found.preferred_read_replica,
        records=found.data,
    )
    if found.aborted is not None:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset) for txn in found.aborted
        ]
    if found.diverging is not None:
        answer.diverging_epoch = EpochEndOffset(
            epoch=found.diverging.leader_epoch, end_offset=found.diverging.end_offset
        )
    return answer


def _error_answer(port: DataPort, name: str | None, index: int, code: ErrorCode) -> PartitionData:
    answer = PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=[] if code in _NOT_READ else None,
        records=b"",
    )
    if code in _LEADER_CHANGED and name is not None:
        state = port.metadata.image.topics.partition(name, index)
        if state is not None:
            answer.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
    return answer
