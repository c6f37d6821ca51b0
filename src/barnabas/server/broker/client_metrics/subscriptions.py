"""Machine: which metrics a client is to push, by the client-metrics subscriptions in the cluster's metadata (KIP-714).

A subscription matches a client if each of its patterns matches the whole value of one attribute. A client that several
subscriptions match pushes the metrics of all of them, at the shortest of their intervals. A client that none matches
pushes nothing and asks again after five minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from msgspec import Struct

from barnabas.core.errors import KafkaError
from barnabas.protocol.records.crc import crc32c
from barnabas.protocol.wire.regex import Re2Pattern
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.image.cluster import ConfigsImage, ResourceType

DEFAULT_INTERVAL_MS: Final = 300_000
ALL: Final = "*"


class ClientAttributes(Struct, frozen=True):
    """The attributes of a client that patterns match, and its principal, which they do not match."""

    client_instance_id: str = ""
    client_id: str = ""
    client_software_name: str = ""
    client_software_version: str = ""
    client_source_address: str = ""
    client_source_port: str = ""
    principal: str = ""


class Subscription(Struct, frozen=True):
    """One client-metrics resource."""

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, Re2Pattern], ...]

    def matches(self, client: ClientAttributes) -> bool:
        """Whether the client is to push the metrics of this subscription."""
        return all(pattern.matches(getattr(client, attribute)) for attribute, pattern in self.patterns)


class WantedMetrics(Struct, frozen=True):
    """What one client is to push, and how often."""

    metrics: tuple[str, ...] = ()
    """Prefixes of names; `*` for all; empty for none."""
    interval_ms: int = DEFAULT_INTERVAL_MS

    def includes(self, name: str) -> bool:
        """Whether the client is to push the metric of this name."""
        return any(prefix == ALL or name.startswith(prefix) for prefix in self.metrics)

    def subscription_id(self, instance: UUID) -> int:
        """A number, signed with 32 bits, that changes with the metrics or the interval."""
        checksum = crc32c(f"{','.join(self.metrics)}{self.interval_ms}".encode())
        number = (checksum ^ hash_of(instance)) & 0xFFFF_FFFF
        return number - (1 << 32) if number >> 31 else number


def hash_of(instance: UUID) -> int:
    """Java's hash of a UUID: the two halves of its two halves, combined."""
    high, low = instance.int >> 64, instance.int & 0xFFFF_FFFF_FFFF_FFFF
    mixed = high ^ low
    return (mixed >> 32 ^ mixed) & 0xFFFF_FFFF


def read_subscriptions(
    view: ConfigView, configs: ConfigsImage
) -> tuple[tuple[Subscription, ...], dict[str, KafkaError]]:
    """All subscriptions, by name; and the errors of those whose `match` cannot be compiled.

    A controller of Apache Kafka accepts Java's expressions; RE2 has neither look-around nor back references.
    """
    found: list[Subscription] = []
    unreadable: dict[str, KafkaError] = {}
    for name in sorted(configs.names(ResourceType.CLIENT_METRICS)):
        try:
            found.append(_subscription(name, view.client_metrics(name)))
        except KafkaError as error:
            unreadable[name] = error
    return tuple(found), unreadable


def wanted_of(subscriptions: tuple[Subscription, ...], client: ClientAttributes) -> WantedMetrics:
    """What the client is to push."""
    matching = [subscription for subscription in subscriptions if subscription.matches(client)]
    if not matching:
        return WantedMetrics()
    prefixes = {prefix for subscription in matching for prefix in subscription.metrics}
    metrics = (ALL,) if ALL in prefixes else tuple(sorted(prefixes))
    return WantedMetrics(metrics, min(subscription.interval_ms for subscription in matching))


def _subscription(name: str, values: Mapping[str, object]) -> Subscription:
    metrics, match, interval = values["metrics"], values["match"], values["interval.ms"]
    assert isinstance(metrics, tuple | list), "metrics is a list"
    assert isinstance(match, tuple | list), "match is a list"
    assert isinstance(interval, int), "interval.ms is a number"
    patterns = [pattern.partition("=") for pattern in match if pattern.strip()]
    return Subscription(
        name,
        tuple(metrics),
        interval,
        tuple((attribute.strip(), Re2Pattern(expression.strip())) for attribute, _, expression in patterns),
    )
