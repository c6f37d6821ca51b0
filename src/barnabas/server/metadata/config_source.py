"""Value: the sources of config values, and the broker configs that are synonyms of each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final


class ConfigValueSource(IntEnum):
    """Sources as DescribeConfigs reports them (`DescribeConfigsResponse.ConfigSource`)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


_CHAINS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)

# name -> its synonyms, in order of precedence (DynamicBrokerConfig.brokerConfigSynonyms)
_CHAIN_OF: Final[Mapping[str, tuple[str, ...]]] = {name: chain for chain in _CHAINS for name in chain}


def broker_synonyms(name: str) -> tuple[str, ...]:
    """The broker configs that can supply the value of `name`, in order of precedence, including `name`.

    A config of one listener (`listener.name.<listener>.<config>`) falls back to `<config>`.
    """
    if name.startswith("listener.name."):
        plain = name.split(".", 3)[-1]
        return (name, plain)
    return _CHAIN_OF.get(name, (name,))


def _hours(text: str) -> str:
    return str(int(text) * 3_600_000)


def _minutes(text: str) -> str:
    return str(int(text) * 60_000)


# The broker configs whose unit differs from the unit of their topic config (ServerTopicConfigSynonyms).
TO_TOPIC_UNIT: Final[Mapping[str, Callable[[str], str]]] = {
    "log.roll.hours": _hours,
    "log.roll.jitter.hours": _hours,
    "log.retention.hours": _hours,
    "log.retention.minutes": _minutes,
}
