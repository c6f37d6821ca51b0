"""Shell: the coordinator runtime: which partitions this node owns, their loading, and the way in.

One runtime per kind of coordinator. The node tells it which partitions of the coordinator's topic this node leads; each
is loaded by replaying its log, and then answers. The machine inside (a `Shard`) never sees any of this.

States of a partition:  loading ──► active ──► (gone)     loading answers COORDINATOR_LOAD_IN_PROGRESS,
                           └──────────────────► (gone)     gone answers NOT_COORDINATOR.

What was loaded may be newer than what this node knows to be committed: the coordinator before has told its clients of
it, but the high watermark comes to a new leader only with its followers' next fetches. Until then nobody is shown the
committed state, or an offset that was committed would seem to go back (KIP-207 says the same of ListOffsets). Turns
work on the newest state, and are answered when that is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.rng import Rng
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.records.control import EndTxn, parse_control
from barnabas.server.coordination.errors import error_for_client
from barnabas.server.coordination.host import ShardHost, log
from barnabas.server.coordination.ports import LogRecord, Marker, PartitionWriter, Producer
from barnabas.server.coordination.shard import Shard
from barnabas.server.coordination.timeline import Timeline
from barnabas.server.coordination.turn import Parked, Turn

S = TypeVar("S", bound=Shard)
R = TypeVar("R")

RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
"""A batch of a coordinator's topic that decompresses to more than this is damage, not data."""

BREATH_BYTES: Final = 64 * 1024
"""After a chunk of a log that is at least so big others may run; it takes milliseconds to replay."""

_ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)


class RuntimeConfig(Struct, frozen=True):
    """What the runtime must know: its topic, and how long a write may wait for its commit."""

    topic: str
    write_timeout_ms: int = 5_000


class CoordinatorRuntime(Generic[S]):
    """All partitions of one coordinator topic on this node."""

    def __init__(
        self,
        config: RuntimeConfig,
        writer: PartitionWriter,
        clock: Clock,
        rng: Rng,
        new_shard: Callable[[int, Timeline], S],
    ) -> None:
        self._config = config
        self._writer = writer
        self._clock = clock
        self._rng = rng
        self._new_shard = new_shard
        self._loading: dict[int, ShardHost[S]] = {}
        self._active: dict[int, ShardHost[S]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._ended = False

    async def run(self) -> None:
        """Own the tasks until cancelled; then let go of all partitions."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None
            self._ended = True
            for partition in [*self._loading, *self._active]:
                self._close(partition)

    # -- leadership ----------------------------------------------------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Begin to load the partition. An election of the same or an older epoch is old news."""
        if self._ended:
            return  # the node is stopping
        host = self._loading.get(partition) or self._active.get(partition)
        if host is not None:
            if host.leader_epoch >= leader_epoch:
                return
            self._close(partition)
        assert self._tasks is not None, "run() must own the runtime before partitions are elected"
        timeline = Timeline()
        host = ShardHost(
            TopicPartition(self._config.topic, partition),
            leader_epoch,
            self._new_shard(partition, timeline),
            timeline,
            self._writer,
            self._clock,
            self._rng,
        )
        self._loading[partition] = host
        self._tasks.create_task(self._load(partition, host), name=f"load {host.tp}")

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """Let go of the partition, unless this node has been elected again since (`leader_epoch` is older)."""
        host = self._loading.get(partition) or self._active.get(partition)
        if host is not None and (leader_epoch is None or leader_epoch >= host.leader_epoch):
            self._close(partition)

    def _close(self, partition: int) -> None:
        host = self._loading.pop(partition, None) or self._active.pop(partition, None)
        if host is not None:
            log.info("coordinator unloaded", partition=host.tp, leader_epoch=host.leader_epoch)
            host.close(ErrorCode.NOT_COORDINATOR)

    async def _load(self, partition: int, host: ShardHost[S]) -> None:
        started = self._clock.monotonic()
        try:
            async for chunk in self._writer.read_log(host.tp):
                if host.closed:
                    return
                replay(host, chunk, self._writer.high_watermark(host.tp))
                if len(chunk) >= BREATH_BYTES:
                    await asyncio.sleep(0)  # what is in memory is read without waiting: let others have their turn
            if host.closed:
                return
            high_watermark = self._writer.high_watermark(host.tp)
            host.loaded_offset = host.end_offset
            host.timeline.recording = True
            host.run(lambda shard, turn: shard.on_loaded(turn))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with this partition must not stop the others
            if host.closed:
                return  # it was deposed meanwhile, and its log may have been cut under its feet
            log.exception("coordinator could not be loaded", partition=host.tp, error=error)
            if self._loading.get(partition) is host:
                self._close(partition)
            return
        del self._loading[partition]
        self._active[partition] = host
        host.on_pending = lambda: self._follow(partition, host)
        host.on_committed(high_watermark)
        if host.pending:
            self._follow(partition, host)
        log.info(
            "coordinator loaded",
            partition=host.tp,
            leader_epoch=host.leader_epoch,
            records_end=host.end_offset,
            took_ms=round((self._clock.monotonic() - started) * 1000),
        )

    def _follow(self, partition: int, host: ShardHost[S]) -> None:
        """Have a task wait for the commits of this leadership, if none does."""
        if not host.followed and not host.closed and self._tasks is not None:
            host.followed = True
            self._tasks.create_task(self._follow_commits(partition, host), name=f"commits of {host.tp}")

    async def _follow_commits(self, partition: int, host: ShardHost[S]) -> None:
        try:
            while not host.closed and host.pending:
                await self._writer.wait_committed(host.tp, host.waiting[0][0] if host.waiting else host.end_offset)
                if not host.closed:
                    host.on_committed(self._writer.high_watermark(host.tp))
        except KafkaError as error:
            if self._active.get(partition) is host:
                log.info("coordinator lost its partition", partition=host.tp, error=error.code.name)
                self._close(partition)
        finally:
            host.followed = False

    # -- the way in ----------------------------------------------------------------------------------------------

    def host(self, partition: int) -> ShardHost[S]:
        """The active partition. Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        host = self._active.get(partition)
        if host is not None:
            return host
        if partition in self._loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    async def write(self, partition: int, decide: Callable[[S, Turn], R | Parked], *, parks: bool = False) -> R:
        """One turn of the partition's shard; returns its response once its records are committed.

        `parks`: the machine may keep the ticket for as long as it likes, and sees to the time-outs itself.
        Raises KafkaError, translated for the coordinator's clients. A write that times out may still be committed.
        """
        try:
            future = self.host(partition).submit(decide)
            response: R
            if future.done() or parks:
                response = await future
                return response
            # No asyncio.timeout: the connection runs a request up to its first wait without a task (net.eager).
            timer = asyncio.get_running_loop().call_later(self._config.write_timeout_ms / 1000, _give_up, future)
            try:
                response = await future
            finally:
                timer.cancel()
            return response
        except TimeoutError:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the write was not committed in time") from None
        except KafkaError as error:
            raise KafkaError(error_for_client(error.code), error.detail) from error

    def read(self, partition: int, query: Callable[[S], R]) -> R:
        """Look at a shard's committed state. Raises KafkaError as `host` does."""
        host = self.host(partition)
        if not host.caught_up:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "what was loaded is not known to be committed yet")
        return query(host.shard)

    def active(self) -> Iterator[tuple[int, S]]:
        """The loaded shards, in order of partition."""
        for partition in sorted(self._active):
            yield partition, self._active[partition].shard

    @property
    def is_loading(self) -> bool:
        """Some partition of this node cannot show its committed state yet."""
        return bool(self._loading) or not all(host.caught_up for host in self._active.values())

    def each(self, act: Callable[[S, Turn], None]) -> None:
        """Run a turn of every loaded shard; a refused one is logged, the others go on."""
        for partition in sorted(self._active):
            host = self._active[partition]
            try:
                host.run(act)
            except KafkaError as error:
                log.warning("a turn's records could not be written", partition=host.tp, error=error.code.name)

    async def end_transaction(self, partition: int, marker: Marker, deadline: float | None = None) -> None:
        """Write a transaction's marker; `deadline` is a time of the loop, after which it may still be committed.

        Raises KafkaError with the code that WriteTxnMarkers answers, which knows partitions and not coordinators.
        """
        try:
            future = self.host(partition).append_marker(marker)
            if future.done() or deadline is None:
                await future
                return
            timer = asyncio.get_running_loop().call_at(deadline, _give_up, future)
            try:
                await future
            finally:
                timer.cancel()
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the marker was not committed in time") from None
        except KafkaError as error:
            if error.code in _ELSEWHERE:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.detail) from error
            raise


def replay(host: ShardHost[S], chunk: Buffer, high_watermark: int) -> None:
    """Apply all batches of a chunk of the log to a shard that is loading."""
    shard = host.shard
    timeline = host.timeline
    for pos, header in iter_batches(chunk):
        timeline.recording = header.next_offset > high_watermark
        for record in iter_records(chunk, pos, header, limit_bytes=RECORD_BYTES_MAX):
            if record.key is None:
                continue
            if header.is_control:
                control = parse_control(record)
                if isinstance(control, EndTxn):
                    producer = Producer(header.producer_id, header.producer_epoch)
                    shard.apply_marker(producer, committed=control.commit)
                continue
            decoded = shard.log_format.decode(LogRecord(record.key, record.value))
            if decoded is not None:
                shard.apply(decoded, record.offset, header.producer_id if header.is_transactional else -1)
        host.end_offset = header.next_offset
        timeline.seal(header.next_offset)


def _give_up(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())
