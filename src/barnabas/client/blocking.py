"""Shell: the blocking clients. They run the asyncio clients on an event loop in a thread.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("orders", b"hello", key=b"k").result()
    with Consumer(bootstrap_servers="localhost:9092", group_id="g") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            ...

Every method runs the asyncio client's method of the same name on that loop and waits for the result. (`Producer` is in
`blocking_producer.py`.) Several threads may use one client. Callbacks for deliveries and rebalances run on the loop's
thread and must not call their client.

A call can be interrupted at any moment by an exception of a signal handler, such as KeyboardInterrupt, also when it has
ended on the loop already. So each call of a consumer tells the loop which records the program has received from the
calls before. The loop returns the other records again.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack

from barnabas.client.admin import AsyncAdmin
from barnabas.client.arguments import checks_arguments
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.consumer import STEP_INTERVAL_S, AsyncConsumer
from barnabas.client.errors import ClientClosedError, DeliveryFailedError, ForkedError
from barnabas.client.loop_thread import LoopThread
from barnabas.client.serialization import AnyDeserializer
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.client.typed_settings import AdminSettings, ConsumerSettings
from barnabas.client.values import ConsumerRecord
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import Assignor

log = logging.getLogger("barnabas.client")

INTERRUPTED_CLOSE_S: Final = 1.0
"""How long a `close` that was interrupted goes on."""
UNCLOSED_TIMEOUT_MS: Final = 5_000
"""How long a client that was dropped without `close` may go on, to send what it has."""

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="_Closeable")


class _Closeable(Protocol):
    cluster: Cluster

    async def close(self, timeout_ms: float | None = None) -> None: ...


@checks_arguments()
class Blocking(Generic[C]):
    """An asyncio client and the loop on which it runs."""

    _closed = True  # until __init__ has succeeded

    def __init__(self, make: Callable[[], C]) -> None:
        self._thread = LoopThread()
        try:
            self._client: C = self._thread.run(lambda: _called(make))
        except BaseException:  # KeyboardInterrupt, too: the thread must end
            self._thread.close()
            raise
        self._closed = False
        self._forked = False
        _open_clients.add(self)

    def __repr__(self) -> str:
        return f"<blocking {self._client!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except DeliveryFailedError as lost:
            if error is None:
                raise
            log.error("closing a producer after %r: %s", error, lost)

    def __del__(self) -> None:
        if not self._closed:
            self._warn_unclosed()
            self._closed = True
            client = self._client
            self._thread.end_after(lambda: client.close(UNCLOSED_TIMEOUT_MS))

    def close(self, timeout_ms: float | None = None) -> None:
        """Close the client and its loop. May be called twice, by any thread, and by a signal handler. What is not
        finished within `timeout_ms` is given up; calls of other threads that still wait raise ClientClosedError."""
        self._close(lambda: self._client.close(timeout_ms))

    def _close(self, closing: Callable[[], Awaitable[None]]) -> None:
        if self._closed:
            return
        if self._thread.is_current:
            raise RuntimeError("A blocking client cannot be closed by one of its own callbacks.")
        self._closed = True
        try:
            self._thread.finish(closing)
        except BaseException:  # KeyboardInterrupt, too: the client goes on closing, shortly
            self._thread.finish(closing, within_s=INTERRUPTED_CLOSE_S)
            raise
        finally:
            try:
                self._thread.close()
            except BaseException:  # KeyboardInterrupt, too: the thread must end
                self._thread.close()
                raise
            _open_clients.discard(self)

    def _warn_unclosed(self) -> None:
        left = self._left_behind()
        warnings.warn(f"{self!r} was not closed; call close().{left}", ResourceWarning, stacklevel=3, source=self)
        if left:
            log.error("%r was not closed.%s Call flush() or close() before the program ends.", self, left)

    def _left_behind(self) -> str:
        """What is lost because the client was not closed, as a sentence that begins with a space; empty if nothing."""
        return ""

    def _check_open(self) -> None:
        if self._closed:
            what = f"This {type(self).__name__.lower()}"
            raise ForkedError(what) if self._forked else ClientClosedError(what)

    def _run(self, work: Callable[[], Awaitable[R]], *, moves: bool = False) -> R:
        """Run `work` on the loop. `moves`: it changes which records are read next."""
        self._check_open()
        return self._thread.run(work)


_open_clients: weakref.WeakSet[Blocking[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    """Close all clients of the parent in the child, which has neither their threads nor their connections."""
    for client in list(_open_clients):
        client._closed = client._forked = True
    _open_clients.clear()


def _at_exit() -> None:
    """Warn of clients that were not closed, and stop their threads before the interpreter removes what these need."""
    for client in list(_open_clients):
        if not client._closed:
            client._warn_unclosed()
            client._closed = True
            client._thread.stop()
            client._client.cluster.abandon()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


async def _called(function: Callable[[], R]) -> R:
    return function()


def wait(
    method: Callable[Concatenate[Any, P], Awaitable[R]], *, moves: bool = False
) -> Callable[Concatenate[Blocking[Any], P], R]:
    """Wrap an async method: the blocking method waits for its result."""

    @functools.wraps(method)
    def blocking(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(lambda: method(self._client, *args, **kwargs), moves=moves)

    return blocking


def call(
    method: Callable[Concatenate[Any, P], R], *, moves: bool = False
) -> Callable[Concatenate[Blocking[Any], P], R]:
    """Wrap a method that does not wait: it is called on the loop."""

    @functools.wraps(method)
    def blocking(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(lambda: _called(lambda: method(self._client, *args, **kwargs)), moves=moves)

    return blocking


class Admin(Blocking[AsyncAdmin]):
    """`AsyncAdmin`, blocking, with the same arguments, results and errors."""

    def __init__(self, config: Mapping[str, object] | None = None, **settings: Unpack[AdminSettings]) -> None:
        super().__init__(lambda: AsyncAdmin(config, **settings))

    create_topics = wait(AsyncAdmin.create_topics)
    create_topic = wait(AsyncAdmin.create_topic)
    delete_topics = wait(AsyncAdmin.delete_topics)
    create_partitions = wait(AsyncAdmin.create_partitions)
    list_topics = wait(AsyncAdmin.list_topics)
    describe_topics = wait(AsyncAdmin.describe_topics)
    delete_records = wait(AsyncAdmin.delete_records)
    list_offsets = wait(AsyncAdmin.list_offsets)
    describe_configs = wait(AsyncAdmin.describe_configs)
    incremental_alter_configs = wait(AsyncAdmin.incremental_alter_configs)
    alter_configs = wait(AsyncAdmin.alter_configs)
    list_config_resources = wait(AsyncAdmin.list_config_resources)
    describe_cluster = wait(AsyncAdmin.describe_cluster)
    describe_log_dirs = wait(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = wait(AsyncAdmin.alter_replica_log_dirs)
    describe_replica_log_dirs = wait(AsyncAdmin.describe_replica_log_dirs)
    elect_leaders = wait(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = wait(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = wait(AsyncAdmin.list_partition_reassignments)
    describe_user_scram_credentials = wait(AsyncAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = wait(AsyncAdmin.alter_user_scram_credentials)
    create_delegation_token = wait(AsyncAdmin.create_delegation_token)
    renew_delegation_token = wait(AsyncAdmin.renew_delegation_token)
    expire_delegation_token = wait(AsyncAdmin.expire_delegation_token)
    describe_delegation_tokens = wait(AsyncAdmin.describe_delegation_tokens)
    describe_client_quotas = wait(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = wait(AsyncAdmin.alter_client_quotas)
    describe_acls = wait(AsyncAdmin.describe_acls)
    create_acls = wait(AsyncAdmin.create_acls)
    delete_acls = wait(AsyncAdmin.delete_acls)
    describe_quorum = wait(AsyncAdmin.describe_quorum)
    add_raft_voter = wait(AsyncAdmin.add_raft_voter)
    remove_raft_voter = wait(AsyncAdmin.remove_raft_voter)
    unregister_broker = wait(AsyncAdmin.unregister_broker)
    list_groups = wait(AsyncAdmin.list_groups)
    describe_groups = wait(AsyncAdmin.describe_groups)
    delete_groups = wait(AsyncAdmin.delete_groups)
    remove_group_members = wait(AsyncAdmin.remove_group_members)
    list_group_offsets = wait(AsyncAdmin.list_group_offsets)
    alter_group_offsets = wait(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = wait(AsyncAdmin.delete_group_offsets)
    reset_group_offsets = wait(AsyncAdmin.reset_group_offsets)
    describe_producers = wait(AsyncAdmin.describe_producers)
    list_transactions = wait(AsyncAdmin.list_transactions)
    describe_transactions = wait(AsyncAdmin.describe_transactions)
    find_hanging_transactions = wait(AsyncAdmin.find_hanging_transactions)
    abort_transaction = wait(AsyncAdmin.abort_transaction)
    end_transaction = wait(AsyncAdmin.end_transaction)
    fence_producer = wait(AsyncAdmin.fence_producer)
    explain_groups = wait(AsyncAdmin.explain_groups)
    describe_clients = wait(AsyncAdmin.describe_clients)
    explain_partitions = wait(AsyncAdmin.explain_partitions)
    compact = wait(AsyncAdmin.compact)
    enforce_retention = wait(AsyncAdmin.enforce_retention)
    create_link = wait(AsyncAdmin.create_link)
    alter_link = wait(AsyncAdmin.alter_link)
    delete_link = wait(AsyncAdmin.delete_link)
    describe_links = wait(AsyncAdmin.describe_links)
    alter_mirrors = wait(AsyncAdmin.alter_mirrors)
    describe_mirrors = wait(AsyncAdmin.describe_mirrors)


class OnTheWay(Protocol):
    """The records that a call on the loop has taken for the program, which runs in another thread."""

    ended: bool
    """Whether what was not received is available to other calls again."""
    one_by_one: bool
    """Whether the program asks for each record by itself."""

    @property
    def records(self) -> Sequence[Any]: ...

    def receive(self, count: int) -> None:
        """The program has received the first `count` records."""

    def put_back(self) -> None:
        """The program will not receive the other records: the next call takes them."""


class _Reading(_Closeable, Protocol):
    defers: bool
    on_the_way: Any
    """An `OnTheWay`, or None."""

    def wakeup(self) -> None: ...

    async def poll(self, timeout_ms: float = 0, *, raise_problems: bool = False) -> list[ConsumerRecord[Any, Any]]: ...


RC = TypeVar("RC", bound=_Reading)


class BlockingReader(Blocking[RC]):
    """The common part of both consumers: each call says first what the program has received of the calls before it.

    `_given` is set as the last step of a call, after which no signal handler can run before the caller has the records.
    If the call is interrupted earlier, the records are put back by the next call that reads. So they are if another
    thread reads first: each call looks at `ended` and sets `_given` without a moment between them in which CPython
    could switch threads, and `_settle` sets `ended` before it looks at `_given`.
    """

    def __init__(self, make: Callable[[], RC]) -> None:
        self._given: tuple[OnTheWay | None, int] = (None, 0)
        """What the program has received last, and the number of records of it."""
        self._turn = threading.RLock()
        """Held by the call that reads: a second thread waits."""
        self._reader_thread: int | None = None
        self._iterator: weakref.ref[_BlockingRecords] | None = None
        """The iterator by which the program has received the last record."""
        super().__init__(make)
        self._client.defers = True

    def _run(self, work: Callable[[], Awaitable[R]], *, moves: bool = False) -> R:
        async def settled() -> R:
            self._settle(moves=moves)
            return await work()

        return super()._run(settled, moves=moves)

    def _settle(self, *, moves: bool) -> None:
        """Take note of what the program has received. Runs on the loop."""
        delivery: OnTheWay | None = self._client.on_the_way
        if delivery is None:
            return
        delivery.ended = moves
        received, count = self._given
        if received is delivery:
            delivery.receive(count)
        if moves:
            self._client.on_the_way = None
            delivery.put_back()

    def _read(self, work: Callable[[], Awaitable[R]]) -> tuple[R, tuple[OnTheWay | None, int]]:
        """Run a call that reads. Returns its result, and the value for `_given` when the program gets the result."""
        with self._turn:
            result = self._run(work, moves=True)
            delivery = self._client.on_the_way
            self._reader_thread = threading.get_ident()
            self._iterator = None
            return result, (delivery, 0 if delivery is None else len(delivery.records))

    def __iter__(self) -> Iterator[ConsumerRecord[Any, Any]]:
        """Iterate over records, without an end. A record counts as consumed when the next one is asked for."""
        return _BlockingRecords(self)

    def wakeup(self) -> None:
        """Make the call that waits for records raise WakeupError, or the next one. Any thread and any signal handler
        may call this."""
        with suppress(RuntimeError):  # the client is closed
            self._thread.loop.call_soon_threadsafe(self._client.wakeup)

    def _has_finished(self) -> bool:
        """Whether the program has finished with the records that it received last."""
        iterates = self._iterator is not None and self._iterator() is not None
        return not iterates and self._reader_thread in (None, threading.get_ident())


class _BlockingRecords(Iterator[ConsumerRecord[Any, Any]]):
    """An endless iterator over a consumer's records. A step that is interrupted can be repeated.

    CPython runs signal handlers, and switches threads, when a function begins, after a jump backward, and after the
    call of a function in C; not when a function in Python returns to another one, nor between the steps of `for`.
    """

    def __init__(self, reader: BlockingReader[Any], *, is_loop: bool = True) -> None:
        self._reader = reader
        self._reference = weakref.ref(self) if is_loop else None
        self._until = 0.0

    def __next__(self) -> ConsumerRecord[Any, Any]:
        reader = self._reader
        while True:
            thread, now = threading.get_ident(), time.monotonic()
            delivery, count = reader._given  # from here to the return, no other thread and no signal handler can run
            if (
                delivery is not None
                and not delivery.ended
                and now < self._until
                and reader._iterator is self._reference
                and not reader._closed
            ):
                try:
                    record = delivery.records[count]
                except IndexError:
                    pass
                else:
                    reader._reader_thread = thread
                    reader._given = (delivery, count + 1)
                    return record  # type: ignore[no-any-return]  # records of the type that the iterator yields
            self._poll()

    def _poll(self) -> None:
        """Take records, of which the program has received none yet."""
        reader = self._reader
        while not reader._closed:
            with reader._turn:
                _, (delivery, _) = reader._read(lambda: reader._client.poll(1_000))
                if delivery is not None:
                    delivery.one_by_one = True
                    self._until = time.monotonic() + STEP_INTERVAL_S
                    reader._iterator = self._reference
                    reader._given = (delivery, 0)
                    return
        raise StopIteration


class _BlockingBatches(Iterator[Any]):
    """An endless iterator over a consumer's RecordBatches. A step that is interrupted can be repeated."""

    def __init__(self, reader: BlockingReader[Any], options: dict[str, Any]) -> None:
        self._reader = reader
        self._options = options

    def __next__(self) -> Any:
        reader = self._reader
        while not reader._closed:
            batch, (delivery, count) = reader._read(lambda: reader._client.poll_arrow(1_000, **self._options))
            if delivery is not None and not delivery.ended:
                reader._given = (delivery, count)  # no signal handler can run between this and the return
                return batch
        raise StopIteration


def read(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[Concatenate[BlockingReader[Any], P], R]:
    """Wrap an async method that returns records: the program has received them when the blocking method returns."""

    @functools.wraps(method)
    def blocking(self: BlockingReader[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        while True:
            result, (delivery, count) = self._read(lambda: method(self._client, *args, **kwargs))
            if delivery is None:
                return result
            if not delivery.ended:
                self._given = (delivery, count)  # no signal handler can run between this and the return
                return result

    return blocking


class Consumer(BlockingReader[AsyncConsumer]):
    """`AsyncConsumer`, blocking, with the same arguments, results and errors."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        assignors: Sequence[Assignor] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        super().__init__(
            lambda: AsyncConsumer(
                config,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                assignors=assignors,
                **settings,
            )
        )
        self._singles = _BlockingRecords(self, is_loop=False)

    subscribe = call(AsyncConsumer.subscribe, moves=True)
    assign = call(AsyncConsumer.assign, moves=True)
    unsubscribe = wait(AsyncConsumer.unsubscribe, moves=True)
    assignment = call(AsyncConsumer.assignment)
    subscription = call(AsyncConsumer.subscription)
    seek = call(AsyncConsumer.seek, moves=True)
    seek_to_beginning = call(AsyncConsumer.seek_to_beginning, moves=True)
    seek_to_end = call(AsyncConsumer.seek_to_end, moves=True)
    seek_to_committed = call(AsyncConsumer.seek_to_committed, moves=True)
    seek_to_timestamp = wait(AsyncConsumer.seek_to_timestamp, moves=True)
    position = wait(AsyncConsumer.position)
    committed = wait(AsyncConsumer.committed)
    commit = wait(AsyncConsumer.commit)
    commit_nowait = call(AsyncConsumer.commit_nowait)
    offsets_for_times = wait(AsyncConsumer.offsets_for_times)
    beginning_offsets = wait(AsyncConsumer.beginning_offsets)
    end_offsets = wait(AsyncConsumer.end_offsets)
    partitions_for = wait(AsyncConsumer.partitions_for)
    lag = call(AsyncConsumer.lag)
    pause = call(AsyncConsumer.pause, moves=True)
    resume = call(AsyncConsumer.resume)
    paused = call(AsyncConsumer.paused)
    group_metadata = call(AsyncConsumer.group_metadata)

    poll = read(AsyncConsumer.poll)
    getmany = read(AsyncConsumer.getmany)
    poll_arrow = read(AsyncConsumer.poll_arrow)

    def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """The next record (of these partitions if any are given), however long it takes to arrive.

        It counts as consumed when the next one is asked for. A call that is interrupted has no effect.
        """
        self._check_open()
        if not partitions:
            return self._singles.__next__()  # not next(): see `_BlockingRecords`
        while True:
            found, (delivery, count) = self._read(
                lambda: self._client.getmany(*partitions, timeout_ms=1_000, max_records=1)
            )
            record = next(iter(found.values()))[0] if found else None
            if record is not None and delivery is not None and not delivery.ended:
                self._given = (delivery, count)
                return record

    def arrow(self, **options: Any) -> Iterator[Any]:
        """Iterate over RecordBatches, without an end. Takes the options of `poll_arrow`."""
        return _BlockingBatches(self, options)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shut(None, leave=None, finished=error is None and self._has_finished())

    def close(self, timeout_ms: float | None = None, *, leave: bool | None = None) -> None:
        """`AsyncConsumer.close`. May be called twice, by any thread, and by a signal handler."""
        self._shut(timeout_ms, leave=leave, finished=sys.exc_info()[1] is None and self._has_finished())

    def _shut(self, timeout_ms: float | None, *, leave: bool | None, finished: bool) -> None:
        async def closing() -> None:
            self._settle(moves=True)
            await self._client.shut(timeout_ms, leave=leave, finished=finished)

        self._close(closing)


class ShareConsumer(BlockingReader[AsyncShareConsumer]):
    """`AsyncShareConsumer`, blocking, with the same arguments, results and errors."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        on_acknowledged: Callable[[TopicPartition, frozenset[int], KafkaError | None], None] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        super().__init__(
            lambda: AsyncShareConsumer(
                config,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                on_acknowledged=on_acknowledged,
                **settings,
            )
        )
        self._singles = _BlockingRecords(self, is_loop=False)

    subscribe = call(AsyncShareConsumer.subscribe)
    subscription = call(AsyncShareConsumer.subscription)
    unsubscribe = wait(AsyncShareConsumer.unsubscribe, moves=True)
    assignment = call(AsyncShareConsumer.assignment)
    acknowledge = call(AsyncShareConsumer.acknowledge)
    commit = wait(AsyncShareConsumer.commit)

    poll = read(AsyncShareConsumer.poll)

    def getone(self) -> ConsumerRecord[Any, Any]:
        """The next record, however long it takes to arrive. The next call acknowledges it (implicit mode)."""
        self._check_open()
        return self._singles.__next__()  # not next(): see `_BlockingRecords`

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The duration of the acquisition lock of a record; None before the first fetch."""
        return self._client.acquisition_lock_timeout_ms

    def close(self, timeout_ms: float | None = None) -> None:
        """Send the acknowledgements, release all other records, leave the group and close the connections."""

        async def closing() -> None:
            self._settle(moves=True)
            await self._client.close(timeout_ms)

        self._close(closing)
