"""Shell: the outgoing connections of one client or node, one per destination, each opened when first needed.

    closed ──► back-off after a failure ──► TCP, TLS ──► ApiVersions ──► SASL ──► open ──► requests, in order
       ▲                                                                            │
       └──────────────────────── lost, or a request timed out ◄─────────────────────┘

All callers that need the same destination wait for one attempt to connect, each until its own deadline; the attempt
continues when their deadlines have passed. No request is sent twice: whether to repeat one is the caller's decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError
from barnabas.core.rng import Rng
from barnabas.protocol.transport.connection_config import ConnectionConfig, ConnectionErrors, Destination
from barnabas.protocol.transport.handshake import authenticate, negotiate_versions
from barnabas.protocol.transport.outgoing_connection import ConnectionOpener, OutgoingConnection, open_connection

if TYPE_CHECKING:
    from barnabas.protocol.security.config import SaslConfig
    from barnabas.protocol.transport.oauth.login_tokens import LoginTokens
    from barnabas.protocol.transport.tls import TlsInitiator


class _Slot:
    """The state of one destination."""

    __slots__ = ("attempt", "connection", "failures", "last_error", "retry_at")

    def __init__(self) -> None:
        self.connection: OutgoingConnection | None = None
        self.attempt: asyncio.Task[OutgoingConnection] | None = None
        self.failures = 0
        self.retry_at = 0.0
        self.last_error: KafkaError | None = None


class ConnectionPool:
    """Opens, keeps and closes connections. Use it on one event loop only, and `close` it."""

    def __init__(
        self, config: ConnectionConfig, errors: ConnectionErrors, rng: Rng, opener: ConnectionOpener = open_connection
    ) -> None:
        self._config = config
        self._errors = errors
        self._rng = rng
        self._opener = opener
        self.on_lost: Callable[[Destination], None] | None = None
        """Called when a connection that was open has ended, whichever side has closed it."""
        self.on_stalled: Callable[[OutgoingConnection], None] | None = None
        """Called every second while a connection's oldest request has no response (`OutgoingConnection.on_stalled`)."""
        self._slots: dict[Destination, _Slot] = {}
        self._tls: TlsInitiator | None = None
        self._tokens: LoginTokens | None = None
        """The tokens of OAUTHBEARER; None until the first connection is opened."""

    def replace_config(self, config: ConnectionConfig) -> None:
        """Open later connections with other settings; open connections are kept."""
        self._config = config
        self._tls = None

    @property
    def is_used(self) -> bool:
        """Whether a connection was opened, or an attempt to open one was made, since the pool was made or closed."""
        return bool(self._slots)

    def current(self, to: Destination) -> OutgoingConnection | None:
        """The open connection to `to`, if there is one."""
        slot = self._slots.get(to)
        if slot is None or slot.connection is None or not slot.connection.alive:
            return None
        return slot.connection

    async def connection(self, to: Destination, deadline: float | None = None) -> OutgoingConnection:
        """The open connection to `to`, opened if need be. `deadline` is in seconds of the loop's clock.

        Raises the exceptions of `ConnectionErrors`, or KafkaError if the peer refuses ApiVersions or SASL.
        """
        slot = self._slots.get(to)
        if slot is None:
            self._make_room()
            slot = self._slots[to] = _Slot()
        if slot.connection is not None and slot.connection.alive:
            return slot.connection
        loop = asyncio.get_running_loop()
        if deadline is not None and slot.retry_at > deadline and slot.last_error is not None:
            raise slot.last_error
        if slot.attempt is None:
            slot.attempt = loop.create_task(self._connect(to, slot), name=f"connect to {to}")
            slot.attempt.add_done_callback(lambda done: self._on_attempt_done(slot, done))
        attempt = slot.attempt
        left = None if deadline is None else max(deadline - loop.time(), 0.0)
        await asyncio.wait((attempt,), timeout=left)
        if not attempt.done():
            last = f" The attempt before that failed: {slot.last_error}" if slot.last_error else ""
            if self._tokens is not None and self._tokens.problem is not None:
                raise self._errors.connect_timed_out(to, f"No token for {to}: {self._tokens.problem}")
            raise self._errors.connect_timed_out(to, f"{to} did not accept a connection before the deadline.{last}")
        if attempt.cancelled():
            raise self._errors.unreachable(to, f"The connection to {to} was closed by this side.", None)
        return attempt.result()

    def least_busy(self, is_doubted: Callable[[Destination], bool] = lambda _: False) -> OutgoingConnection | None:
        """The open connection with the fewest unanswered requests; one that has stalled, or leads to a doubted node,
        only if there is no other."""
        alive = [s.connection for s in self._slots.values() if s.connection is not None and s.connection.alive]
        return min(
            alive, key=lambda each: (each.stalled_since is not None, is_doubted(each.to), each.in_flight), default=None
        )

    async def close(self) -> None:
        """Close every connection once its unsent bytes are sent. Unanswered requests fail."""
        slots = self._cancel_attempts()
        attempts = [slot.attempt for slot in slots if slot.attempt is not None]
        if attempts:
            await asyncio.wait(attempts)
        for slot in slots:
            if slot.connection is not None:
                await slot.connection.close()

    def abort(self) -> None:
        """Close every connection at once. Unanswered requests fail."""
        for slot in self._cancel_attempts():
            if slot.connection is not None:
                slot.connection.abort()

    # ---- inside

    def _cancel_attempts(self) -> list[_Slot]:
        slots = list(self._slots.values())
        self._slots.clear()
        if self._tokens is not None:
            self._tokens.close()
            self._tokens = None
        for slot in slots:
            if slot.attempt is not None:
                slot.attempt.cancel()
        return slots

    def _on_attempt_done(self, slot: _Slot, attempt: asyncio.Task[OutgoingConnection]) -> None:
        slot.attempt = None
        if not attempt.cancelled():
            attempt.exception()  # marks it as retrieved: all callers may have passed their deadlines

    async def _connect(self, to: Destination, slot: _Slot) -> OutgoingConnection:
        loop = asyncio.get_running_loop()
        if slot.retry_at > loop.time():
            await asyncio.sleep(slot.retry_at - loop.time())
        try:
            connection = await self._open(to, slot.failures)
        except KafkaError as error:
            slot.retry_at = loop.time() + self._backoff_s(slot.failures)
            slot.failures += 1
            slot.last_error = error
            raise
        slot.connection = connection
        connection.on_lost = lambda: self._on_lost(to)
        slot.failures = 0
        slot.last_error = None
        slot.retry_at = loop.time() + self._backoff_s(0)  # a connection that is lost at once is not opened at once
        self._close_idle(loop.time())
        return connection

    async def _open(self, to: Destination, failures: int) -> OutgoingConnection:
        config = self._config
        security = config.security
        setup_ms = config.socket_connection_setup_timeout_ms * 2.0 ** min(failures, 10)
        setup_ms = min(setup_ms, config.socket_connection_setup_timeout_max_ms)
        if security.tls is not None and self._tls is None:
            from barnabas.protocol.transport.tls import TlsInitiator

            self._tls = TlsInitiator(security.tls, asyncio.get_running_loop().time)
        tls = None if self._tls is None else self._tls.context
        connection = await self._opener(to, config, self._errors, setup_s=setup_ms / 1000.0, tls=tls)
        connection.on_stalled = self.on_stalled
        try:
            deadline = asyncio.get_running_loop().time() + config.request_timeout_ms / 1000.0
            connection.versions = await negotiate_versions(connection, config, deadline)
            if security.sasl is not None:
                tokens = self._token_source(security.sasl)
                lifetime_ms = await authenticate(connection, security.sasl, deadline, self._rng, tokens)
                if lifetime_ms:
                    from barnabas.protocol.transport.reauthentication import Reauthentication

                    renewing = Reauthentication(connection, security.sasl, self._rng, config.request_timeout_ms, tokens)
                    renewing.schedule(lifetime_ms)
        except BaseException:  # cancellation, too: the connection must not stay open
            connection.abort()
            raise
        return connection

    def _token_source(self, sasl: SaslConfig) -> LoginTokens | None:
        if sasl.oauth is not None and self._tokens is None:
            from barnabas.protocol.transport.oauth.login_tokens import LoginTokens

            self._tokens = LoginTokens(sasl.oauth, self._rng)
        return self._tokens

    def _on_lost(self, to: Destination) -> None:
        if self.on_lost is not None:
            self.on_lost(to)

    def _backoff_s(self, failures: int) -> float:
        return self._config.reconnect_backoff.delay_ms(failures, self._rng) / 1000.0

    def _close_idle(self, now: float) -> None:
        """Close connections that were idle for connections.max.idle.ms. Called whenever a connection is opened."""
        idle_ms = self._config.connections_max_idle_ms
        if idle_ms <= 0:
            return
        idle_since = now - idle_ms / 1000.0
        for to, slot in list(self._slots.items()):
            connection = slot.connection
            if connection is not None and (
                not connection.alive or (connection.last_used < idle_since and not connection.in_flight)
            ):
                connection.abort()
                if slot.attempt is None:
                    del self._slots[to]

    def _make_room(self) -> None:
        """Close the least recently used connection if the pool is full."""
        if len(self._slots) < self._config.connections_max:
            return
        oldest = min(self._slots, key=lambda to: self._last_used(self._slots[to]))
        slot = self._slots.pop(oldest)
        if slot.attempt is not None:
            slot.attempt.cancel()
        if slot.connection is not None:
            slot.connection.abort("The connection was closed by this side, because too many are open.")

    @staticmethod
    def _last_used(slot: _Slot) -> float:
        return slot.retry_at if slot.connection is None else slot.connection.last_used
