"""Shell: the clients for code without an event loop. One thin layer over the async core: an event loop in a thread.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("orders", b"hello", key=b"k").result()
    with Consumer(bootstrap_servers="localhost:9092", group_id="g") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            ...

Every method is the async one, run on that loop and waited for; nothing is done twice. A client may be used from several
threads. Callbacks (deliveries, rebalances) run on the loop's thread and must not call back into their client.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

from barnabas.client.admin import AsyncAdmin
from barnabas.client.consumer import AsyncConsumer
from barnabas.client.delivery import RecordPlace, unplaced
from barnabas.client.errors import ClientClosedError
from barnabas.client.interceptors import tell
from barnabas.client.producer import AsyncProducer, DeliveryCallback
from barnabas.client.share_consumer import AsyncShareConsumer
from barnabas.client.values import ConsumerRecord, Headers, PreparedTransaction, RecordMetadata
from barnabas.core.errors import BarnabasError, KafkaError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="_Closeable")

HANDED_OVER_MAX: Final = 2_000
"""Records on their way from the callers' threads to the loop; beyond that `send` waits. With more of them the garbage
collector would look at each several times, which is half of what handing over costs.
"""
DRAINED_AT_ONCE_MAX: Final = 500
"""So many of them are passed on before the loop may do something else: send what has become a batch, for one."""


class _Closeable(Protocol):
    async def close(self) -> None: ...


class LoopThread:
    """An event loop that runs in a daemon thread of its own (on uvloop where it is installed)."""

    def __init__(self, name: str = "barnabas-client") -> None:
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run `work` on the loop and wait for it. An interrupt while waiting cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("A blocking client was called from one of its own callbacks; that would wait for ever.")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[R, None]) -> Iterator[R]:
        """An async generator as a plain one; the next item is already being made while one is worked on."""

        async def next_item() -> tuple[bool, R | None]:
            try:
                return True, await anext(items)
            except StopAsyncIteration:
                return False, None

        ahead = asyncio.run_coroutine_threadsafe(next_item(), self.loop)
        try:
            while True:
                found, item = ahead.result()
                if not found:
                    return
                ahead = asyncio.run_coroutine_threadsafe(next_item(), self.loop)
                yield item  # type: ignore[misc]  # found says that it is an item
        finally:
            ahead.cancel()
            self.run(_finish(items))

    def close(self) -> None:
        """Stop the loop and end the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _finish(items: AsyncGenerator[Any, None]) -> None:
    """Close a generator once the step that was cancelled has let go of it."""
    for _ in range(1_000):
        try:
            await items.aclose()
            return
        except RuntimeError:
            await asyncio.sleep(0)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class _Blocking(Generic[C]):
    """An async client and the loop it lives on."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._thread = LoopThread()
        try:
            self._client: C = self._thread.run(_called(make))
        except BaseException:
            self._thread.close()
            raise
        self._closed = False

    def __repr__(self) -> str:
        return f"<blocking {self._client!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the client and its loop. May be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._thread.run(self._client.close())
        finally:
            self._thread.close()

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        if self._closed:
            work.close()
            raise ClientClosedError(f"This {type(self).__name__.lower()}")
        return self._thread.run(work)


async def _called(function: Callable[[], R]) -> R:
    return function()


async def _awaited(work: Awaitable[R]) -> R:
    return await work


def _wait(method: Callable[Concatenate[Any, P], Awaitable[R]]) -> Callable[Concatenate[_Blocking[Any], P], R]:
    """A method that runs the async one and waits for its result."""

    @functools.wraps(method)
    def blocking(self: _Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(_awaited(method(self._client, *args, **kwargs)))

    return blocking


def _call(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[_Blocking[Any], P], R]:
    """A method that runs the plain one on the loop."""

    @functools.wraps(method)
    def blocking(self: _Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(_called(lambda: method(self._client, *args, **kwargs)))

    return blocking


class Admin(_Blocking[AsyncAdmin]):
    """`AsyncAdmin`, blocking. The same arguments, answers and errors."""

    def __init__(self, config: Mapping[str, object] | None = None, **settings: Any) -> None:
        super().__init__(lambda: AsyncAdmin(config, **settings))

    create_topics = _wait(AsyncAdmin.create_topics)
    create_topic = _wait(AsyncAdmin.create_topic)
    delete_topics = _wait(AsyncAdmin.delete_topics)
    create_partitions = _wait(AsyncAdmin.create_partitions)
    list_topics = _wait(AsyncAdmin.list_topics)
    describe_topics = _wait(AsyncAdmin.describe_topics)
    delete_records = _wait(AsyncAdmin.delete_records)
    list_offsets = _wait(AsyncAdmin.list_offsets)
    describe_configs = _wait(AsyncAdmin.describe_configs)
    incremental_alter_configs = _wait(AsyncAdmin.incremental_alter_configs)
    alter_configs = _wait(AsyncAdmin.alter_configs)
    describe_cluster = _wait(AsyncAdmin.describe_cluster)
    describe_log_dirs = _wait(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = _wait(AsyncAdmin.alter_replica_log_dirs)
    describe_replica_log_dirs = _wait(AsyncAdmin.describe_replica_log_dirs)
    elect_leaders = _wait(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = _wait(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = _wait(AsyncAdmin.list_partition_reassignments)
    describe_quorum = _wait(AsyncAdmin.describe_quorum)
    add_raft_voter = _wait(AsyncAdmin.add_raft_voter)
    remove_raft_voter = _wait(AsyncAdmin.remove_raft_voter)
    unregister_broker = _wait(AsyncAdmin.unregister_broker)
    list_groups = _wait(AsyncAdmin.list_groups)
    describe_groups = _wait(AsyncAdmin.describe_groups)
    delete_groups = _wait(AsyncAdmin.delete_groups)
    list_group_offsets = _wait(AsyncAdmin.list_group_offsets)
    alter_group_offsets = _wait(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = _wait(AsyncAdmin.delete_group_offsets)
    reset_group_offsets = _wait(AsyncAdmin.reset_group_offsets)


class Consumer(_Blocking[AsyncConsumer]):
    """`AsyncConsumer`, blocking. The same arguments, answers and errors."""

    def __init__(self, config: Mapping[str, object] | None = None, **settings: Any) -> None:
        super().__init__(lambda: AsyncConsumer(config, **settings))

    subscribe = _call(AsyncConsumer.subscribe)
    assign = _call(AsyncConsumer.assign)
    unsubscribe = _wait(AsyncConsumer.unsubscribe)
    assignment = _call(AsyncConsumer.assignment)
    subscription = _call(AsyncConsumer.subscription)
    poll = _wait(AsyncConsumer.poll)
    poll_arrow = _wait(AsyncConsumer.poll_arrow)
    seek = _call(AsyncConsumer.seek)
    seek_to_beginning = _call(AsyncConsumer.seek_to_beginning)
    seek_to_end = _call(AsyncConsumer.seek_to_end)
    seek_to_committed = _call(AsyncConsumer.seek_to_committed)
    seek_to_timestamp = _wait(AsyncConsumer.seek_to_timestamp)
    position = _wait(AsyncConsumer.position)
    committed = _wait(AsyncConsumer.committed)
    commit = _wait(AsyncConsumer.commit)
    commit_nowait = _call(AsyncConsumer.commit_nowait)
    offsets_for_times = _wait(AsyncConsumer.offsets_for_times)
    beginning_offsets = _wait(AsyncConsumer.beginning_offsets)
    end_offsets = _wait(AsyncConsumer.end_offsets)
    partitions_for = _wait(AsyncConsumer.partitions_for)
    lag = _call(AsyncConsumer.lag)
    pause = _call(AsyncConsumer.pause)
    resume = _call(AsyncConsumer.resume)
    paused = _call(AsyncConsumer.paused)
    group_metadata = _call(AsyncConsumer.group_metadata)

    def __iter__(self) -> Generator[ConsumerRecord[Any, Any], None, None]:
        """Records for ever."""
        while not self._closed:
            yield from self.poll(1_000)

    def arrow(self, **options: Any) -> Generator[Any, None, None]:
        """RecordBatches for ever; the options of `poll_arrow`."""
        while not self._closed:
            batch = self.poll_arrow(1_000, **options)
            if batch is not None:
                yield batch


class ShareConsumer(_Blocking[AsyncShareConsumer]):
    """`AsyncShareConsumer`, blocking. The same arguments, answers and errors."""

    def __init__(self, config: Mapping[str, object] | None = None, **settings: Any) -> None:
        super().__init__(lambda: AsyncShareConsumer(config, **settings))

    subscribe = _call(AsyncShareConsumer.subscribe)
    subscription = _call(AsyncShareConsumer.subscription)
    unsubscribe = _wait(AsyncShareConsumer.unsubscribe)
    assignment = _call(AsyncShareConsumer.assignment)
    poll = _wait(AsyncShareConsumer.poll)
    acknowledge = _call(AsyncShareConsumer.acknowledge)
    commit = _wait(AsyncShareConsumer.commit)

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long the broker keeps a record for us; None before the first fetch."""
        return self._client.acquisition_lock_timeout_ms

    def __iter__(self) -> Generator[ConsumerRecord[Any, Any], None, None]:
        """Records for ever, each acknowledged when the poll after it is made (implicit mode)."""
        while not self._closed:
            yield from self.poll(1_000)


_ON_ITS_WAY: Final = unplaced()


class SentRecord(RecordPlace):
    """What becomes of a record that was handed over to the loop: `result()` waits for it."""

    __slots__ = ("_producer",)

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.batch = _ON_ITS_WAY
        self.index = 0

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is. Raises what went wrong, and TimeoutError when `timeout_s` is not enough."""
        return self._producer.wait_for(self, timeout_s)


_HandedOver = tuple[SentRecord, str, Any, Any, int | None, int | None, Headers, DeliveryCallback | None]
"""What `send` was given, in the order that `try_place` takes it."""


class Producer(_Blocking[AsyncProducer]):
    """`AsyncProducer`, blocking. `send` hands the record over to the loop's thread and returns at once."""

    def __init__(self, config: Mapping[str, object] | None = None, **settings: Any) -> None:
        self._handed_over: deque[_HandedOver] = deque()
        self._arrivals: dict[SentRecord, asyncio.Future[None]] = {}
        """For those who wait for the result of a record that is still on its way to the loop."""
        self._draining = False
        self._lock = threading.Lock()
        self._drained = asyncio.Event()
        super().__init__(lambda: AsyncProducer(config, **settings))

    send_and_wait = _wait(AsyncProducer.send_and_wait)
    send_arrow = _wait(AsyncProducer.send_arrow)
    partitions_for = _wait(AsyncProducer.partitions_for)
    init_transactions = _wait(AsyncProducer.init_transactions)
    begin_transaction = _call(AsyncProducer.begin_transaction)
    send_offsets_to_transaction = _wait(AsyncProducer.send_offsets_to_transaction)

    def prepare_transaction(self) -> PreparedTransaction:
        """Flush; then the transaction survives this producer, and can only be committed or aborted (KIP-939)."""
        self._run(self._until_drained())
        return self._run(self._client.prepare_transaction())

    complete_transaction = _wait(AsyncProducer.complete_transaction)

    @property
    def can_go_on(self) -> bool:
        """False once nothing helps but a new producer: fenced by a newer one, or not authorized."""
        return self._client.can_go_on

    @property
    def prepared_transaction(self) -> PreparedTransaction | None:
        """The transaction that waits to be committed or aborted."""
        return self._client.prepared_transaction

    def commit_transaction(self) -> None:
        """Flush, and commit. Raises TransactionAbortedError when a part failed; then abort."""
        self._run(self._until_drained())
        self._run(self._client.commit_transaction())

    def abort_transaction(self) -> None:
        """Drop what is queued, and abort; read_committed consumers will see none of it."""
        self._run(self._until_drained())
        self._run(self._client.abort_transaction())

    @contextmanager
    def transaction(self) -> Generator[Self, None, None]:
        """`with producer.transaction(): ...` commits at the end, and aborts when the block raises."""
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            if self._client.in_transaction:
                self.abort_transaction()
            raise

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> SentRecord:
        """Queue a record. Whatever goes wrong, serializing included, is in the result and given to `on_delivery`."""
        if self._closed:
            raise ClientClosedError("This producer")
        sent = SentRecord(self)
        handed_over = self._handed_over
        handed_over.append((sent, topic, value, key, partition, timestamp, headers, on_delivery))
        if not self._draining:
            self._start_draining()
        if len(handed_over) > HANDED_OVER_MAX:
            self._run(self._until_drained())
        return sent

    def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged or has failed."""
        self._run(self._flush(timeout_ms))

    def close(self) -> None:
        """Flush, then close."""
        if not self._closed:
            self._run(self._until_drained())
        super().close()

    def wait_for(self, sent: SentRecord, timeout_s: float | None) -> RecordMetadata:
        return self._run(self._result(sent, timeout_s))

    async def _result(self, sent: SentRecord, timeout_s: float | None) -> RecordMetadata:
        async with asyncio.timeout(timeout_s):
            if sent.batch is _ON_ITS_WAY:
                arrival = self._arrivals.get(sent)
                if arrival is None:
                    arrival = self._arrivals[sent] = self._thread.loop.create_future()
                await asyncio.shield(arrival)
            return await sent

    async def _flush(self, timeout_ms: float | None) -> None:
        await self._until_drained()
        await self._client.flush(timeout_ms)

    async def _until_drained(self) -> None:
        if self._handed_over or self._draining:
            await self._drained.wait()

    def _start_draining(self) -> None:
        with self._lock:
            if self._draining:
                return
            self._draining = True
        asyncio.run_coroutine_threadsafe(self._drain(), self._thread.loop)

    def _is_drained(self) -> bool:
        """On the loop: may this drain end? From here on who hands a record over starts a new one.

        `send` appends and then looks at the flag, this clears the flag and then looks at the records: without a lock,
        one of the two sees what the other has done.
        """
        self._draining = False
        if not self._handed_over:
            self._drained.set()
            return True
        with self._lock:
            taken_over, self._draining = self._draining, True
        return taken_over

    async def _drain(self) -> None:
        """On the loop: pass the records on, in the order in which they were handed over."""
        handed_over, arrivals = self._handed_over, self._arrivals
        try_place = self._client.try_place
        self._drained.clear()
        while handed_over or not self._is_drained():
            for _ in range(min(len(handed_over), DRAINED_AT_ONCE_MAX)):
                sent, topic, value, key, partition, timestamp, headers, on_delivery = record = handed_over.popleft()
                try:
                    if not try_place(sent, topic, value, key, partition, timestamp, headers, on_delivery):
                        await self._client.place(*record)
                except Exception as error:  # noqa: BLE001 - the caller is in another thread and gets it as a result
                    _refuse(record, error)
                if arrivals and sent in arrivals:
                    arrivals.pop(sent).set_result(None)
            await asyncio.sleep(0)


def _refuse(record: _HandedOver, error: Exception) -> None:
    """The record never comes into a batch."""
    sent, *_, on_delivery = record
    if not isinstance(error, BarnabasError):
        sent.batch = unplaced(KafkaError(-1, f"The record could not be sent: {error!r}"))
        return
    sent.batch = unplaced(error)
    if on_delivery is not None:
        tell(on_delivery, None, error)
