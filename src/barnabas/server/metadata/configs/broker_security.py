"""Table: broker configs of authorization and delegation tokens.

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the descriptions are our own.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange
from barnabas.server.metadata.configs.rows import BROKER, LOW, class_, long, password, string

SECURITY_KEYS: Final[tuple[ConfigKey, ...]] = (
    string("authorizer.class.name", "", "The class of the authorizer; empty allows all operations.", importance=LOW),
    long(
        "delegation.token.expiry.check.interval.ms",
        3_600_000,
        "How often delegation tokens are checked for expiry.",
        InRange(1),
        importance=LOW,
    ),
    long(
        "delegation.token.expiry.time.ms",
        86_400_000,
        "How long a delegation token is valid before it must be renewed.",
        InRange(1),
    ),
    long("delegation.token.max.lifetime.ms", 604_800_000, "How long a delegation token can be renewed.", InRange(1)),
    password(
        "delegation.token.secret.key",
        "The secret key of delegation tokens, equal on every node; if unset, delegation tokens are disabled.",
    ),
    class_(
        "principal.builder.class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "The class that maps an authenticated connection to a principal.",
        update_mode=BROKER,
    ),
    string("security.providers", None, "The classes that provide security algorithms.", importance=LOW),
)
