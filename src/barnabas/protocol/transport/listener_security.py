"""Value: how the clients of one listener authenticate. `server/node/setup/security_configs.py` builds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.rng import Rng

if TYPE_CHECKING:
    from barnabas.protocol.security.sasl_conversation import SaslServerConfig
    from barnabas.protocol.transport.tls_server import TlsAcceptor


class ListenerSecurity(Struct, frozen=True):
    """`tls` is None for listeners without TLS, `sasl` is None for listeners without SASL."""

    clock: Clock
    rng: Rng
    tls: TlsAcceptor | None = None
    sasl: SaslServerConfig | None = None
