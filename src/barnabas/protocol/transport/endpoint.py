"""Value: a listener's address, `NAME://host:port`, as `listeners` and `advertised.listeners` write it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import BarnabasError

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:/]*)):(?P<port>\d+)\Z"
)


class EndpointError(BarnabasError):
    """A listener address is malformed, or its security protocol is unknown."""


class ListenerEndpoint(Struct, frozen=True):
    """The address that a listener binds, or advertises to clients. Port 0 means any free port."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def with_port(self, port: int) -> ListenerEndpoint:
        return replace(self, port=port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_endpoint(text: str, protocols: Mapping[str, str] | None = None) -> ListenerEndpoint:
    """Parse one address. `protocols` is `listener.security.protocol.map`; a name such as SSL needs no entry there.

    Raises EndpointError.
    """
    match = _ENDPOINT.match(text.strip())
    if match is None:
        raise EndpointError(
            f"{text!r} is not a listener: write NAME://host:port, for example PLAINTEXT://127.0.0.1:9092"
        )
    name = match["name"].upper()
    port = int(match["port"])
    if port > 65535:
        raise EndpointError(f"{text!r}: a port is a number from 0 to 65535")
    protocol = (protocols or {}).get(name, name)
    if protocol not in SECURITY_PROTOCOLS:
        raise EndpointError(
            f"{text!r}: no security protocol is known for listener name {name}; "
            f"map it in listener.security.protocol.map (one of {', '.join(SECURITY_PROTOCOLS)})"
        )
    return ListenerEndpoint(name, match["v6"] or match["host"] or "", port, protocol)


def parse_endpoints(text: str, protocols: Mapping[str, str] | None = None) -> tuple[ListenerEndpoint, ...]:
    """Parse a comma-separated list of addresses. Raises EndpointError, also if two listeners have the same name."""
    endpoints = tuple(parse_endpoint(part, protocols) for part in text.split(",") if part.strip())
    names = [endpoint.name for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise EndpointError(f"the listener name {name} is used twice in {text!r}: give each listener its own name")
    return endpoints


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parse `listener.security.protocol.map`, for example `INTERNAL:PLAINTEXT,EXTERNAL:SSL`. Raises EndpointError."""
    result: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = part.partition(":")
        if not colon or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise EndpointError(f"{part!r} in listener.security.protocol.map: write NAME:PROTOCOL")
        result[name.strip().upper()] = protocol.strip().upper()
    return result
