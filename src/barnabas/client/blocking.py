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
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack

from barnabas.client.admin import AsyncAdmin
from barnabas.client.arguments import checks_arguments
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.errors import ClientClosedError, DeliveryFailedError, ForkedError
from barnabas.client.serialization import AnyDeserializer
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.client.typed_settings import AdminSettings, ConsumerSettings
from barnabas.client.values import ConsumerRecord
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import Assignor

log = logging.getLogger("barnabas.client")

UNCLOSED_TIMEOUT_MS: Final = 5_000
"""How long a client that was dropped without `close` may go on, to send what it has."""

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="_Closeable")


class _Closeable(Protocol):
    cluster: Cluster

    async def close(self, timeout_ms: float | None = None) -> None: ...


class LoopThread:
    """An event loop that runs in a daemon thread of its own (on uvloop where it is installed)."""

    def __init__(self, name: str = "barnabas-client") -> None:
        self.loop = _new_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_of_this_process(self) -> bool:
        """False in a process that was forked after the thread was started."""
        return self._process == os.getpid()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run `work` on the loop and wait for it. An interrupt while waiting cancels it.

        Raises ForkedError in a process that was forked, where the thread does not exist.
        """
        if not self.is_of_this_process:
            work.close()
            raise ForkedError("This client")
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "A blocking client was called from one of its own callbacks; this would never return. "
                "Use the asyncio client, or do the work outside of the callback."
            )
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:  # KeyboardInterrupt, too: the work must not go on without its caller
            future.cancel()
            raise

    def end_after(self, work: Coroutine[Any, Any, object]) -> None:
        """Run `work` on the loop, and end the thread afterwards. Does not wait."""

        if not self.is_of_this_process or self.loop.is_closed():
            work.close()
            return

        def start() -> None:
            task = self.loop.create_task(work)
            task.add_done_callback(lambda done: self.loop.stop())

        self.loop.call_soon_threadsafe(start)

    def stop(self) -> None:
        """Cancel the loop's tasks, stop the loop and wait for its thread; nothing is closed. (A task that is pending
        when the interpreter removes it would print asyncio's internals.)"""
        if self.is_of_this_process and not self.loop.is_closed():
            self.end_after(_cancelled())
            self._thread.join(1.0)

    def close(self) -> None:
        """Stop the loop and end the thread."""
        if not self.is_of_this_process:
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _cancelled() -> None:
    """Cancel all other tasks of this loop, and wait shortly until they have ended."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=0.5)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@checks_arguments()
class Blocking(Generic[C]):
    """An asyncio client and the loop on which it runs."""

    _closed = True  # until __init__ has succeeded

    def __init__(self, make: Callable[[], C]) -> None:
        self._thread = LoopThread()
        try:
            self._client: C = self._thread.run(_called(make))
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
            self._thread.end_after(self._client.close(UNCLOSED_TIMEOUT_MS))

    def close(self, timeout_ms: float | None = None) -> None:
        """Close the client and its loop. May be called twice. What is not finished within `timeout_ms` is given up."""
        self._close(lambda: self._closed_client(timeout_ms))

    def _close(self, closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._closed:
            return
        self._closed = True
        _open_clients.discard(self)
        try:
            self._thread.run(closing())
        finally:
            self._thread.close()

    async def _closed_client(self, timeout_ms: float | None) -> None:
        await self._client.close(timeout_ms)

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

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        try:
            self._check_open()
        except ClientClosedError:
            work.close()
            raise
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


def wait(method: Callable[Concatenate[Any, P], Awaitable[R]]) -> Callable[Concatenate[Blocking[Any], P], R]:
    """Wrap an async method: the blocking method waits for its result."""

    @functools.wraps(method)
    def blocking(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def work() -> R:
            return await method(self._client, *args, **kwargs)

        return self._run(work())

    return blocking


def call(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Blocking[Any], P], R]:
    """Wrap a method that does not wait: it is called on the loop."""

    @functools.wraps(method)
    def blocking(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(_called(lambda: method(self._client, *args, **kwargs)))

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
    explain_partitions = wait(AsyncAdmin.explain_partitions)
    compact = wait(AsyncAdmin.compact)
    enforce_retention = wait(AsyncAdmin.enforce_retention)
    create_link = wait(AsyncAdmin.create_link)
    alter_link = wait(AsyncAdmin.alter_link)
    delete_link = wait(AsyncAdmin.delete_link)
    describe_links = wait(AsyncAdmin.describe_links)
    alter_mirrors = wait(AsyncAdmin.alter_mirrors)
    describe_mirrors = wait(AsyncAdmin.describe_mirrors)


class Consumer(Blocking[AsyncConsumer]):
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

    subscribe = call(AsyncConsumer.subscribe)
    assign = call(AsyncConsumer.assign)
    unsubscribe = wait(AsyncConsumer.unsubscribe)
    assignment = call(AsyncConsumer.assignment)
    subscription = call(AsyncConsumer.subscription)
    poll = wait(AsyncConsumer.poll)
    poll_arrow = wait(AsyncConsumer.poll_arrow)
    seek = call(AsyncConsumer.seek)
    seek_to_beginning = call(AsyncConsumer.seek_to_beginning)
    seek_to_end = call(AsyncConsumer.seek_to_end)
    seek_to_committed = call(AsyncConsumer.seek_to_committed)
    seek_to_timestamp = wait(AsyncConsumer.seek_to_timestamp)
    position = wait(AsyncConsumer.position)
    committed = wait(AsyncConsumer.committed)
    commit = wait(AsyncConsumer.commit)
    commit_nowait = call(AsyncConsumer.commit_nowait)
    offsets_for_times = wait(AsyncConsumer.offsets_for_times)
    beginning_offsets = wait(AsyncConsumer.beginning_offsets)
    end_offsets = wait(AsyncConsumer.end_offsets)
    partitions_for = wait(AsyncConsumer.partitions_for)
    lag = call(AsyncConsumer.lag)
    pause = call(AsyncConsumer.pause)
    resume = call(AsyncConsumer.resume)
    paused = call(AsyncConsumer.paused)
    group_metadata = call(AsyncConsumer.group_metadata)

    def __iter__(self) -> Generator[ConsumerRecord[Any, Any], None, None]:
        """Iterate over the records of all polls, without an end."""
        while not self._closed:
            yield from self.poll(1_000)

    def arrow(self, **options: Any) -> Generator[Any, None, None]:
        """Iterate over RecordBatches, without an end. Takes the options of `poll_arrow`."""
        while not self._closed:
            batch = self.poll_arrow(1_000, **options)
            if batch is not None:
                yield batch


class ShareConsumer(Blocking[AsyncShareConsumer]):
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

    subscribe = call(AsyncShareConsumer.subscribe)
    subscription = call(AsyncShareConsumer.subscription)
    unsubscribe = wait(AsyncShareConsumer.unsubscribe)
    assignment = call(AsyncShareConsumer.assignment)
    poll = wait(AsyncShareConsumer.poll)
    acknowledge = call(AsyncShareConsumer.acknowledge)
    commit = wait(AsyncShareConsumer.commit)

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The duration of the acquisition lock of a record; None before the first fetch."""
        return self._client.acquisition_lock_timeout_ms

    def __iter__(self) -> Generator[ConsumerRecord[Any, Any], None, None]:
        """Iterate over records, without an end. The next poll acknowledges the previous records (implicit mode)."""
        while not self._closed:
            yield from self.poll(1_000)
