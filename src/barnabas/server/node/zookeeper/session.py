"""Shell: a session with ZooKeeper, by kazoo. The only file that knows kazoo, and the only one with threads.

kazoo runs threads of its own; whatever they tell is handed to the loop, and nothing is done on them. Requests are
written in the order of the calls, and ZooKeeper answers a session in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from barnabas.server.node.zookeeper.config import ZooKeeperConfig
from barnabas.server.node.zookeeper.errors import ZooKeeperError
from barnabas.server.node.zookeeper.machine.requests import (
    Answer,
    Check,
    Children,
    Create,
    Delete,
    Done,
    Failed,
    Failure,
    Get,
    GetMany,
    Multi,
    Names,
    Request,
    SetData,
    Sync,
    Znode,
    Znodes,
)

try:
    from kazoo import exceptions as errors
    from kazoo.client import KazooClient
    from kazoo.protocol.serialization import Connect
    from kazoo.protocol.states import EventType, KazooState, WatchedEvent
    from kazoo.retry import KazooRetry
except ImportError as _error:
    raise ZooKeeperError(
        "zookeeper.connect is set, but kazoo, which talks to ZooKeeper, is not installed: "
        "pip install 'barnabas[zookeeper]'"
    ) from _error

_RECONNECT_DELAY_MAX_S: Final = 1.0
_FAILURES: Final[tuple[tuple[type[Exception], Failure], ...]] = (
    (errors.NoNodeError, Failure.NO_NODE),
    (errors.NodeExistsError, Failure.NODE_EXISTS),
    (errors.BadVersionError, Failure.BAD_VERSION),
    (errors.ConnectionLoss, Failure.CONNECTION_LOSS),
    (errors.ConnectionClosedError, Failure.CONNECTION_LOSS),
    (errors.SessionExpiredError, Failure.CONNECTION_LOSS),
    (errors.SessionMovedError, Failure.CONNECTION_LOSS),
    (errors.OperationTimeoutError, Failure.CONNECTION_LOSS),
)


class SessionEvents(Protocol):
    """Called on the loop."""

    def on_connected(self, session_id: int, timeout_ms: int) -> None: ...

    def on_suspended(self) -> None: ...

    def on_expired(self) -> None: ...

    def on_changed(self, path: str) -> None: ...


class ZooKeeperSession:
    """`start`, then `submit`. It reconnects for ever; a session that has ended is followed by another."""

    def __init__(self, settings: ZooKeeperConfig, events: SessionEvents) -> None:
        self._settings = settings
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._stopped = False
        self._timeout_ms = settings.zookeeper_session_timeout_ms
        self._client = KazooClient(
            hosts=settings.zookeeper_connect,
            timeout=settings.zookeeper_session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=_RECONNECT_DELAY_MAX_S),
            logger=_quiet_logger(),
        )
        self._learn_timeout()
        self._client.add_listener(self._on_state)

    async def start(self) -> None:
        """Raises ZooKeeperError when no server can be reached in zookeeper.connection.timeout.ms."""
        self._client.start_async()
        try:
            async with asyncio.timeout(self._settings.zookeeper_connection_timeout_ms / 1000):
                await self._connected.wait()
        except TimeoutError:
            await self.stop()
            raise ZooKeeperError(
                f"No ZooKeeper server of zookeeper.connect={self._settings.zookeeper_connect} could be reached within "
                f"{self._settings.zookeeper_connection_timeout_ms} ms. Are they running, with a majority of them up?"
            ) from None
        if "/" in self._settings.zookeeper_connect:
            await self._in_thread(lambda: self._client.ensure_path("/"))

    async def stop(self) -> None:
        """End the session; ZooKeeper removes its ephemeral nodes at once."""
        if not self._stopped:
            self._stopped = True
            await self._in_thread(self._stop)

    def stop_now(self) -> None:
        """The same for where no loop can wait; blocks until it is done."""
        if not self._stopped:
            self._stopped = True
            self._stop()

    async def ask(self, request: Request) -> Answer:
        answered: asyncio.Future[Answer] = self._loop.create_future()
        self.submit(request, lambda answer: None if answered.done() else answered.set_result(answer))
        return await answered

    def submit(self, request: Request, on_answer: Callable[[Answer], Any]) -> None:
        """`on_answer` is called on the loop, always: with CONNECTION_LOSS when nothing else can be said."""
        pending, read = self._send(request)

        def answered(_: Any) -> None:  # on a thread of kazoo's; those before the last are answered, too
            self._tell(lambda: on_answer(_read(pending, read)))

        pending[-1].rawlink(answered)

    # ---- inside

    def _send(self, request: Request) -> tuple[list[Any], Callable[[list[Any]], Answer]]:
        client = self._client
        match request:
            case Sync():
                return [client.sync_async("/")], lambda results: Done()
            case Get(path, watch):
                # `exists` leaves its watch even where there is nothing yet.
                first = [client.exists_async(path, watch=self._on_watch)] if watch else []
                return [*first, client.get_async(path)], lambda results: _znode(results[-1])
            case GetMany(paths):
                return [client.get_async(path) for path in paths], lambda results: Znodes(
                    tuple(data for data, _ in results)
                )
            case Children(path):
                return [client.get_children_async(path)], lambda results: Names(tuple(results[0]))
            case Multi(ops):
                transaction = client.transaction()
                for op in ops:
                    match op:
                        case Create(path, data, ephemeral):
                            transaction.create(path, data, ephemeral=ephemeral)
                        case SetData(path, data, version):
                            transaction.set_data(path, data, version)
                        case Delete(path, version):
                            transaction.delete(path, version)
                        case Check(path, version):
                            transaction.check(path, version)
                return [transaction.commit_async()], lambda results: _done(results[0])

    def _on_state(self, state: str) -> None:
        if self._stopped:
            return
        if state == KazooState.CONNECTED:
            session_id = self._client.client_id[0]
            self._tell(lambda: self._on_connected(session_id))
        elif state == KazooState.SUSPENDED:
            self._tell(self._events.on_suspended)
        else:
            self._tell(self._events.on_expired)

    def _on_connected(self, session_id: int) -> None:
        self._connected.set()
        self._events.on_connected(session_id, self._timeout_ms)

    def _on_watch(self, event: WatchedEvent) -> None:
        # Those of type NONE tell of the connection, which `_on_state` does better.
        if event.type != EventType.NONE:
            self._tell(lambda: self._events.on_changed(event.path))

    def _tell(self, what: Callable[[], Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(what)

    def _learn_timeout(self) -> None:
        """The servers have the last word on the session's time-out, and kazoo does not tell it: listen in where it
        greets them. Without this a session longer than the servers allow would make the lease too long.
        """
        connection = self._client._connection
        invoke = connection._invoke

        def invoke_and_note(timeout: float, request: Any, *args: Any, **kwargs: Any) -> Any:
            answer = invoke(timeout, request, *args, **kwargs)
            if isinstance(request, Connect) and answer[0].time_out > 0:
                self._timeout_ms = answer[0].time_out
            return answer

        connection._invoke = invoke_and_note

    def _stop(self) -> None:
        with contextlib.suppress(Exception):  # whatever it is, the session ends by itself a little later
            self._client.stop()
            self._client.close()

    async def _in_thread(self, what: Callable[[], Any]) -> None:
        await self._loop.run_in_executor(None, what)


def _read(pending: list[Any], read: Callable[[list[Any]], Answer]) -> Answer:
    """All of them are answered."""
    for index, result in enumerate(pending):
        if result.exception is not None:
            return _failed(result.exception, index)
    return read([result.value for result in pending])


def _znode(result: Any) -> Znode:
    data, stat = result
    return Znode(data, stat.version, stat.ephemeralOwner)


def _done(results: list[Any]) -> Answer:
    """A transaction that failed names its culprit; those before it are rolled back, those after it were not tried."""
    for index, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, errors.RolledBackError):
            return _failed(result, index)
    return Done(tuple(getattr(result, "version", 0) for result in results))


def _failed(error: Exception, op: int) -> Failed:
    for kind, failure in _FAILURES:
        if isinstance(error, kind):
            return Failed(failure, op, str(error))
    return Failed(Failure.REFUSED, op, f"{type(error).__name__} {error}".strip())


def _quiet_logger() -> logging.Logger:
    """kazoo tells every lost connection; this node tells what it means."""
    logger = logging.getLogger("barnabas.kazoo")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
