"""Shell: tries handshakes in memory between the previous and the new certificates of the nodes of a cluster.

While certificates are replaced on one node after the other, nodes with the previous stores and nodes with the new ones
connect to each other. Kafka's `SslFactory` makes the same test before it accepts a change.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from barnabas.core.config import ConfigError
from barnabas.protocol.transport.tls import build_tls_context

if TYPE_CHECKING:
    from barnabas.protocol.transport.tls_server import TlsServerConfig

_TURNS_MAX: Final = 20
"""A handshake takes three turns."""


def check_agreement(before: TlsServerConfig, after: TlsServerConfig) -> None:
    """Raises ConfigError if a node with the settings `before` and one with `after` would refuse each other."""
    for server, client, what in (
        (after, before, "A node with the previous certificates could not connect to this one"),
        (before, after, "This node could not connect to one with the previous certificates"),
    ):
        try:
            _shake_hands(server, client)
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or str(error)
            raise ConfigError(
                f"{what}: {reason}. Add the new authority to the trust stores of all nodes first, and replace the"
                " certificates afterwards."
            ) from error


def _shake_hands(server: TlsServerConfig, client: TlsServerConfig) -> None:
    from barnabas.protocol.transport.tls_server import build_server_context

    context = build_tls_context(client.tls)
    context.check_hostname = False  # the name at which the node is reached is not known here
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        context.wrap_bio(to_client, to_server, server_side=False),
        build_server_context(server).wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_TURNS_MAX):
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
        if not waiting:
            return
    raise ssl.SSLError("the handshake does not end")
