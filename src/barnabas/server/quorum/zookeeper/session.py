"""Shell: a session with ZooKeeper. No other module uses kazoo.

kazoo runs threads of its own; their callbacks only schedule calls on the event loop. Requests are sent in the order of
the calls, and ZooKeeper answers the requests of a session in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from barnabas.server.quorum.zookeeper.config import ZooKeeperConfig
from barnabas.server.quorum.zookeeper.errors import ZooKeeperError
from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Check,
    Children,
    Create,
    Delete,
    Done,
    FailureReason,
    Get,
    GetMany,
    Multi,
    Names,
    Request,
    RequestFailed,
    SetData,
    SyncRequest,
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
        "zookeeper.connect is set, but the ZooKeeper client kazoo is not installed. Install it: "
        "pip install 'barnabas[zookeeper]'"
    ) from _error

_RECONNECT_DELAY_MAX_S: Final = 1.0
_FAILURES: Final[tuple[tuple[type[Exception], FailureReason], ...]] = (
    (errors.NoNodeError, FailureReason.NO_NODE),
    (errors.NodeExistsError, FailureReason.NODE_EXISTS),
    (errors.BadVersionError, FailureReason.BAD_VERSION),
    (errors.ConnectionLoss, FailureReason.CONNECTION_LOSS),
    (errors.ConnectionClosedError, FailureReason.CONNECTION_LOSS),
    (errors.SessionExpiredError, FailureReason.CONNECTION_LOSS),
    (errors.SessionMovedError, FailureReason.CONNECTION_LOSS),
    (errors.OperationTimeoutError, FailureReason.CONNECTION_LOSS),
)


class SessionEvents(Protocol):
    """The callbacks of a session, called on the event loop."""

    def on_connected(self, session_id: int, timeout_ms: int) -> None: ...

    def on_suspended(self) -> None: ...

    def on_expired(self) -> None: ...

    def on_changed(self, path: str) -> None: ...


class ZooKeeperSession:
    """A session that reconnects without a limit, and starts a new session after one has expired. Call `start`, then
    `submit` for each request."""

    def __init__(self, config: ZooKeeperConfig, events: SessionEvents) -> None:
        self._config = config
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._stopped = False
        self._timeout_ms = config.zookeeper_session_timeout_ms
        self._client = KazooClient(
            hosts=config.zookeeper_connect,
            timeout=config.zookeeper_session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=_RECONNECT_DELAY_MAX_S),
            logger=_quiet_logger(),
        )
        self._intercept_timeout()
        self._client.add_listener(self._on_state)

    async def start(self) -> None:
        """Connect. Raises ZooKeeperError if no server is reached within `zookeeper.connection.timeout.ms`."""
        self._client.start_async()
        try:
            async with asyncio.timeout(self._config.zookeeper_connection_timeout_ms / 1000):
                await self._connected.wait()
        except TimeoutError:
            await self.stop()
            raise ZooKeeperError(
                f"No ZooKeeper server of zookeeper.connect={self._config.zookeeper_connect} could be reached within "
                f"{self._config.zookeeper_connection_timeout_ms} ms. Check that a majority of the servers runs."
            ) from None
        if "/" in self._config.zookeeper_connect:
            await self._in_thread(lambda: self._client.ensure_path("/"))

    async def stop(self) -> None:
        """End the session. ZooKeeper deletes the session's ephemeral nodes at once."""
        if not self._stopped:
            self._stopped = True
            await self._in_thread(self._stop)

    def stop_now(self) -> None:
        """Like `stop`, but blocks the calling thread. For use without a running event loop."""
        if not self._stopped:
            self._stopped = True
            self._stop()

    async def ask(self, request: Request) -> Answer:
        answered: asyncio.Future[Answer] = self._loop.create_future()
        self.submit(request, lambda answer: None if answered.done() else answered.set_result(answer))
        return await answered

    def submit(self, request: Request, on_answer: Callable[[Answer], Any]) -> None:
        """Send `request`. `on_answer` is always called, on the event loop; CONNECTION_LOSS if the result is unknown."""
        pending, read = self._send(request)

        def answered(_: Any) -> None:  # runs on a kazoo thread, after the last of the pending requests
            self._call_on_loop(lambda: on_answer(_read(pending, read)))

        pending[-1].rawlink(answered)

    # ---- inside

    def _send(self, request: Request) -> tuple[list[Any], Callable[[list[Any]], Answer]]:
        client = self._client
        match request:
            case SyncRequest():
                return [client.sync_async("/")], lambda results: Done()
            case Get(path, watch):
                # `exists` sets the watch even if the node does not exist.
                first = [client.exists_async(path, watch=self._on_watch)] if watch else []
                return [*first, client.get_async(path)], lambda results: _znode(results[-1])
            case GetMany(paths):
                return [client.get_async(path) for path in paths], lambda results: Znodes(
                    tuple(data for data, _ in results)
                )
            case Children(path, watch):
                on_watch = self._on_watch if watch else None
                return [client.get_children_async(path, watch=on_watch)], lambda results: Names(tuple(results[0]))
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
            self._call_on_loop(lambda: self._on_connected(session_id))
        elif state == KazooState.SUSPENDED:
            self._call_on_loop(self._events.on_suspended)
        else:
            self._call_on_loop(self._events.on_expired)

    def _on_connected(self, session_id: int) -> None:
        self._connected.set()
        self._events.on_connected(session_id, self._timeout_ms)

    def _on_watch(self, event: WatchedEvent) -> None:
        # Events of type NONE report the connection state, which `_on_state` handles.
        if event.type != EventType.NONE:
            self._call_on_loop(lambda: self._events.on_changed(event.path))

    def _call_on_loop(self, what: Callable[[], Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is already closed
            self._loop.call_soon_threadsafe(what)

    def _intercept_timeout(self) -> None:
        """Read the negotiated session timeout from kazoo's Connect response.

        The servers can shorten the requested timeout, and kazoo does not expose the result. With the requested timeout,
        the lease of the controller could be longer than the session.
        """
        connection = self._client._connection
        invoke = connection._invoke

        def invoke_and_record(timeout: float, request: Any, *args: Any, **kwargs: Any) -> Any:
            answer = invoke(timeout, request, *args, **kwargs)
            if isinstance(request, Connect) and answer[0].time_out > 0:
                self._timeout_ms = answer[0].time_out
            return answer

        connection._invoke = invoke_and_record

    def _stop(self) -> None:
        with contextlib.suppress(Exception):  # kazoo raises errors of many types; the session then expires by itself
            self._client.stop()
            self._client.close()

    async def _in_thread(self, what: Callable[[], Any]) -> None:
        await self._loop.run_in_executor(None, what)


def _read(pending: list[Any], read: Callable[[list[Any]], Answer]) -> Answer:
    """Convert the results of `pending`, which are all complete; the first exception becomes a RequestFailed."""
    for index, result in enumerate(pending):
        if result.exception is not None:
            return _failed(result.exception, index)
    return read([result.value for result in pending])


def _znode(result: Any) -> Znode:
    data, stat = result
    return Znode(data, stat.version, stat.ephemeralOwner)


def _done(results: list[Any]) -> Answer:
    """Convert the results of a transaction. In a failed transaction, the first operation whose result is an error other
    than RolledBackError is the operation that failed."""
    for index, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, errors.RolledBackError):
            return _failed(result, index)
    return Done(tuple(getattr(result, "version", 0) for result in results))


def _failed(error: Exception, op: int) -> RequestFailed:
    for kind, failure in _FAILURES:
        if isinstance(error, kind):
            return RequestFailed(failure, op, str(error))
    return RequestFailed(FailureReason.REFUSED, op, f"{type(error).__name__} {error}".strip())


def _quiet_logger() -> logging.Logger:
    """A logger that drops kazoo's messages about connections; `ZooKeeperMetadataLog` logs its own."""
    logger = logging.getLogger("barnabas.kazoo")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
