"""Shell: opens and keeps connections, one per node: transport, TLS, ApiVersions, SASL, reconnect back-off.

Whoever needs a node first opens the connection; others who need the same node wait for that attempt. A node that
refused is left alone for `reconnect.backoff.ms`, doubling to `reconnect.backoff.max.ms`.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field

import barnabas
from barnabas.client.cluster.authentication import authenticate
from barnabas.client.cluster.connection import Connection, ConnectionOpener
from barnabas.client.cluster.tls import build_tls_context
from barnabas.client.cluster.versions import BrokerVersions
from barnabas.client.errors import BrokerUnreachableError
from barnabas.client.options import ClusterOptions
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.rng import Rng
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


@dataclass(frozen=True, slots=True)
class Node:
    """An endpoint to connect to: a broker, or (without an id) a bootstrap server. `channel` sets connections apart."""

    broker_id: int | None
    host: str
    port: int
    channel: str = ""

    def __str__(self) -> str:
        if self.broker_id is None:
            return f"bootstrap server {self.host}:{self.port}"
        return f"broker {self.broker_id} at {self.host}:{self.port}"


@dataclass(slots=True)
class _Slot:
    """What is known about one node's connection."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: Connection | None = None
    failures: int = 0
    retry_at: float = 0.0
    last_error: KafkaError | None = None


class Connector:
    """The open connections of one client."""

    def __init__(self, options: ClusterOptions, rng: Rng, opener: ConnectionOpener) -> None:
        self._open_connection = opener
        self._options = options
        self._rng = rng
        self._slots: dict[Node, _Slot] = {}
        self._tls: ssl.SSLContext | None = None

    async def connection(self, node: Node, deadline: float | None = None) -> Connection:
        """The open connection to `node`, opened if need be. Raises BrokerUnreachableError, or a SASL KafkaError."""
        slot = self._slots.get(node)
        if slot is None:
            slot = self._slots[node] = _Slot()
        if slot.connection is not None and slot.connection.alive:
            return slot.connection
        async with slot.lock:
            if slot.connection is not None and slot.connection.alive:
                return slot.connection
            slot.connection = None
            loop = asyncio.get_running_loop()
            wait = slot.retry_at - loop.time()
            if wait > 0:
                if deadline is not None and loop.time() + wait > deadline and slot.last_error is not None:
                    raise slot.last_error
                await asyncio.sleep(wait)
            try:
                slot.connection = await self._open(node, slot.failures, deadline)
            except KafkaError as error:
                delay = self._options.reconnect_backoff.delay_ms(slot.failures, self._rng) / 1000.0
                slot.failures += 1
                slot.retry_at = loop.time() + delay
                slot.last_error = error
                raise
            slot.failures = 0
            slot.last_error = None
            self._close_idle(loop.time())
            return slot.connection

    def least_busy(self) -> Connection | None:
        """The open connection with the fewest unanswered requests."""
        alive = [s.connection for node, s in self._slots.items() if s.connection is not None and s.connection.alive]
        return min(alive, key=lambda connection: connection.in_flight, default=None)

    async def close(self) -> None:
        connections = [slot.connection for slot in self._slots.values() if slot.connection is not None]
        self._slots.clear()
        for connection in connections:
            await connection.close()

    def _close_idle(self, now: float) -> None:
        idle_since = now - self._options.connections_max_idle_ms / 1000.0
        for node, slot in list(self._slots.items()):
            connection = slot.connection
            if connection is not None and (
                not connection.alive or (connection.last_used < idle_since and not connection.in_flight)
            ):
                connection.abort()
                if not slot.lock.locked():
                    del self._slots[node]

    async def _open(self, node: Node, failures: int, deadline: float | None) -> Connection:
        options = self._options
        loop = asyncio.get_running_loop()
        timeout = min(options.connect_timeout_ms * 2.0 ** min(failures, 10), options.connect_timeout_max_ms) / 1000.0
        if deadline is not None:
            timeout = max(min(timeout, deadline - loop.time()), 0.001)
        if options.security.uses_tls and self._tls is None:
            self._tls = build_tls_context(options.security)
        try:
            connection = await self._open_connection(
                node.host, node.port, peer=str(node), client_id=options.client_id, setup_s=timeout, tls=self._tls
            )
        except BrokerUnreachableError as error:
            raise BrokerUnreachableError(str(error) + self._advertised_hint(node)) from error
        connection.size_socket(options.send_buffer_bytes, options.receive_buffer_bytes)
        try:
            limit = loop.time() + options.request_timeout_ms / 1000.0
            if deadline is not None:
                limit = min(limit, deadline)
            connection.versions = await _negotiate(connection, limit)
            if options.security.uses_sasl:
                await authenticate(connection, options.security, limit, self._rng)
        except BaseException:
            connection.abort()
            raise
        return connection

    def _advertised_hint(self, node: Node) -> str:
        """The most common mistake with Kafka deserves a sentence of its own."""
        if node.broker_id is None or (node.host, node.port) in self._options.bootstrap_servers:
            return ""
        return (
            " That address is what the broker advertises (advertised.listeners), and it differs from bootstrap.servers:"
            f" the broker must advertise a name and port that this machine can reach; {node.host}:{node.port} is none."
        )


async def _negotiate(connection: Connection, deadline: float) -> BrokerVersions:
    """ApiVersions, from our newest version down. A broker that does not know it answers with version 0 (KIP-511)."""
    api = APIS[ApiKey.API_VERSIONS]
    version = api.max_version - (1 if api.latest_version_unstable else 0)
    while True:
        request = ApiVersionsRequest(
            client_software_name="barnabas", client_software_version=barnabas.__version__.replace("+", "-")
        )
        if version < 3:
            request = ApiVersionsRequest()
        response: ApiVersionsResponse = await connection.send(request, version, deadline)
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            return BrokerVersions.from_response(response)
        if code is not ErrorCode.UNSUPPORTED_VERSION or version == 0:
            raise KafkaError(code, f"{connection.peer} refused ApiVersions: {code.message}")
        theirs = BrokerVersions.from_response(response).ranges.get(int(ApiKey.API_VERSIONS))
        version = min(theirs[1], version - 1) if theirs else 0
