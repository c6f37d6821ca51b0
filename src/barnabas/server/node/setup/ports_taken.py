"""Shell: the ports of a node, taken before anything is written: one in use is the most common reason not to start.

They are taken, and do not listen: a node that is not ready refuses connections, so that clients go to another one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from msgspec import Struct

from barnabas.protocol.transport.endpoint import ListenerEndpoint

Listen = Callable[[ListenerEndpoint], socket.socket]


class TakenPort(Struct, frozen=True):
    """A bound socket, the endpoint with the port that was found, and what others are told of it."""

    endpoint: ListenerEndpoint
    advertised: ListenerEndpoint
    sock: socket.socket


def take_ports(
    listen: Listen, endpoints: Sequence[ListenerEndpoint], advertised: Sequence[ListenerEndpoint]
) -> list[TakenPort]:
    """All of them or none. Raises OSError for one that is in use."""
    taken: list[TakenPort] = []
    try:
        for endpoint, told in zip(endpoints, advertised, strict=True):
            sock = listen(endpoint)
            bound = endpoint.with_port(sock.getsockname()[1])
            taken.append(TakenPort(bound, _reachable(told, bound), sock))
    except OSError:
        release_ports(taken)
        raise
    return taken


def release_ports(taken: Sequence[TakenPort]) -> None:
    for port in taken:
        port.sock.close()


def _reachable(told: ListenerEndpoint, bound: ListenerEndpoint) -> ListenerEndpoint:
    """Without an address that others could use, the name of this host stands in."""
    host = told.host if told.host not in ("", "0.0.0.0", "::") else socket.gethostname()
    return ListenerEndpoint(told.name, host, told.port or bound.port, told.security_protocol)
