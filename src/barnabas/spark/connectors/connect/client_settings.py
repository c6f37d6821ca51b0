"""Codec: the keys `consumer.*`, `producer.*` and `admin.*` of a worker -> settings of its connectors' Kafka clients.

As in Connect, `consumer.*` are settings of the consumers of sinks, `producer.*` of the producers of sources and of dead
letters. They have precedence over the settings of the worker's own clients, and a connector's `consumer.override.*` and
`producer.override.*` over them. Source: org.apache.kafka.connect.runtime.Worker (consumerConfigs, producerConfigs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from barnabas.client.config import CONSUMER_CONFIGS, PRODUCER_CONFIGS, check_names
from barnabas.core.config import ConfigError
from barnabas.core.reprs import repr_without
from barnabas.spark.errors import OptionError
from barnabas.spark.given_options import GivenOptions

OF_CONSUMERS: Final = "consumer.override."
OF_PRODUCERS: Final = "producer.override."
"""The starts of a connector's own settings."""
RESET: Final = "auto.offset.reset"
STARTING: Final = ("earliest", "latest")
"""Where a sink can begin: the values of auto.offset.reset."""
_ROLES: Final = {"consumer.": (OF_CONSUMERS, CONSUMER_CONFIGS), "producer.": (OF_PRODUCERS, PRODUCER_CONFIGS)}
_ADMIN: Final = "admin."
_NO_ADMIN: Final = "topics are created by the clients that write to them: use producer.*"
_EXACTLY_ONCE: Final = {"acks": ("all", "-1"), "enable.idempotence": ("true",)}
"""The settings of producers with which sources are exactly once, and their values."""
_BROKERS: Final = {"kafka.bootstrap.servers": "localhost:9092"}


class ClientSettings(Struct, frozen=True):
    """`overrides` are the settings by the names that a connector would give them (`consumer.override.*`). `unused` are
    the keys that have no effect, and why.
    """

    overrides: Mapping[str, str]
    unused: tuple[tuple[str, str], ...]

    __repr__ = repr_without("overrides")


def parse_client_settings(properties: Mapping[str, str]) -> ClientSettings:
    """The settings in the properties of a worker. Names that no Kafka client has are unused, as in Connect: they may
    belong to plugins. Raises ConfigError for a wrong auto.offset.reset.
    """
    overrides: dict[str, str] = {}
    unused: list[tuple[str, str]] = []
    for key, text in properties.items():
        if key.startswith(_ADMIN):
            unused.append((key, _unknown(_ADMIN, key) or _NO_ADMIN))
            continue
        role = next((role for role in _ROLES if key.startswith(role)), None)
        if role is None:
            continue
        name = key.removeprefix(role)
        if reason := _unknown(role, key):
            unused.append((key, reason))
            continue
        prefix, known = _ROLES[role]
        if prefix == OF_PRODUCERS and not _is_exactly_once(name, text):
            unused.append((key, f"sources are exactly once; use {prefix}{name} with delivery=at-least-once"))
            continue
        problem = setting_problem(prefix, name, text)
        if prefix == OF_CONSUMERS and name == RESET and problem is not None:
            raise ConfigError(problem.replace(prefix, role))
        if problem is not None:
            unused.append((key, problem.partition(": ")[2] or problem))
        elif name not in known:
            unused.append((key, f"no {role.rstrip('.')} here has this setting"))
        else:
            overrides[prefix + name] = text
    return ClientSettings(overrides, tuple(unused))


def _unknown(role: str, key: str) -> str | None:
    """Why no Kafka client has a setting; None if one has it."""
    try:
        check_names([key.removeprefix(role)], prefix=role)
    except ConfigError as error:
        return str(error)
    return None


def _is_exactly_once(name: str, text: str) -> bool:
    """Whether a producer with this setting can be exactly once."""
    return name not in _EXACTLY_ONCE or text.strip().lower() in _EXACTLY_ONCE[name]


def setting_problem(prefix: str, name: str, text: str, *, exactly_once: bool = False) -> str | None:
    """What is wrong with a setting of a connector's Kafka client, whose key is `prefix + name`; None if a query has
    such a setting. Settings of other Kafka clients that do no harm are allowed.
    """
    if exactly_once and not _is_exactly_once(name, text):
        return f"{prefix}{name}={text} needs delivery=at-least-once: leave it out, or set that"
    if prefix == OF_CONSUMERS and name == RESET:
        return None if text in STARTING else f"{prefix}{name} must be earliest or latest, got {text!r}"
    try:
        GivenOptions({**_BROKERS, f"kafka.{name}": text}).client_settings()
    except OptionError as error:
        return str(error).replace("kafka.", prefix)
    return None
