"""Shell: binds the ports of a node before anything is written, because a port in use is a common startup error.

The sockets are bound but do not listen yet: a node that is not ready refuses connections, so clients use another node.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from msgspec import Struct

from barnabas.protocol.transport.endpoint import ListenerEndpoint

Listen = Callable[[ListenerEndpoint], socket.socket]


class TakenPort(Struct, frozen=True):
    """A bound socket, its endpoint with the bound port, and the advertised endpoint."""

    endpoint: ListenerEndpoint
    advertised: ListenerEndpoint
    sock: socket.socket


def take_ports(
    listen: Listen, endpoints: Sequence[ListenerEndpoint], advertised: Sequence[ListenerEndpoint]
) -> list[TakenPort]:
    """Bind all `endpoints`. If one is in use, releases the others and raises OSError."""
    taken: list[TakenPort] = []
    try:
        for endpoint, endpoint_advertised in zip(endpoints, advertised, strict=True):
            sock = listen(endpoint)
            bound = endpoint.with_port(sock.getsockname()[1])
            taken.append(TakenPort(bound, _reachable(endpoint_advertised, bound), sock))
    except OSError:
        release_ports(taken)
        raise
    return taken


def release_ports(taken: Sequence[TakenPort]) -> None:
    for port in taken:
        port.sock.close()


def _reachable(endpoint_advertised: ListenerEndpoint, bound: ListenerEndpoint) -> ListenerEndpoint:
    """Replace an address to which others cannot connect, such as 0.0.0.0, by the name of this host."""
    host = endpoint_advertised.host if endpoint_advertised.host not in ("", "0.0.0.0", "::") else socket.gethostname()
    return ListenerEndpoint(
        endpoint_advertised.name, host, endpoint_advertised.port or bound.port, endpoint_advertised.security_protocol
    )
