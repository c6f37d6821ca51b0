"""Value: short constructors for the rows of the config tables, and validators for those tables only."""

from __future__ import annotations

import re
from typing import Any, Final, NotRequired, TypedDict, Unpack

from msgspec import Struct

from barnabas.core.config import (
    REQUIRED,
    ConfigKey,
    ConfigType,
    Importance,
    UpdateMode,
    Validator,
    _Required,
    invalid_value,
)

HIGH: Final = Importance.HIGH
LOW: Final = Importance.LOW
CLUSTER: Final = UpdateMode.CLUSTER_WIDE
BROKER: Final = UpdateMode.PER_BROKER
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

__all__ = ["BROKER", "CLUSTER", "HIGH", "INT_MAX", "LONG_MAX", "LOW", "REQUIRED"]


class ConfigRowOptions(TypedDict):
    """Optional arguments of a row. The defaults are medium importance, read-only, and no synonyms."""

    importance: NotRequired[Importance]
    update_mode: NotRequired[UpdateMode]
    synonyms: NotRequired[tuple[str, ...]]
    internal: NotRequired[bool]
    sensitive: NotRequired[bool]
    stored: NotRequired[Validator]


def boolean(name: str, default: bool, doc: str, **options: Unpack[ConfigRowOptions]) -> ConfigKey:
    return ConfigKey(name, ConfigType.BOOLEAN, default, doc, **options)


def int_(
    name: str,
    default: int | _Required | None,
    doc: str,
    validator: Validator | None = None,
    **options: Unpack[ConfigRowOptions],
) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, default, doc, validator, **options)


def short(
    name: str, default: int, doc: str, validator: Validator | None = None, **options: Unpack[ConfigRowOptions]
) -> ConfigKey:
    return ConfigKey(name, ConfigType.SHORT, default, doc, validator, **options)


def long(
    name: str, default: int | None, doc: str, validator: Validator | None = None, **options: Unpack[ConfigRowOptions]
) -> ConfigKey:
    return ConfigKey(name, ConfigType.LONG, default, doc, validator, **options)


def double(
    name: str, default: float, doc: str, validator: Validator | None = None, **options: Unpack[ConfigRowOptions]
) -> ConfigKey:
    return ConfigKey(name, ConfigType.DOUBLE, default, doc, validator, **options)


def string(
    name: str, default: str | None, doc: str, validator: Validator | None = None, **options: Unpack[ConfigRowOptions]
) -> ConfigKey:
    return ConfigKey(name, ConfigType.STRING, default, doc, validator, **options)


def list_(
    name: str,
    default: tuple[str, ...] | _Required | None,
    doc: str,
    validator: Validator | None = None,
    **options: Unpack[ConfigRowOptions],
) -> ConfigKey:
    return ConfigKey(name, ConfigType.LIST, default, doc, validator, **options)


def class_(name: str, default: str | None, doc: str, **options: Unpack[ConfigRowOptions]) -> ConfigKey:
    return ConfigKey(name, ConfigType.CLASS, default, doc, **options)


def password(name: str, doc: str, **options: Unpack[ConfigRowOptions]) -> ConfigKey:
    return ConfigKey(name, ConfigType.PASSWORD, None, doc, **options)


_REPLICA: Final = re.compile(r"\d+:\d+")


class ThrottledReplicas(Struct, frozen=True):
    """`*`, or a list of partition:broker (Kafka's `ThrottledReplicaListValidator`)."""

    def __call__(self, name: str, value: Any) -> None:
        if value == ("*",) or all(_REPLICA.fullmatch(item) for item in value):
            return
        raise invalid_value(
            name,
            value,
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


_DURATION: Final = re.compile(
    r"P(?=\d|T\d)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?",
    re.IGNORECASE,
)


class OffsetReset(Struct, frozen=True):
    """`latest`, `earliest` or `by_duration:<ISO-8601 duration>` (`ShareGroupAutoOffsetResetStrategy.Validator`)."""

    def __call__(self, name: str, value: Any) -> None:
        text = str(value).lower()
        if text in ("latest", "earliest"):
            return
        if text.startswith("by_duration:") and _DURATION.fullmatch(text[len("by_duration:") :]):
            return
        raise invalid_value(
            name,
            value,
            f"Invalid value `{value}` for configuration {name}. "
            "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        )

    def __str__(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"
