"""Shell: the requests of a node (a broker or a controller) to other nodes, over a `ConnectionPool`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng
from barnabas.protocol.security.config import PLAINTEXT, SecurityConfig
from barnabas.protocol.transport.connection_config import ConnectionConfig, ConnectionErrors, Destination
from barnabas.protocol.transport.connection_pool import ConnectionPool
from barnabas.protocol.transport.outgoing_connection import OutgoingConnection
from barnabas.protocol.wire.apis import API_KEYS, ApiKey
from barnabas.protocol.wire.frame_buffer import ReceiveMemory
from barnabas.protocol.wire.schema import Request, Response

IN_FLIGHT_MAX: Final = 1_000
"""The limit for unanswered requests of one connection; more are rejected."""
_REUSED_BYTES_MAX: Final = 8 * 1024 * 1024
"""Memory that a node keeps for the next large responses, which are those to the Fetch requests of its replicas."""


class UnansweredError(KafkaError):
    """The request was sent, and no response will come: the other node may have handled the request, or not."""


class NodeRefusedError(KafkaError):
    """The host refused the connection: no process listens on the port."""


class _NodeErrors(ConnectionErrors):
    def unreachable(self, to: Destination, message: str, cause: BaseException | None) -> KafkaError:
        kind = NodeRefusedError if isinstance(cause, ConnectionRefusedError) else KafkaError
        return kind(ErrorCode.BROKER_NOT_AVAILABLE, message)

    def connect_timed_out(self, to: Destination, message: str) -> KafkaError:
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)

    def lost(self, message: str) -> KafkaError:
        return UnansweredError(ErrorCode.BROKER_NOT_AVAILABLE, message)

    def timed_out(self, message: str) -> KafkaError:
        return UnansweredError(ErrorCode.REQUEST_TIMED_OUT, message)

    def unsupported(self, message: str) -> KafkaError:
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)

    def untrusted(self, message: str) -> KafkaError:
        return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, message)


class NodeClient:
    """Sends requests to other nodes. While `run` does not run, `send` raises BROKER_NOT_AVAILABLE.

    `security` says how to connect to the listeners that nodes use among themselves.
    """

    def __init__(self, client_id: str, rng: Rng, security: SecurityConfig = PLAINTEXT) -> None:
        self._config = ConnectionConfig(
            client_id=client_id,
            client_software_name="barnabas-node",
            security=security,
            socket_connection_setup_timeout_max_ms=10_000,
            request_timeout_ms=10_000,
            in_flight_requests_max=IN_FLIGHT_MAX,
            memory=ReceiveMemory(reused_bytes_max=_REUSED_BYTES_MAX),
            api_versions_version_max=3,  # a controller that does not know its cluster yet serves no newer one
        )
        self._rng = rng
        self._pool: ConnectionPool | None = None
        self._on_lost: dict[str, Callable[[], None]] = {}

    def replace_security(self, security: SecurityConfig) -> None:
        """Open later connections with other security settings; open connections are kept."""
        self._config = replace(self._config, security=security)
        if self._pool is not None:
            self._pool.replace_config(self._config)

    async def run(self) -> None:
        """Runs until cancelled; then every connection is closed, and every unanswered request fails."""
        pool = self._pool = ConnectionPool(self._config, _NodeErrors(), self._rng)
        pool.on_lost = self._notify_lost
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._pool = None
            pool.abort()

    def on_lost(self, purpose: str, notify: Callable[[], None]) -> None:
        """Call `notify` whenever an open connection of this purpose has ended. There is one `notify` per purpose."""
        self._on_lost[purpose] = notify

    def _notify_lost(self, to: Destination) -> None:
        notify = self._on_lost.get(to.purpose)
        if notify is not None and self._pool is not None:
            notify()

    async def connection(self, to: Destination, deadline: float) -> OutgoingConnection:
        """An open connection, for a caller that builds its request for the version that the other node serves.
        `deadline` is in seconds of the loop's clock. Raises KafkaError as `send` does."""
        pool = self._pool
        if pool is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "This node is starting or shutting down.")
        return pool.current(to) or await pool.connection(to, deadline)

    async def send(
        self,
        host: str,
        port: int,
        request: Request,
        *,
        timeout_ms: int,
        purpose: str = "",
        version_max: int | None = None,
    ) -> Response:
        """The response to `request`, which is sent in the highest version that both nodes know.

        Requests with different purposes use separate connections; those of one purpose are answered in order.
        Raises KafkaError: BROKER_NOT_AVAILABLE (no connection, or it was lost), REQUEST_TIMED_OUT, UNSUPPORTED_VERSION,
        or the error with which the other node refuses ApiVersions or SASL. Only after an UnansweredError may the other
        node have handled the request; any other error means that the request was not sent. If no process listens on
        `port`, BROKER_NOT_AVAILABLE is a NodeRefusedError.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        connection, version = await self._connection_and_version(
            Destination(host, port, purpose), API_KEYS[request.__schema__.key], version_max, deadline
        )
        await connection.wait_writable(deadline)
        response: Response = await connection.send(request, version, deadline)
        return response

    async def version_of(
        self, host: str, port: int, key: ApiKey, *, timeout_ms: int, purpose: str = "", version_max: int
    ) -> int:
        """The highest version of the API up to `version_max` that both nodes know, for a request that is sent inside
        another one (an Envelope). Raises KafkaError as `send` does."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        _, version = await self._connection_and_version(Destination(host, port, purpose), key, version_max, deadline)
        return version

    async def _connection_and_version(
        self, to: Destination, key: ApiKey, version_max: int | None, deadline: float
    ) -> tuple[OutgoingConnection, int]:
        """The connection to `to`, and the version of the API to use on it. Raises KafkaError as `send` does."""
        connection = await self.connection(to, deadline)
        try:
            return connection, connection.choose_version(key, max_version=version_max, unstable=True)
        except KafkaError:
            if not connection.in_flight:  # a controller serves more APIs once it knows its cluster: negotiate again
                connection.abort(f"The connection to {to} was closed, to learn anew which APIs the node serves.")
            raise
