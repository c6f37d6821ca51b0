"""Shell: one fetcher: copies partitions from one leader, by one Fetch at a time in a session (`ReplicaFetcherThread`).

    look ──► what each partition wants now (only those of which something has changed are asked)
         ──► bounds, where a partition was out of range
         ──► one Fetch for all the others ──► each answer onto its log ──► look

A partition that fails waits for replica.fetch.backoff.ms; the others go on. A call that is not answered makes all of
them wait. What answers mean is decided in `rules/follower.py`, by epochs and offsets: late ones change nothing.
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
from barnabas.server.replication.rules.fetch_session import FetchSessionHandler
from barnabas.server.replication.rules.follower import AskBounds, FetchAnswer, FetchFrom

log = get_logger("barnabas.server.replication")

_JITTER: Final = 0.2
_FLUSH_WAIT_MAX_S: Final = 1.0
"""How long a flush may hold up the other partitions; without them the fetch would park, and hold up the flushed one."""
_BOUNDS_MAX: Final = 500
"""Partitions in one ListOffsets."""


class ReplicaFetcher:
    """`run` copies until there is no partition left."""

    def __init__(
        self,
        leader_id: int,
        fetcher_id: int,
        channel: PeerChannel,
        context: ReplicationContext,
        settings: Callable[[], ReplicationConfig],
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.leader_id = leader_id
        self.fetcher_id = fetcher_id
        self.bytes_fetched = 0
        self._channel = channel
        self._context = context
        self._settings = settings
        self._throttle = context.follower_throttle
        self._clock = clock
        self._rng = rng
        self._partitions: dict[PartitionKey, Partition] = {}
        self._changed: dict[PartitionKey, None] = {}
        """What each of these wants next must be looked at."""
        self._later: dict[PartitionKey, int] = {}
        """When to look again (the host's milliseconds)."""
        self._wanted: dict[PartitionKey, FetchFrom | None] = {}
        """Changes that the leader has not been told of."""
        self._flushing: set[PartitionKey] = set()
        self._lagging: set[PartitionKey] = set()
        self._session: FetchSessionHandler[PartitionKey, FetchFrom] = FetchSessionHandler()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: Partition) -> None:
        """Copy it too, or look at it anew: its epoch, or what is on its disk, has changed."""
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
        while self._partitions:
            self._wake.clear()
            bounds = self._look()
            if bounds:
                await self._ask_bounds(bounds)
                continue
            if self._flushing and await self._woken(_FLUSH_WAIT_MAX_S):
                continue
            self._flushing.clear()
            wanted, self._wanted = self._wanted, {}
            ask = self._session.build(wanted)
            if self._session.asked:
                await self._fetch(FetchCall(*ask))
            else:
                self._session.reset()
                await self._woken(self._sleep_s())

    # -- what to ask -----------------------------------------------------------------------------------------------

    def _look(self) -> list[tuple[Partition, AskBounds]]:
        """Find out what the partitions want of which something has changed. Gives those that are out of range."""
        now_ms = self._context.now_ms()
        for key in [key for key, at in self._later.items() if at <= now_ms]:
            del self._later[key]
            self._changed[key] = None
        changed, self._changed = self._changed, {}
        wanted = self._wanted
        bounds: list[tuple[Partition, AskBounds]] = []
        for key in changed:
            partition = self._partitions.get(key)
            asked = None if partition is None else partition.next_fetch(now_ms)
            wanted[key] = None
            if partition is None:
                continue
            if isinstance(asked, FetchFrom):
                if self._is_held_back(key, partition, now_ms):
                    self._later[key] = now_ms + self._throttle.wait_ms(now_ms)
                else:
                    wanted[key] = asked
                    self._flushing.discard(key)
            elif asked is not None:
                bounds.append((partition, asked))
            elif partition.follower is not None and partition.follower.retry_at_ms > now_ms:
                self._later[key] = partition.follower.retry_at_ms
            elif partition.waits_for_flush:
                self._flushing.add(key)
        return bounds

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

    async def _woken(self, timeout_s: float | None) -> bool:
        """Until something has changed (True) or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    # -- asking ------------------------------------------------------------------------------------------------------

    async def _fetch(self, call: FetchCall) -> None:
        limits = self._settings()
        try:
            reply = await self._channel.fetch(self.leader_id, self.fetcher_id, call, limits)
        except KafkaError as error:
            self._unanswered(error)
            return
        if reply.error is not ErrorCode.NONE:
            self._session.reset()
            if reply.error not in _SESSION_LOST:
                self._unanswered(KafkaError(reply.error))
            return
        self._session.on_reply(reply.session_id)
        self._apply(reply)

    def _apply(self, reply: FetchReply) -> None:
        wall_ms = self._clock.now_ms()
        backoff_ms = self._backoff_ms()
        for fetched in reply.partitions:
            partition = self._partitions.get(fetched.key)
            asked = self._session.asked.get(fetched.key)
            if partition is None or asked is None:
                continue  # it has left since
            self._changed[fetched.key] = None
            if fetched.error is ErrorCode.NONE:
                self._take(partition, asked, fetched, wall_ms, backoff_ms)
            else:
                log.info(
                    "the leader refused a fetch",
                    partition=str(partition.name),
                    leader=self.leader_id,
                    error=fetched.error.name,
                )
                partition.on_fetch_failed(asked, fetched.error, self._context.now_ms(), backoff_ms=backoff_ms)

    def _take(self, partition: Partition, asked: FetchFrom, fetched: Fetched, wall_ms: int, backoff_ms: int) -> None:
        answer = FetchAnswer(
            fetched.high_watermark, fetched.log_start_offset, len(fetched.records) > 0, fetched.diverging
        )
        size = partition.on_fetched(asked, answer, fetched.records, wall_ms, backoff_ms=backoff_ms)
        if size:
            self.bytes_fetched += size
            self._session.to_back(fetched.key)
            name = partition.name
            if fetched.key in self._lagging and self._throttle.covers(name.topic, name.partition):
                self._throttle.take(size, self._context.now_ms())
        end = -1 if partition.log is None else partition.log.log_end_offset
        if fetched.high_watermark <= end:
            self._lagging.discard(fetched.key)
        else:
            self._lagging.add(fetched.key)

    def _unanswered(self, error: KafkaError) -> None:
        """The leader is not there, or not well: everything waits for a while."""
        self._session.reset()
        log.info(
            "a leader does not answer", leader=self.leader_id, partitions=len(self._session.asked), reason=str(error)
        )
        now_ms, backoff_ms = self._context.now_ms(), self._backoff_ms()
        for key, asked in self._session.asked.items():
            partition = self._partitions.get(key)
            if partition is not None:
                partition.on_fetch_failed(asked, ErrorCode.REQUEST_TIMED_OUT, now_ms, backoff_ms=backoff_ms)
                self._changed[key] = None

    async def _ask_bounds(self, bounds: list[tuple[Partition, AskBounds]]) -> None:
        """Partitions whose offset the leader does not have: they find out where to go on."""
        some, rest = bounds[:_BOUNDS_MAX], bounds[_BOUNDS_MAX:]
        backoff_ms = self._backoff_ms()
        wanted = [(partition.name, asked.leader_epoch) for partition, asked in some]
        try:
            found = await self._channel.list_bounds(self.leader_id, wanted, self._settings())
        except KafkaError:
            now_ms = self._context.now_ms()
            for partition, asked in some:
                partition.on_fetch_failed(asked, ErrorCode.REQUEST_TIMED_OUT, now_ms, backoff_ms=backoff_ms)
        else:
            now_ms = self._context.now_ms()
            for (partition, asked), (error, start, end) in zip(some, found, strict=True):
                if error is ErrorCode.NONE:
                    partition.on_leader_bounds(asked, start, end, self._clock.now_ms(), backoff_ms=backoff_ms)
                else:
                    partition.on_fetch_failed(asked, error, now_ms, backoff_ms=backoff_ms)
        for partition, _ in some + rest:
            self._changed[partition.topic_id, partition.name.partition] = None

    def _backoff_ms(self) -> int:
        return int(self._settings().replica_fetch_backoff_ms * (1.0 - _JITTER + 2 * _JITTER * self._rng.random()))


_SESSION_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The leader has given the slot away or has started again: ask for everything, at once."""
