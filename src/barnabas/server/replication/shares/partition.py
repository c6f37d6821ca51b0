"""Shell: one share partition at its leader: reads the log, writes state to the share coordinator, expires locks.

The machine `rules/share_partition.py` decides. Transitions that happen during a write are collected for the next write.
A busy share partition therefore writes as often as the share coordinator commits, not once per request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from typing import Any, Final

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.batch import iter_batches
from barnabas.server.replication.partition import Isolation, Partition, PartitionRead, SpecialTimestamp
from barnabas.server.replication.purgatory import COMPLETE_NOW, Purgatory
from barnabas.server.replication.rules.share_partition import SharePartitionState
from barnabas.server.replication.rules.share_values import (
    Ack,
    Acquired,
    AcquireRequest,
    LogRange,
    SharePartitionConfig,
    StateBatch,
)
from barnabas.server.replication.shares.ports import ShareGroupConfig, SharePersister
from barnabas.server.storage.values import AbortedTxn

log = get_logger("barnabas.server.replication")

READS_MAX: Final = 8
"""The maximum number of reads in one fetch. Another read is made if the previous one found no record to acquire."""
TIMER_MIN_S: Final = 0.05
"""The shortest time until the lock timer fires; locks that expire within it are handled together."""
_FENCED: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})
_UNSET: Final = -1


class ShareRead(Struct, frozen=True):
    """The part of a ShareFetch response that one share partition contributes."""

    data: Buffer
    acquired: list[Acquired]


NOTHING: Final = ShareRead(b"", [])


class SharePartition:
    """One share partition. It is created per leader epoch, and closed when the leadership or the group ends."""

    def __init__(
        self,
        group_id: str,
        partition: Partition,
        persister: SharePersister,
        config: Callable[[], ShareGroupConfig],
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        on_fenced: Callable[[SharePartition], None],
    ) -> None:
        """`spawn` starts a task in the owner's task group. `on_fenced` is called when the share coordinator or a newer
        leader epoch has fenced this share partition."""
        self.group_id = group_id
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.delayed_fetches = Purgatory()
        """ShareFetch requests that wait until records become available."""
        self.closed: KafkaError | None = None
        self._persister = persister
        self._config = config
        self._clock = clock
        self._spawn = spawn
        self._on_fenced = on_fenced
        self._state: SharePartitionState | None = None
        self._state_epoch = 0
        self._loading: asyncio.Future[KafkaError | None] | None = None
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        """(sequence, future) of each request that waits for a write, in ascending order."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing = False

    @property
    def state(self) -> SharePartitionState | None:
        """The delivery states, or None until they have been read from the share coordinator."""
        return self._state

    @property
    def config(self) -> SharePartitionConfig:
        return self._config().partition

    # -- load ----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Wait until the state has been read; concurrent callers share one read. Raises KafkaError."""
        if self.closed is not None:
            raise self.closed
        if self._state is not None:
            return
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_future()
            self._spawn(self._load(self._loading))
        error = await asyncio.shield(self._loading)
        if error is not None:
            raise error

    async def _load(self, done: asyncio.Future[KafkaError | None]) -> None:
        outcome: KafkaError | None = None
        try:
            await self._read_state()
        except KafkaError as error:
            outcome = error
            if error.code in _FENCED:
                self._fence()
        finally:
            self._loading = None
            done.set_result(outcome)

    async def _read_state(self) -> None:
        name = self.partition.name
        state_epoch, start, batches = await self._persister.read(
            self.group_id, self.partition.topic_id, name.partition, self.leader_epoch
        )
        self._state_epoch = state_epoch
        if start == _UNSET:
            start = await self._first_offset()
            # The offset is written at once, because "latest" would be another offset after a restart.
            await self._persist(start, 0, [])
        if self.closed is None:
            self._state = SharePartitionState(start, [StateBatch(*batch) for batch in batches])

    async def _first_offset(self) -> int:
        """The start offset of a new share partition (`share.auto.offset.reset`)."""
        config, partition = self._config(), self.partition
        isolation = config.share_isolation_level
        if config.lookback_ms is None:
            return (await partition.list_offset(config.share_auto_offset_reset, isolation=isolation)).offset
        found = await partition.list_offset(max(self._clock.now_ms() - config.lookback_ms, 0), isolation=isolation)
        if found.offset < 0:
            found = await partition.list_offset(SpecialTimestamp.LATEST, isolation=isolation)
        return found.offset

    # -- members -------------------------------------------------------------------------------------------------

    async def fetch(self, request: AcquireRequest, max_bytes: int, disk: Executor) -> ShareRead:
        """Acquire records for a member and read them. Raises KafkaError."""
        config = self._config()
        for _ in range(READS_MAX):
            state = self._require_state()
            storage = self.partition.log
            if storage is not None:
                state.on_log_start(storage.log_start_offset)
            if not state.may_acquire(config.partition):
                return NOTHING
            offset = state.next_fetch_offset()
            read = self.partition.read(offset, max_bytes, isolation=config.share_isolation_level)
            if read.pending is not None:
                read = await self.partition.read_from_disk(read, disk)
                self._require_state()
            elif read.remote is not None:
                if self.partition.is_remote_throttled:
                    return NOTHING
                read = await self.partition.read_remote(read)
                self._require_state()
            found = self._acquire(state, request, config, offset, read)
            if found.acquired or state.next_fetch_offset() == offset:
                return found
        return NOTHING

    def _acquire(
        self,
        state: SharePartitionState,
        request: AcquireRequest,
        config: ShareGroupConfig,
        offset: int,
        read: PartitionRead,
    ) -> ShareRead:
        committed_only = config.share_isolation_level is Isolation.READ_COMMITTED
        placed = batches_of(read.data, read.aborted or () if committed_only else ())
        ranges = [batch for _, _, batch in placed]
        acquired = state.acquire(request, config.partition, offset, ranges, self._clock.now_ms())
        if not acquired:
            return NOTHING
        self._watch_locks()
        first, last = acquired[0].first, acquired[-1].last
        begin = min(pos for pos, _, batch in placed if batch.last >= first)
        end = max(pos + size for pos, size, batch in placed if batch.first <= last)
        return ShareRead(memoryview(read.data)[begin:end], acquired)

    def acknowledge(self, member: str, acks: Sequence[Ack]) -> asyncio.Future[None] | None:
        """Acknowledge records. The future is done when the acknowledgement is written; None means no write is needed.

        Raises KafkaError, directly or through the future.
        """
        state = self._require_state()
        storage = self.partition.log
        if storage is not None:
            state.on_log_start(storage.log_start_offset)
        return self._wait_written(state.acknowledge(member, acks, self.config, self._clock.now_ms()))

    def release(self, member: str) -> asyncio.Future[None] | None:
        """Release the records of a member that closed its share session. The result is as in `acknowledge`."""
        if self._state is None or self.closed is not None:
            return None
        return self._wait_written(self._state.release(member, self.config))

    def _require_state(self) -> SharePartitionState:
        if self.closed is not None:
            raise self.closed
        if not self.partition.is_leader or self.partition.leader_epoch != self.leader_epoch:
            self._fence()
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._state is None:  # no member can have acquired a record yet
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                f"The state of {self.group_id}:{self.partition.name} has not been read yet; send the request again.",
            )
        return self._state

    # -- writing -------------------------------------------------------------------------------------------------

    def _wait_written(self, sequence: int | None) -> asyncio.Future[None] | None:
        if sequence is None:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((sequence, future))
        self._start_write()
        return future

    def _start_write(self) -> None:
        """Start writing the unwritten transitions, unless a write is in progress."""
        if not self._writing and self._state is not None and self._state.unwritten and self.closed is None:
            self._writing = True
            self._spawn(self._write_all(self._state))

    async def _write_all(self, state: SharePartitionState) -> None:
        try:
            while state.unwritten and self.closed is None:
                write = state.take_write()
                failure: KafkaError | None = None
                try:
                    await self._persist(write.start_offset, write.complete_count, write.batches)
                except KafkaError as error:
                    failure = error
                    log.warning(
                        "share state was not written; its records stay acquired until their locks expire",
                        partition=self,
                        error=error.code.name,
                    )
                state.settle(written=failure is None)
                self._complete(write.sequence, failure)
                if failure is not None and failure.code in _FENCED:
                    self._fence()
                self.delayed_fetches.notify(COMPLETE_NOW)
        finally:
            self._writing = False
            self._watch_locks()

    async def _persist(self, start_offset: int, complete_count: int, batches: list[StateBatch]) -> None:
        await self._persister.write(
            self.group_id,
            self.partition.topic_id,
            self.partition.name.partition,
            state_epoch=self._state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=start_offset,
            complete_count=complete_count,
            batches=batches,
        )

    def _complete(self, sequence: int, failure: KafkaError | None) -> None:
        while self._waiting and self._waiting[0][0] <= sequence:
            _, future = self._waiting.popleft()
            if future.done():
                continue
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)
                future.exception()  # marks the exception as retrieved: the client may have disconnected

    # -- locks ---------------------------------------------------------------------------------------------------

    def _watch_locks(self) -> None:
        """Set the timer for the first lock that expires. Later locks do not move the timer."""
        if self._timer is not None or self._state is None or self.closed is not None:
            return
        deadline = self._state.next_deadline_ms()
        if deadline is not None:
            delay = max((deadline - self._clock.now_ms()) / 1000, TIMER_MIN_S)
            self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._state is not None and self.closed is None:
            self._state.expire(self.config, self._clock.now_ms())
            self._start_write()
            self._watch_locks()

    # -- the end -------------------------------------------------------------------------------------------------

    def _fence(self) -> None:
        if self.closed is None:
            self.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            self._on_fenced(self)

    def close(self, reason: KafkaError) -> None:
        """Answer the waiting requests with `reason`. The share partition cannot be used afterwards."""
        self.closed = reason
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting:
            self._complete(self._waiting[-1][0], reason)
        self.delayed_fetches.notify(COMPLETE_NOW)

    def __str__(self) -> str:
        return f"{self.group_id}:{self.partition.name}"


def batches_of(data: Buffer, aborted: Sequence[AbortedTxn]) -> list[tuple[int, int, LogRange]]:
    """(position, size, offsets) of every complete batch; batches without records for members have `skip` set.

    The batches of an aborted transaction are skipped, from its first offset to its end marker.
    """
    placed: list[tuple[int, int, LogRange]] = []
    coming = deque(sorted(aborted, key=lambda txn: txn.first_offset))
    open_producers: set[int] = set()
    for pos, header in iter_batches(data):
        while coming and coming[0].first_offset <= header.last_offset:
            open_producers.add(coming.popleft().producer_id)
        skip = header.is_control
        if header.is_control:
            open_producers.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in open_producers:
            skip = True
        placed.append((pos, header.size, LogRange(header.base_offset, header.last_offset, skip)))
    return placed
