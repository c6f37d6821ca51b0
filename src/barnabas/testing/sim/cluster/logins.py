"""Table: how the nodes and the clients of a simulated cluster log in, if its layout has SASL.

Clients and brokers use SCRAM, whose users are in the metadata. Nodes reach controllers by PLAIN, because they need the
metadata before they know the users. Sessions are short, so that all connections authenticate anew during the faults.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

MECHANISM: Final = "SCRAM-SHA-256"
SESSION_MS: Final = 3_000
CLIENT: Final = "client"
"""The user of the clients of the workload."""
NODE: Final = "node"
_MODULES: Final = "org.apache.kafka.common.security"
NODE_LOGINS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": MECHANISM,
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"listener.name.clients.{MECHANISM.lower()}.sasl.jaas.config": (
            f'{_MODULES}.scram.ScramLoginModule required username="{NODE}" password="{NODE}-secret";'
        ),
        "listener.name.controller.plain.sasl.jaas.config": (
            f'{_MODULES}.plain.PlainLoginModule required username="{NODE}" password="{NODE}-secret"'
            f' user_{NODE}="{NODE}-secret";'
        ),
        "connections.max.reauth.ms": str(SESSION_MS),
    }
)
"""The settings of every node."""
FIRST_USERS: Final = tuple(f"{MECHANISM}=[name={name},password={name}-secret]" for name in (NODE, CLIENT))


def login_of(user: str) -> dict[str, str]:
    """The settings of a client that logs in as `user`, whose password is USER-secret."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": MECHANISM,
        "sasl_username": user,
        "sasl_password": f"{user}-secret",
    }
