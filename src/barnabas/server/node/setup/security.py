"""Value: how the listeners of a node authenticate their clients, and how the node authenticates to other nodes.

`security_configs.py`, which builds it from the configuration, is imported only if a connection uses TLS or SASL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from barnabas.protocol.security.config import PLAINTEXT, SecurityConfig
from barnabas.protocol.transport.listener_security import ListenerSecurity
from barnabas.server.node.config import NodeConfig

if TYPE_CHECKING:
    from barnabas.protocol.transport.oauth.provider_keys import ProviderKeys


class NodeSecurity(Struct, frozen=True):
    """The security of a node; without arguments that of a node whose connections are all PLAINTEXT."""

    listeners: Mapping[str, ListenerSecurity] = field(default_factory=dict)
    """By the name of the listener; PLAINTEXT listeners are left out."""
    to_brokers: SecurityConfig = PLAINTEXT
    """How this node connects to other brokers."""
    to_controllers: SecurityConfig = PLAINTEXT
    provider_keys: tuple[ProviderKeys, ...] = ()
    """The keys with which listeners check the tokens of OAUTHBEARER; `Node` keeps them up to date."""


def is_secure(config: NodeConfig) -> bool:
    """Whether any connection of the node uses TLS or SASL."""
    endpoints = (*config.listeners, *config.controller_listeners)
    return config.controller_listener[1] != "PLAINTEXT" or any(
        endpoint.security_protocol != "PLAINTEXT" for endpoint in endpoints
    )
