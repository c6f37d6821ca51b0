"""Shell: requests to other nodes: one connection per host, port and lane, opened when it is first needed.

    send ── lane closed ──► connect ──► ApiVersions ──► open ──► requests, in order
                 ▲  back-off after a failure              │
                 └──────── lost, or a request timed out ◄─┘

Requests of one lane are answered in their order, so whatever may park at the other end (a follower's Fetch) gets a lane
of its own. A request that is not answered in time takes its connection with it: nothing behind it could be answered
sooner. Nothing is sent twice; whoever asks decides whether to ask again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, cast

from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.tasks import enter_task
from barnabas.core.telemetry import get_logger
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.wire.schema import Request, Response

log = get_logger("barnabas.protocol.transport")

SOFTWARE_NAME: Final = "barnabas-node"
SOFTWARE_VERSION: Final = "1"
LANES_MAX: Final = 4_096
"""Open lanes; the one that was not used for longest is closed for a new one."""
IN_FLIGHT_MAX: Final = 1_000
"""Unanswered requests of one lane; more are refused."""
_BACKOFF_MIN_S: Final = 0.05
_BACKOFF_MAX_S: Final = 1.0

Place = tuple[str, int, str]
"""(host, port, lane)"""


class UnansweredError(KafkaError):
    """The request was sent, and no answer will come: it may have been carried out, or not."""


class NobodyListensError(KafkaError):
    """The host has answered that nothing listens there: the node's process does not run."""


class Outgoing:
    """All connections of this node to others. `run` owns them; without it nothing is sent."""

    def __init__(self, client_id: str, *, setup_timeout_ms: int = 10_000) -> None:
        self._client_id = client_id
        self._setup_s = setup_timeout_ms / 1000
        self._lanes: OrderedDict[Place, _Lane] = OrderedDict()
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Until cancelled; then every connection is closed and every request that waits fails."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None
            for lane in self._lanes.values():
                lane.close("this node is shutting down")
            self._lanes.clear()

    async def send(
        self, host: str, port: int, request: Request, *, timeout_ms: int, lane: str = "", version_max: int | None = None
    ) -> Response:
        """The answer to `request`, which is sent in the highest version that both sides know.

        Raises KafkaError: BROKER_NOT_AVAILABLE (no connection, or it was lost), REQUEST_TIMED_OUT, UNSUPPORTED_VERSION.
        Only an UnansweredError may have been carried out; otherwise nothing was sent. NobodyListensError says why there
        was no connection.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        await enter_task()
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._lane((host, port, lane)).connection()
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{host}:{port} could not be reached in time.") from None
        return await connection.ask(request, deadline, version_max)

    def forget(self, host: str, port: int) -> None:
        """Close every lane to an address that is not used any more."""
        for place in [place for place in self._lanes if place[:2] == (host, port)]:
            self._lanes.pop(place).close("the node has moved")

    def _lane(self, place: Place) -> _Lane:
        tasks = self._tasks
        if tasks is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "This node is starting or shutting down.")
        lane = self._lanes.get(place)
        if lane is None:
            if len(self._lanes) >= LANES_MAX:
                self._lanes.popitem(last=False)[1].close("too many connections to other nodes")
            lane = self._lanes[place] = _Lane(place, self._client_id, self._setup_s, tasks)
        else:
            self._lanes.move_to_end(place)
        return lane


class _Lane:
    """Keeps one connection, and connects again after it was lost: at once the first time, then ever later."""

    def __init__(self, place: Place, client_id: str, setup_s: float, tasks: asyncio.TaskGroup) -> None:
        self._place = place
        self._client_id = client_id
        self._setup_s = setup_s
        self._tasks = tasks
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection | _UnreachableError] | None = None
        self._failures = 0
        self._retry_at = 0.0

    async def connection(self) -> _Connection:
        """An open connection. Raises KafkaError BROKER_NOT_AVAILABLE."""
        current = self._connection
        if current is not None and current.alive:
            return current
        if self._connecting is None:
            self._connecting = self._tasks.create_task(self._guarded(), name=f"connect {self._place}")
            self._connecting.add_done_callback(self._connected)
        found = await asyncio.shield(self._connecting)
        if isinstance(found, _UnreachableError):
            refused = isinstance(found.__cause__, ConnectionRefusedError)
            raise (NobodyListensError if refused else KafkaError)(ErrorCode.BROKER_NOT_AVAILABLE, str(found))
        return found

    def close(self, reason: str) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.abort(reason)

    def _connected(self, task: asyncio.Task[_Connection | _UnreachableError]) -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            found = task.result()
            self._connection = found if isinstance(found, _Connection) else None

    async def _guarded(self) -> _Connection | _UnreachableError:
        loop = asyncio.get_running_loop()
        if self._retry_at > loop.time():
            await asyncio.sleep(self._retry_at - loop.time())
        try:
            connection = await self._connect()
        except _UnreachableError as error:
            self._retry_at = loop.time() + min(_BACKOFF_MIN_S * 2**self._failures, _BACKOFF_MAX_S)
            self._failures = min(self._failures + 1, 10)
            return error
        self._failures = 0
        self._retry_at = loop.time() + _BACKOFF_MIN_S  # one that is lost again at once is not tried without a pause
        return connection

    async def _connect(self) -> _Connection:
        host, port, _ = self._place
        loop = asyncio.get_running_loop()
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(self._setup_s):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop, self._client_id, f"{host}:{port}"), host, port
                )
                await connection.agree(loop.time() + self._setup_s)
        except TimeoutError:
            raise _UnreachableError(f"{host}:{port} did not answer within {self._setup_s:g} s.") from None
        except (OSError, KafkaError) as error:
            raise _UnreachableError(f"{host}:{port}: {error}") from error
        finally:
            if connection is not None and not connection.agreed:
                connection.abort("the connection was given up before it was ready")
        return connection


class _UnreachableError(BarnabasError):
    """Why there is no connection. The task that connects *returns* it: to its group nothing has failed."""


class _Connection(asyncio.Protocol):
    """One TCP connection to another node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client_id: str, peer: str) -> None:
        self.peer = peer
        self.agreed = False
        self._loop = loop
        self._wire = ClientConnection(client_id)
        self._versions: dict[int, tuple[int, int]] = {ApiKey.API_VERSIONS: (0, 3)}
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, tuple[asyncio.Future[Response], asyncio.TimerHandle]] = {}
        self._failure: str | None = None

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            answers = self._wire.feed(data)
        except BarnabasError as error:
            self.abort(f"it sent something that is not a response: {error}")
            return
        for correlation_id, response in answers:
            entry = self._waiting.pop(correlation_id, None)
            if entry is not None:
                entry[1].cancel()
                if not entry[0].done():
                    entry[0].set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection was lost{f': {exc}' if exc else ''}")

    # ---- for the lane

    @property
    def alive(self) -> bool:
        return self._failure is None and self._transport is not None and not self._transport.is_closing()

    async def agree(self, deadline: float) -> None:
        """Learn which versions the other side knows."""
        hello = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        answer = await self.ask(hello, deadline, None)
        assert isinstance(answer, ApiVersionsResponse)
        if answer.error_code:
            raise KafkaError(answer.error_code)
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self.agreed = True

    async def ask(self, request: Request, deadline: float, version_max: int | None) -> Response:
        if len(self._waiting) >= IN_FLIGHT_MAX:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{self.peer} has {IN_FLIGHT_MAX} unanswered requests.")
        try:
            version = self._choose(request, version_max)
        except KafkaError:
            if not self._waiting and self.agreed:  # it may know more by now: a controller that has found its cluster
                self.abort("the other side does not serve what was asked")
            raise
        if not self.alive or self._transport is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{self.peer}: {self._failure or 'closed'}")
        correlation_id, parts = self._wire.send(request, version)
        future: asyncio.Future[Response] = self._loop.create_future()
        self._waiting[correlation_id] = (future, self._loop.call_at(deadline, self._on_timeout, correlation_id))
        self._transport.writelines(parts)
        return await future

    def abort(self, reason: str) -> None:
        self._fail(reason)
        if self._transport is not None:
            self._transport.abort()

    # ---- inside

    def _choose(self, request: Request, version_max: int | None) -> int:
        api = APIS[ApiKey(request.__schema__.key)]
        low, high = self._versions.get(int(api.key), (0, -1))
        low = max(low, api.min_version)
        high = min(high, api.max_version, api.max_version if version_max is None else version_max)
        if high < low:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.peer} does not serve {api.name} in any version that this node may use: upgrade the older one.",
            )
        return high

    def _on_timeout(self, correlation_id: int) -> None:
        entry = self._waiting.pop(correlation_id, None)
        if entry is not None:
            if not entry[0].done():
                entry[0].set_exception(
                    UnansweredError(ErrorCode.REQUEST_TIMED_OUT, f"{self.peer} did not answer in time.")
                )
            self.abort("a request before this one timed out")

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
        waiting, self._waiting = self._waiting, {}
        for future, timer in waiting.values():
            timer.cancel()
            if not future.done():
                future.set_exception(UnansweredError(ErrorCode.BROKER_NOT_AVAILABLE, f"{self.peer}: {self._failure}"))
                future.exception()  # seen, even if whoever asked was cancelled
