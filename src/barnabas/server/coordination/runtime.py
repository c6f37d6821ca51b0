"""Shell: the coordinator runtime: loads and unloads the partitions of one coordinator's topic, and serves requests.

There is one runtime per kind of coordinator (Kafka's CoordinatorRuntime). The node notifies the runtime when this node
becomes or stops being the leader of a partition of the coordinator's topic. The runtime loads a partition by replaying
its log into a `CoordinatorShard`, and then serves requests for it.

States of a partition:  loading ──► active ──► unloaded
                           └──────────────────► unloaded

A request for a loading partition fails with COORDINATOR_LOAD_IN_PROGRESS, for an unloaded one with NOT_COORDINATOR.

The loaded records may go beyond the high watermark that this node knows: the previous coordinator may have answered
clients from those records, but a new leader learns the high watermark only with its followers' next fetches. Until the
high watermark reaches the loaded records, reads of the committed state fail with COORDINATOR_LOAD_IN_PROGRESS;
otherwise a committed offset could appear to go back (KIP-207 requires the same of ListOffsets). Write operations work
on the newest state, and are answered when that state is committed.
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
from barnabas.server.coordination.context import CoordinatorContext, log
from barnabas.server.coordination.errors import error_for_client
from barnabas.server.coordination.operation import Deferred, WriteOperation
from barnabas.server.coordination.ports import LogRecord, Marker, PartitionWriter, ProducerIdAndEpoch
from barnabas.server.coordination.shard import CoordinatorShard
from barnabas.server.coordination.timeline import Timeline

S = TypeVar("S", bound=CoordinatorShard)
R = TypeVar("R")

RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
"""The limit for the decompressed size of a batch. A batch that exceeds this size is treated as corrupt."""

YIELD_BYTES: Final = 64 * 1024
"""While a partition loads, the event loop runs other tasks after each chunk of at least this size, because replaying
such a chunk takes milliseconds."""

_NOT_SERVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)


class RuntimeConfig(Struct, frozen=True):
    """The runtime's topic, and how long a write may wait to be committed."""

    topic: str
    write_timeout_ms: int


class CoordinatorRuntime(Generic[S]):
    """The partitions of one coordinator topic that this node leads."""

    def __init__(
        self,
        config: RuntimeConfig,
        writer: PartitionWriter,
        clock: Clock,
        rng: Rng,
        new_shard: Callable[[int, Timeline], S],
        after_replay: Callable[[S, WriteOperation], None] = lambda _shard, _op: None,
    ) -> None:
        """`after_replay` is called for a shard whose log was replayed, before `on_loaded`: `run_on_all` does not reach
        shards that are being loaded."""
        self._config = config
        self._writer = writer
        self._clock = clock
        self._rng = rng
        self._new_shard = new_shard
        self._loading: dict[int, CoordinatorContext[S]] = {}
        self._active: dict[int, CoordinatorContext[S]] = {}
        self._after_replay = after_replay
        self._tasks: asyncio.TaskGroup | None = None
        self._ended = False

    async def run(self) -> None:
        """Run the runtime's tasks until cancelled, then unload all partitions."""
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
        """Start loading the partition. Ignored if the partition is loaded for the same or a newer leader epoch."""
        if self._ended:
            return  # the node is shutting down
        context = self._loading.get(partition) or self._active.get(partition)
        if context is not None:
            if context.leader_epoch >= leader_epoch:
                return
            self._close(partition)
        assert self._tasks is not None, "run() must own the runtime before partitions are elected"
        timeline = Timeline()
        context = CoordinatorContext(
            TopicPartition(self._config.topic, partition),
            leader_epoch,
            self._new_shard(partition, timeline),
            timeline,
            self._writer,
            self._clock,
            self._rng,
            lambda: self._on_pending(partition),
        )
        self._loading[partition] = context
        self._tasks.create_task(self._load(partition, context), name=f"load {context.tp}")

    def _on_pending(self, partition: int) -> None:
        """Records of the partition are not committed yet. While the partition is being loaded, the end of the load
        looks for them."""
        context = self._active.get(partition)
        if context is not None:
            self._watch_commits(partition, context)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """Unload the partition, unless it is loaded for a newer leader epoch than `leader_epoch`."""
        context = self._loading.get(partition) or self._active.get(partition)
        if context is not None and (leader_epoch is None or leader_epoch >= context.leader_epoch):
            self._close(partition)

    def _close(self, partition: int) -> None:
        context = self._loading.pop(partition, None) or self._active.pop(partition, None)
        if context is not None:
            log.info("coordinator unloaded", partition=context.tp, leader_epoch=context.leader_epoch)
            context.close(ErrorCode.NOT_COORDINATOR)

    async def _load(self, partition: int, context: CoordinatorContext[S]) -> None:
        started = self._clock.monotonic()
        try:
            async for chunk in self._writer.read_log(context.tp):
                if context.closed:
                    return
                replay(context, chunk, self._writer.high_watermark(context.tp))
                if len(chunk) >= YIELD_BYTES:
                    await asyncio.sleep(0)  # reading from the page cache never suspends, so let other tasks run
            if context.closed:
                return
            high_watermark = self._writer.high_watermark(context.tp)
            context.loaded_offset = context.end_offset
            context.timeline.recording = True
            context.run(self._after_replay)
            context.run(lambda shard, op: shard.on_loaded(op))
        except Exception as error:  # noqa: BLE001 - a corrupt partition must not affect the other partitions
            if context.closed:
                return  # leadership was lost while loading, and the log may have been truncated
            log.exception("coordinator could not be loaded", partition=context.tp, error=error)
            if self._loading.get(partition) is context:
                self._close(partition)
            return
        del self._loading[partition]
        self._active[partition] = context
        context.on_committed(high_watermark)
        if context.pending:
            self._watch_commits(partition, context)
        log.info(
            "coordinator loaded",
            partition=context.tp,
            leader_epoch=context.leader_epoch,
            records_end=context.end_offset,
            took_ms=round((self._clock.monotonic() - started) * 1000),
        )
        if context.unknown_records:
            log.warning(
                "records of kinds that this version does not know were skipped, such as those of streams groups; this "
                "broker does not serve what they describe",
                partition=context.tp,
                records=context.unknown_records,
            )

    def _watch_commits(self, partition: int, context: CoordinatorContext[S]) -> None:
        """Start the task that waits for the high watermark of this partition to advance, unless it is running."""
        if not context.watching_commits and not context.closed and self._tasks is not None:
            context.watching_commits = True
            self._tasks.create_task(self._run_commit_watch(partition, context), name=f"commits of {context.tp}")

    async def _run_commit_watch(self, partition: int, context: CoordinatorContext[S]) -> None:
        try:
            while not context.closed and context.pending:
                await self._writer.wait_committed(
                    context.tp, context.waiting[0][0] if context.waiting else context.end_offset
                )
                if not context.closed:
                    context.on_committed(self._writer.high_watermark(context.tp))
        except KafkaError as error:
            if self._active.get(partition) is context:
                log.info("coordinator lost its partition", partition=context.tp, error=error.code.name)
                self._close(partition)
        finally:
            context.watching_commits = False

    # -- requests ------------------------------------------------------------------------------------------------

    def context(self, partition: int) -> CoordinatorContext[S]:
        """The active partition. Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        context = self._active.get(partition)
        if context is not None:
            return context
        if partition in self._loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    async def write(
        self, partition: int, decide: Callable[[S, WriteOperation], R | Deferred], *, may_defer: bool = False
    ) -> R:
        """Execute one operation on the partition's shard; returns the response when its records are committed.

        `may_defer` is for operations that may return DEFERRED. They have no write timeout, because the shard schedules
        timers of its own for such requests. Raises KafkaError, translated for the coordinator's clients. A write that
        times out may still be committed.
        """
        try:
            future = self.context(partition).submit(decide)
            response: R
            if future.done() or may_defer:
                response = await future
                return response
            # asyncio.timeout needs a task, but a connection runs a request without one until it first suspends.
            timer = asyncio.get_running_loop().call_later(self._config.write_timeout_ms / 1000, _time_out, future)
            try:
                response = await future
            finally:
                timer.cancel()
            return response
        except TimeoutError:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the write was not committed in time") from None
        except KafkaError as error:
            code = error_for_client(error.code)
            if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                log.warning(
                    "the records of a request could not be written",
                    partition=TopicPartition(self._config.topic, partition), error=error.code.name, reason=error.detail,
                )  # fmt: skip
            raise KafkaError(code, error.detail) from error

    def read(self, partition: int, query: Callable[[S], R]) -> R:
        """Query a shard's committed state. Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        context = self.context(partition)
        if not context.caught_up:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the loaded records are not known to be committed yet"
            )
        return query(context.shard)

    def active(self) -> Iterator[tuple[int, S]]:
        """The loaded shards, in ascending order of partition."""
        for partition in sorted(self._active):
            yield partition, self._active[partition].shard

    @property
    def is_loading(self) -> bool:
        """Whether the committed state of a partition cannot be read yet."""
        return bool(self._loading) or not all(context.caught_up for context in self._active.values())

    def run_on_all(self, act: Callable[[S, WriteOperation], None]) -> None:
        """Execute an operation on every loaded shard. An operation that fails is logged, and the others continue."""
        for partition in sorted(self._active):
            context = self._active[partition]
            try:
                context.run(act)
            except KafkaError as error:
                log.warning(
                    "the records of an operation could not be written", partition=context.tp, error=error.code.name
                )

    async def end_transaction(self, partition: int, marker: Marker, deadline: float | None = None) -> None:
        """Write a transaction's marker. Returns when it is committed.

        `deadline` is a time of the event loop. A marker that is not committed by then may still be committed later.
        Raises KafkaError with a code of WriteTxnMarkers, whose codes are about partitions instead of coordinators.
        """
        try:
            future = self.context(partition).append_marker(marker)
            if future.done() or deadline is None:
                await future
                return
            timer = asyncio.get_running_loop().call_at(deadline, _time_out, future)
            try:
                await future
            finally:
                timer.cancel()
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the marker was not committed in time") from None
        except KafkaError as error:
            if error.code in _NOT_SERVED:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.detail) from error
            raise


def replay(context: CoordinatorContext[S], chunk: Buffer, high_watermark: int) -> None:
    """Apply all batches of a chunk of the log to a loading shard."""
    shard = context.shard
    timeline = context.timeline
    for pos, header in iter_batches(chunk):
        timeline.recording = header.next_offset > high_watermark
        for record in iter_records(chunk, pos, header, limit_bytes=RECORD_BYTES_MAX):
            if record.key is None:
                continue
            if header.is_control:
                control = parse_control(record)
                if isinstance(control, EndTxn):
                    producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
                    shard.apply_marker(producer, committed=control.commit)
                continue
            decoded = shard.log_format.decode(LogRecord(record.key, record.value))
            if decoded is None:
                context.unknown_records += 1
            else:
                shard.apply(decoded, record.offset, header.producer_id if header.is_transactional else -1)
        context.end_offset = header.next_offset
        timeline.seal(header.next_offset)


def _time_out(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())
