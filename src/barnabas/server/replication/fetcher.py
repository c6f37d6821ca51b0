"""Shell: a replica fetcher: replicates partitions from one leader in one fetch session (`ReplicaFetcherThread`).

    collect requests of the changed partitions
      ├─► ListOffsets for the partitions that are out of range
      ├─► a task for each partition that continues above the leader's copies in the object store (`rebuilding.py`)
      └─► one Fetch for all the others ──► apply each response to its log ──► collect again

One request is in flight at a time. A partition with an error waits for replica.fetch.backoff.ms while the others
continue. A request without a response makes all its partitions wait. The machine `rules/follower.py` interprets the
responses by leader epoch and offset, so a late response changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.server.replication.config import ReplicationConfig
from barnabas.server.replication.context import ReplicationContext
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.ports import FetchCall, Fetched, FetchReply, PartitionKey, PeerChannel
from barnabas.server.replication.rebuilding import rebuild
from barnabas.server.replication.rules.fetch_session import FetchSessionHandler
from barnabas.server.replication.rules.follower import BoundsRequest, FetchAnswer, FetchFrom, TieredRequest

log = get_logger("barnabas.server.replication")

_JITTER: Final = 0.2
_FLUSH_WAIT_MAX_S: Final = 1.0
"""The longest time that a flush of one partition delays the fetch of the others. Without this wait, the leader would
delay the response to a fetch of only the others, and thereby the next fetch of the flushed partition."""
_BOUNDS_MAX: Final = 500
"""The maximum number of partitions in one ListOffsets request."""


class ReplicaFetcher:
    """Fetches partitions from one leader."""

    def __init__(
        self,
        leader_id: int,
        fetcher_id: int,
        channel: PeerChannel,
        context: ReplicationContext,
        config: Callable[[], ReplicationConfig],
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.leader_id = leader_id
        self.fetcher_id = fetcher_id
        self._channel = channel
        self._context = context
        self._config = config
        self._throttle = context.follower_throttle
        self._clock = clock
        self._rng = rng
        self._partitions: dict[PartitionKey, Partition] = {}
        self._changed: dict[PartitionKey, None] = {}
        """Partitions whose next request must be determined again."""
        self._later: dict[PartitionKey, int] = {}
        """Partition -> time (`ReplicationContext.now_ms`) at which its next request must be determined again."""
        self._wanted: dict[PartitionKey, FetchFrom | None] = {}
        """Changes of the fetch session that no request has carried yet; None removes the partition from the session."""
        self._flushing: set[PartitionKey] = set()
        """Partitions whose next request waits for an fsync."""
        self._lagging: set[PartitionKey] = set()
        """Partitions below the leader's high watermark: replication quotas apply to them."""
        self._session: FetchSessionHandler[PartitionKey, FetchFrom] = FetchSessionHandler()
        self._wake = asyncio.Event()
        self._rebuilding: dict[PartitionKey, asyncio.Task[None]] = {}
        """Partitions that read their state from the object store."""

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: Partition) -> None:
        """Fetch the partition, or determine its next request again after a change of leader epoch or a flush."""
        key = partition.topic_id, partition.name.partition
        if self._partitions.get(key) is not partition:
            self._lagging.add(key)
            self._partitions[key] = partition
        self._changed[key] = None
        self._wake.set()

    def remove(self, partition: Partition) -> None:
        key = partition.topic_id, partition.name.partition
        if self._partitions.get(key) is partition:
            del self._partitions[key]
            self._later.pop(key, None)
            self._flushing.discard(key)
            self._lagging.discard(key)
            self._changed[key] = None
            self._wake.set()

    async def run(self) -> None:
        """Fetch until no partition is left."""
        async with asyncio.TaskGroup() as group:
            await self._run(group)
            for task in self._rebuilding.values():
                task.cancel()

    async def _run(self, group: asyncio.TaskGroup) -> None:
        while self._partitions:
            self._wake.clear()
            bounds, tiered = self._collect_requests()
            for partition, request_of_state in tiered:
                self._rebuild(group, partition, request_of_state)
            if bounds:
                await self._request_bounds(bounds)
                continue
            if self._flushing and await self._wait_woken(_FLUSH_WAIT_MAX_S):
                continue
            self._flushing.clear()
            wanted, self._wanted = self._wanted, {}
            request = self._session.build(wanted)
            if self._session.requested:
                await self._fetch(FetchCall(*request))
            else:
                self._session.reset()
                await self._wait_woken(self._sleep_s())

    # -- requests -------------------------------------------------------------------------------------------------

    def _collect_requests(
        self,
    ) -> tuple[list[tuple[Partition, BoundsRequest]], list[tuple[Partition, TieredRequest]]]:
        """Determine the next request of each changed partition. Returns the partitions that are out of range, and those
        whose next records are in the object store."""
        now_ms = self._context.now_ms()
        for key in [key for key, at in self._later.items() if at <= now_ms]:
            del self._later[key]
            self._changed[key] = None
        changed, self._changed = self._changed, {}
        wanted = self._wanted
        bounds: list[tuple[Partition, BoundsRequest]] = []
        tiered: list[tuple[Partition, TieredRequest]] = []
        for key in changed:
            partition = self._partitions.get(key)
            request = None if partition is None else partition.next_fetch(now_ms)
            wanted[key] = None
            if partition is None:
                continue
            if isinstance(request, FetchFrom):
                if self._is_held_back(key, partition, now_ms):
                    self._later[key] = now_ms + self._throttle.wait_ms(now_ms)
                else:
                    wanted[key] = request
                    self._flushing.discard(key)
            elif isinstance(request, TieredRequest):
                tiered.append((partition, request))
            elif request is not None:
                bounds.append((partition, request))
            elif partition.follower is not None and partition.follower.retry_at_ms > now_ms:
                self._later[key] = partition.follower.retry_at_ms
            elif partition.waits_for_flush:
                self._flushing.add(key)
        return bounds, tiered

    def _is_held_back(self, key: PartitionKey, partition: Partition, now_ms: int) -> bool:
        name = partition.name
        return (
            key in self._lagging
            and self._throttle.covers(name.topic, name.partition)
            and self._throttle.is_used_up(now_ms)
        )

    def _sleep_s(self) -> float | None:
        if not self._later:
            return None
        return max((min(self._later.values()) - self._context.now_ms()) / 1000, 0.001)

    async def _wait_woken(self, timeout_s: float | None) -> bool:
        """Wait for a change of a partition. Returns False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    # -- responses ---------------------------------------------------------------------------------------------------

    async def _fetch(self, call: FetchCall) -> None:
        config = self._config()
        try:
            reply = await self._channel.fetch(self.leader_id, self.fetcher_id, call, config)
        except KafkaError as error:
            self._on_no_response(error)
            return
        if reply.error is not ErrorCode.NONE:
            self._session.reset()
            if reply.error not in _SESSION_LOST:
                self._on_no_response(KafkaError(reply.error))
            return
        self._session.on_reply(reply.session_id)
        self._apply(reply)

    def _apply(self, reply: FetchReply) -> None:
        wall_ms = self._clock.now_ms()
        backoff_ms = self._backoff_ms()
        for fetched in reply.partitions:
            partition = self._partitions.get(fetched.key)
            request = self._session.requested.get(fetched.key)
            if partition is None or request is None:
                continue  # the partition was removed after the request was sent
            self._changed[fetched.key] = None
            if fetched.error is ErrorCode.NONE:
                self._on_fetched(partition, request, fetched, wall_ms, backoff_ms)
            else:
                log.info(
                    "the leader rejected a fetch; it is sent again after replica.fetch.backoff.ms",
                    partition=str(partition.name),
                    leader=self.leader_id,
                    error=fetched.error.name,
                )
                partition.on_fetch_failed(request, fetched.error, self._context.now_ms(), backoff_ms=backoff_ms)

    def _on_fetched(
        self, partition: Partition, request: FetchFrom, fetched: Fetched, wall_ms: int, backoff_ms: int
    ) -> None:
        answer = FetchAnswer(
            fetched.high_watermark, fetched.log_start_offset, len(fetched.records) > 0, fetched.diverging
        )
        size = partition.on_fetched(request, answer, fetched.records, wall_ms, backoff_ms=backoff_ms)
        if size:
            self._session.to_back(fetched.key)
            name = partition.name
            if fetched.key in self._lagging and self._throttle.covers(name.topic, name.partition):
                self._throttle.take(size, self._context.now_ms())
        end = -1 if partition.log is None else partition.log.log_end_offset
        if fetched.high_watermark <= end:
            self._lagging.discard(fetched.key)
        else:
            self._lagging.add(fetched.key)

    def _on_no_response(self, error: KafkaError) -> None:
        """The leader did not respond, or rejected the whole request: all partitions wait for the backoff."""
        self._session.reset()
        log.info(
            "fetch failed; it is sent again after replica.fetch.backoff.ms",
            leader=self.leader_id,
            partitions=len(self._session.requested),
            reason=str(error),
        )
        now_ms, backoff_ms = self._context.now_ms(), self._backoff_ms()
        for key, request in self._session.requested.items():
            partition = self._partitions.get(key)
            if partition is not None:
                partition.on_fetch_failed(request, ErrorCode.REQUEST_TIMED_OUT, now_ms, backoff_ms=backoff_ms)
                self._changed[key] = None

    async def _request_bounds(self, bounds: list[tuple[Partition, BoundsRequest]]) -> None:
        """Request the leader's log start and end offsets for the partitions whose fetch offset is out of range."""
        some, rest = bounds[:_BOUNDS_MAX], bounds[_BOUNDS_MAX:]
        backoff_ms = self._backoff_ms()
        wanted = [(partition.name, request.leader_epoch) for partition, request in some]
        try:
            found = await self._channel.list_bounds(self.leader_id, wanted, self._config())
        except KafkaError:
            now_ms = self._context.now_ms()
            for partition, request in some:
                partition.on_fetch_failed(request, ErrorCode.REQUEST_TIMED_OUT, now_ms, backoff_ms=backoff_ms)
        else:
            now_ms = self._context.now_ms()
            for (partition, request), (error, start, end) in zip(some, found, strict=True):
                if error is ErrorCode.NONE:
                    partition.on_leader_bounds(request, start, end, self._clock.now_ms(), backoff_ms=backoff_ms)
                else:
                    partition.on_fetch_failed(request, error, now_ms, backoff_ms=backoff_ms)
        for partition, _ in some + rest:
            self._changed[partition.topic_id, partition.name.partition] = None

    def _rebuild(self, group: asyncio.TaskGroup, partition: Partition, request: TieredRequest) -> None:
        """Read the state of a partition from the object store, while the others continue."""
        key = partition.topic_id, partition.name.partition
        if key in self._rebuilding:
            return

        async def run() -> None:
            try:
                await rebuild(partition, request, self.leader_id, self._channel, self._config(), self._clock.now_ms)
            except KafkaError as error:
                log.warning(
                    "the replica cannot continue above the leader's copies; it is tried again",
                    partition=str(partition.name),
                    leader=self.leader_id,
                    reason=str(error),
                )
                partition.on_fetch_failed(request, error.code, self._context.now_ms(), backoff_ms=self._backoff_ms())
            finally:
                del self._rebuilding[key]
                self._changed[key] = None
                self._wake.set()

        self._rebuilding[key] = group.create_task(run(), name=f"rebuild {partition.name}")

    def _backoff_ms(self) -> int:
        return int(self._config().replica_fetch_backoff_ms * (1.0 - _JITTER + 2 * _JITTER * self._rng.random()))


_SESSION_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The leader has evicted the session or has restarted: the next request is full and is sent at once."""
