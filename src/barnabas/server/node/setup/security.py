"""Shell: how the listeners of a node authenticate their clients, and how the node authenticates to other nodes.

`security_configs.py`, which builds it from the configuration, is imported only if a connection uses TLS or SASL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from barnabas.core.clock import Clock
from barnabas.core.rng import Rng
from barnabas.protocol.security.config import PLAINTEXT, SecurityConfig
from barnabas.protocol.security.credentials import ScramCredential
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener_security import ListenerSecurity
from barnabas.server.metadata.image.cluster import ClusterImage, DelegationTokenImage
from barnabas.server.node.config import NodeConfig

if TYPE_CHECKING:
    from barnabas.protocol.transport.oauth.provider_keys import ProviderKeys
    from barnabas.server.node.setup.security_configs import SecuritySources


class NodeSecurity(Struct, frozen=True):
    """The security of a node; without arguments that of a node whose connections are all PLAINTEXT."""

    listeners: Mapping[str, ListenerSecurity] = field(default_factory=dict)
    """By the name of the listener; PLAINTEXT listeners are left out."""
    to_brokers: SecurityConfig = PLAINTEXT
    """How this node connects to other brokers."""
    to_controllers: SecurityConfig = PLAINTEXT
    provider_keys: tuple[ProviderKeys, ...] = ()
    """The keys with which listeners check the tokens of OAUTHBEARER; `Node` keeps them up to date."""


BuiltSecurity = tuple[ListenerSecurity | None, "tuple[ProviderKeys, ...]"]
"""The security of one listener, None for PLAINTEXT; and the keys that must be kept up to date for it."""


def is_secure(config: NodeConfig) -> bool:
    """Whether any connection of the node uses TLS or SASL."""
    endpoints = (*config.listeners, *config.controller_listeners)
    return config.controller_listener[1] != "PLAINTEXT" or any(
        endpoint.security_protocol != "PLAINTEXT" for endpoint in endpoints
    )


class SecurityBuilder:
    """Builds the security of a node, and that of listeners that are opened while it runs."""

    def __init__(self, clock: Clock, rng: Rng, image: Callable[[], ClusterImage | None]) -> None:
        """`rng` cannot be predicted. `image` returns the newest metadata, with the users and the tokens; None before
        the node has read any."""
        self._clock = clock
        self._rng = rng
        self._image = image

    def of_node(self, config: NodeConfig) -> NodeSecurity:
        """Raises ConfigError if a setting of TLS or SASL is wrong."""
        if not is_secure(config):
            return NodeSecurity()
        from barnabas.server.node.setup.security_configs import build_node_security

        return build_node_security(config, self._sources())

    def of_listener(self, config: NodeConfig, endpoint: ListenerEndpoint) -> BuiltSecurity:
        """Raises ConfigError if a setting of TLS or SASL is wrong."""
        if endpoint.security_protocol == "PLAINTEXT":
            return None, ()
        from barnabas.server.node.setup.security_configs import security_of_listener

        return security_of_listener(config, endpoint, self._sources())

    def _sources(self) -> SecuritySources:
        from barnabas.server.node.setup.security_configs import SecuritySources

        def scram_credential(mechanism: int, user: str) -> ScramCredential | None:
            image = self._image()
            return None if image is None else image.scram.get(mechanism, user)

        def token(token_id: str) -> DelegationTokenImage | None:
            image = self._image()
            return None if image is None else image.tokens.by_id.get(token_id)

        return SecuritySources(self._clock, asyncio.get_running_loop().time, self._rng, scram_credential, token)
