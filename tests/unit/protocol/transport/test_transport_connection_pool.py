"""ConnectionPool and OutgoingConnection over in-memory transports: shared attempts, back-off, limits, back-pressure."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from barnabas.core.backoff import Backoff
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.config import SaslConfig, SecurityConfig
from barnabas.protocol.transport.connection_config import ConnectionConfig, ConnectionErrors, Destination
from barnabas.protocol.transport.connection_pool import ConnectionPool
from barnabas.protocol.transport.outgoing_connection import OutgoingConnection
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.wire.server_conn import ServerConnection

TO = Destination("node", 9092)


class UnreachableError(KafkaError):
    pass


class ConnectTimedOutError(KafkaError):
    pass


class LostError(KafkaError):
    pass


class RecordingErrors(ConnectionErrors):
    """An exception class of its own for each kind."""

    def unreachable(self, to: Destination, message: str, cause: BaseException | None) -> KafkaError:
        return UnreachableError(ErrorCode.NETWORK_EXCEPTION, message)

    def connect_timed_out(self, to: Destination, message: str) -> KafkaError:
        return ConnectTimedOutError(ErrorCode.REQUEST_TIMED_OUT, message)

    def lost(self, message: str) -> KafkaError:
        return LostError(ErrorCode.NETWORK_EXCEPTION, message)

    timed_out = unsupported = untrusted = lost


class MemoryTransport(asyncio.Transport):
    """Answers ApiVersions and SASL at once, and heartbeats unless `silent`."""

    def __init__(self, connection: OutgoingConnection, network: Network) -> None:
        super().__init__()
        self._connection = connection
        self._network = network
        self._server = ServerConnection(1 << 20)
        self._closed = False

    def writelines(self, list_of_data: Any) -> None:
        for request in self._server.feed(b"".join(map(bytes, list_of_data))):
            message = request.decode()
            self._network.requests.append(message)
            match message:
                case ApiVersionsRequest():
                    keys = (ApiKey.API_VERSIONS, ApiKey.HEARTBEAT, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
                    served = [ApiVersion(api_key=key, min_version=0, max_version=1) for key in keys]
                    answer: Any = ApiVersionsResponse(api_keys=served)
                case SaslHandshakeRequest():
                    answer = SaslHandshakeResponse(mechanisms=["PLAIN"])
                case SaslAuthenticateRequest():
                    answer = SaslAuthenticateResponse()
                case _ if self._network.silent:
                    continue
                case _:
                    answer = HeartbeatResponse()
            for part in self._server.respond(request, request.answer(answer)):
                asyncio.get_running_loop().call_soon(self._connection.data_received, bytes(part))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)


class Network:
    """Counts attempts to connect; `delay_s` delays and `down` fails them; `silent` leaves heartbeats unanswered."""

    def __init__(self) -> None:
        self.attempts = 0
        self.delay_s = 0.0
        self.down = False
        self.silent = False
        self.requests: list[Any] = []

    async def open(
        self, to: Destination, config: ConnectionConfig, errors: ConnectionErrors, *, setup_s: float, tls: Any
    ) -> OutgoingConnection:
        self.attempts += 1
        await asyncio.sleep(self.delay_s)  # the connection is set up
        if self.down:
            raise errors.unreachable(to, "refused", ConnectionRefusedError())
        connection = OutgoingConnection(to, config, errors)
        connection.connection_made(MemoryTransport(connection, self))
        return connection

    def pool(self, **settings: Any) -> ConnectionPool:
        config = ConnectionConfig(**{"reconnect_backoff": Backoff(20, 20, jitter=0.0), **settings})
        return ConnectionPool(config, RecordingErrors(), random.Random(1), self.open)


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_concurrent_callers_share_one_attempt_and_its_failure() -> None:
    network = Network()
    pool = network.pool()
    network.down = True
    failures = await asyncio.gather(*(pool.connection(TO, soon()) for _ in range(5)), return_exceptions=True)
    assert [type(failure) for failure in failures] == [UnreachableError] * 5
    network.down = False
    connections = await asyncio.gather(*(pool.connection(TO, soon()) for _ in range(5)))
    assert len(set(map(id, connections))) == 1
    assert network.attempts == 2
    await pool.close()


async def test_an_attempt_goes_on_after_the_deadline_of_its_caller() -> None:
    network = Network()
    network.delay_s = 0.05
    pool = network.pool()
    with pytest.raises(ConnectTimedOutError, match="before the deadline"):
        await pool.connection(TO, soon(0.01))
    assert (await pool.connection(TO, soon())).alive
    assert network.attempts == 1
    await pool.close()


async def test_a_deadline_before_the_end_of_the_backoff_raises_the_last_error_at_once() -> None:
    network = Network()
    network.down = True
    pool = network.pool(reconnect_backoff=Backoff(60_000, 60_000))
    for _ in range(2):
        with pytest.raises(UnreachableError, match="refused"):
            await pool.connection(TO, soon(1.0))
    assert network.attempts == 1
    await pool.close()


async def test_purposes_use_separate_connections() -> None:
    network = Network()
    pool = network.pool()
    first = await pool.connection(TO, soon())
    second = await pool.connection(TO._replace(purpose="heartbeat"), soon())
    assert first is not second
    assert pool.current(TO) is first
    await pool.close()
    assert not first.alive
    assert pool.current(TO) is None


async def test_the_least_recently_used_connection_is_closed_at_the_limit() -> None:
    network = Network()
    pool = network.pool(connections_max=2)
    connections = [await pool.connection(TO._replace(port=port), soon()) for port in (1, 2, 3)]
    assert [connection.alive for connection in connections] == [False, True, True]
    await pool.close()


async def test_requests_above_the_in_flight_limit_are_rejected_unsent() -> None:
    network = Network()
    pool = network.pool(in_flight_requests_max=2)
    connection = await pool.connection(TO, soon())
    network.silent = True
    waiting = [connection.send(HeartbeatRequest(), 0, soon()) for _ in range(2)]
    with pytest.raises(UnreachableError, match="has 2 unanswered requests"):
        await connection.send(HeartbeatRequest(), 0, soon())
    await pool.close()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [LostError, LostError]


async def test_wait_writable_waits_for_unsent_bytes_until_the_deadline() -> None:
    pool = Network().pool()
    connection = await pool.connection(TO, soon())
    connection.pause_writing()
    with pytest.raises(ConnectTimedOutError, match="was not sent"):
        await connection.wait_writable(soon(0.01))
    waiting = asyncio.ensure_future(connection.wait_writable(soon()))
    await asyncio.sleep(0)
    connection.resume_writing()
    await waiting
    await pool.close()


async def test_closing_the_pool_cancels_attempts() -> None:
    network = Network()
    network.delay_s = 60.0
    pool = network.pool()
    waiting = asyncio.ensure_future(pool.connection(TO, soon()))
    await asyncio.sleep(0)
    await pool.close()
    with pytest.raises(UnreachableError, match="closed by this side"):
        await waiting


async def test_sasl_follows_api_versions_before_the_first_request() -> None:
    network = Network()
    pool = network.pool(security=SecurityConfig(sasl=SaslConfig("PLAIN", "u", "p")))
    connection = await pool.connection(TO, soon())
    await connection.send(HeartbeatRequest(), connection.choose_version(ApiKey.HEARTBEAT), soon())
    assert [type(request).__name__ for request in network.requests] == [
        "ApiVersionsRequest",
        "SaslHandshakeRequest",
        "SaslAuthenticateRequest",
        "HeartbeatRequest",
    ]
    assert bytes(network.requests[2].auth_bytes) == b"\0u\0p"
    await pool.close()
