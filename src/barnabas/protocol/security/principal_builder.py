"""Port: the class that maps an authenticated connection to its principal (`principal.builder.class`, KIP-189).

The config names a Python class, as `package.module:Class` or `package.module.Class`, whose constructor gets the configs
of the node as texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, cast

from msgspec import Struct

from barnabas.core.plugins import check_methods, load_class
from barnabas.protocol.security.principals import KafkaPrincipal

SETTING: Final = "principal.builder.class"
_DEFAULT: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


class AuthenticationContext(Struct, frozen=True):
    """A connection whose client has authenticated, or has connected to a PLAINTEXT listener."""

    listener: str
    security_protocol: str
    client_host: str
    principal: KafkaPrincipal
    """The principal that the connection has without the class: by the user name, or by the certificate and
    `ssl.principal.mapping.rules`."""
    certificate: bytes | None = None
    """The client's certificate in DER form, on a listener with the protocol SSL."""


class PrincipalBuilder(Protocol):
    """Maps connections to principals. The method is called on the event loop and must not block. An exception closes
    the connection."""

    def build(self, context: AuthenticationContext) -> KafkaPrincipal: ...


def build_principal_builder(configs: Mapping[str, str]) -> PrincipalBuilder | None:
    """The class of a user; None if none is configured. Raises ConfigError."""
    name = configs.get(SETTING, "").strip()
    if not name or name == _DEFAULT:
        return None
    builder = load_class(SETTING, name, _DEFAULT)(configs)
    check_methods(SETTING, builder, ("build",), "barnabas.protocol.security.principal_builder.PrincipalBuilder")
    return cast("PrincipalBuilder", builder)
