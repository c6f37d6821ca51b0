"""Config classes are checked against the config table when their builder is created."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest
from msgspec import Struct

from barnabas.core.config import REQUIRED, ConfigDef, ConfigKey, ConfigType
from barnabas.core.config_builder import ConfigBuilder

TABLE = ConfigDef.of(
    (
        ConfigKey("flush.ms", ConfigType.LONG, 10, ""),
        ConfigKey("node.id", ConfigType.INT, REQUIRED, ""),
        ConfigKey("rack", ConfigType.STRING, None, ""),
        ConfigKey("policies", ConfigType.LIST, ("a",), ""),
        ConfigKey("mode", ConfigType.STRING, "fast", ""),
    )
)


class Mode(Enum):
    FAST = "fast"
    SLOW = "slow"


class GoodConfig(Struct, frozen=True):
    flush_ms: int
    rack: str | None
    policies: tuple[str, ...]
    mode: Mode
    path: str
    retries: int = 3


BUILDER = ConfigBuilder(GoodConfig, TABLE, computed=("path",))


def test_build_reads_each_field_by_the_name_of_its_config() -> None:
    values: dict[str, Any] = {"flush.ms": 7, "rack": "r1", "policies": ("b", "c"), "mode": "SLOW"}
    assert BUILDER.build(values.__getitem__, path="/x") == GoodConfig(7, "r1", ("b", "c"), Mode.SLOW, "/x", 3)


def test_from_defaults_takes_the_defaults_of_the_table() -> None:
    assert BUILDER.from_defaults(path="/x") == GoodConfig(10, None, ("a",), Mode.FAST, "/x", 3)
    assert BUILDER.from_defaults(path="/x", flush_ms=1, mode=Mode.SLOW, retries=0) == GoodConfig(
        1, None, ("a",), Mode.SLOW, "/x", 0
    )


def test_from_defaults_rejects_an_unknown_field() -> None:
    with pytest.raises(TypeError):
        BUILDER.from_defaults(path="/x", flush_seconds=1)


class UnknownName(Struct, frozen=True):
    flush_interval_ms: int


class WrongType(Struct, frozen=True):
    flush_ms: str


class RepeatedDefault(Struct, frozen=True):
    flush_ms: int = 10


class MissingNone(Struct, frozen=True):
    rack: str


class NeedlessNone(Struct, frozen=True):
    flush_ms: int | None


@pytest.mark.parametrize(
    ("config_class", "message"),
    [
        (UnknownName, "UnknownName.flush_interval_ms: there is no config 'flush.interval.ms'"),
        (WrongType, "the type of flush.ms is LONG"),
        (RepeatedDefault, "remove the default; the default of flush.ms is in the config table"),
        (MissingNone, "the value of rack can be None"),
        (NeedlessNone, "the value of flush.ms cannot be None"),
    ],
)
def test_builder_rejects_a_class_that_differs_from_the_table(config_class: type[Struct], message: str) -> None:
    with pytest.raises(TypeError) as raised:
        ConfigBuilder(config_class, TABLE)
    assert message in str(raised.value)


def test_builder_rejects_a_computed_name_that_is_no_field() -> None:
    with pytest.raises(TypeError, match="GoodConfig has no fields"):
        ConfigBuilder(GoodConfig, TABLE, computed=("path", "paht"))
