"""Shell: renews the SASL session of an outgoing connection before the session expires (KIP-368).

    85 to 95 % of the lifetime -> requests are held -> SaslHandshake, SaslAuthenticate -> held requests are sent

The other side closes the connection with the first request after the end of the session, and that request would be
lost. Imported only if a server has announced a lifetime.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from barnabas.core.errors import BarnabasError
from barnabas.core.rng import Rng
from barnabas.protocol.security.config import SaslConfig
from barnabas.protocol.transport.handshake import TokenSource, authenticate
from barnabas.protocol.transport.outgoing_connection import OutgoingConnection
from barnabas.protocol.wire.apis import ApiKey

_EARLIEST: Final = 0.85
_SPREAD: Final = 0.10
"""The part of a lifetime after which a session is renewed lies between 0.85 and 0.95, as in Kafka's clients."""


class Reauthentication:
    """Renews the session of one connection, again and again, until the connection has ended."""

    def __init__(
        self,
        connection: OutgoingConnection,
        config: SaslConfig,
        rng: Rng,
        request_timeout_ms: int,
        tokens: TokenSource | None = None,
    ) -> None:
        self.peer = connection.peer
        self.host = connection.host
        self._connection = connection
        self._config = config
        self._rng = rng
        self._tokens = tokens
        self._request_timeout_ms = request_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def schedule(self, lifetime_ms: int) -> None:
        """Renew the session, which has begun now and lasts for `lifetime_ms`."""
        share = _EARLIEST + _SPREAD * self._rng.random()
        self._connection.renewal = self._loop.call_later(lifetime_ms / 1000 * share, self._begin)

    def _begin(self) -> None:
        if self._connection.alive:
            self._task = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        connection = self._connection
        connection.hold_requests()
        deadline = self._loop.time() + self._request_timeout_ms / 1000
        try:
            lifetime_ms = await authenticate(self, self._config, deadline, self._rng, self._tokens)
        except BarnabasError as error:
            connection.abort(f"The session with {self.peer} could not be renewed: {error}")
        else:
            if lifetime_ms:
                self.schedule(lifetime_ms)
        finally:
            connection.send_held_requests()

    # ---- what `authenticate` needs of a connection

    def choose_version(self, key: ApiKey) -> int:
        return self._connection.choose_version(key)

    def send(self, message: Any, version: int, deadline: float | None = None) -> asyncio.Future[Any]:
        return self._connection.send_before_held(message, version, deadline)
