"""Parsing and refusing of config values, in Kafka's words."""

from __future__ import annotations

import pytest

from barnabas.core.config import (
    REQUIRED,
    ConfigDef,
    ConfigError,
    ConfigKey,
    ConfigType,
    InRange,
    ListOf,
    NonEmpty,
    OneOf,
    RangeOrSpecial,
    parse_value,
    value_to_text,
)
from barnabas.core.errors import ErrorCode


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (ConfigType.BOOLEAN, "TRUE", True),
        (ConfigType.BOOLEAN, " false ", False),
        (ConfigType.INT, " 2000000 ", 2_000_000),
        (ConfigType.INT, "+5", 5),
        (ConfigType.LONG, "-9223372036854775808", -(2**63)),
        (ConfigType.SHORT, "-32768", -32768),
        (ConfigType.DOUBLE, "1e3", 1000.0),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, "delete , compact,delete", ("delete", "compact")),
        (ConfigType.STRING, " x ", "x"),
        (ConfigType.PASSWORD, "secret", "secret"),
        (ConfigType.CLASS, None, None),
    ],
)
def test_text_becomes_a_typed_value(type_: ConfigType, text: str | None, value: object) -> None:
    assert parse_value("k", type_, text) == value


@pytest.mark.parametrize(
    ("type_", "text", "message"),
    [
        (ConfigType.BOOLEAN, "x", "Invalid value x for configuration k: Expected value to be either true or false"),
        (ConfigType.LONG, "abc", "Invalid value abc for configuration k: Not a number of type LONG"),
        (ConfigType.INT, "99999999999", "Invalid value 99999999999 for configuration k: Not a number of type INT"),
        (ConfigType.INT, "1.5", "Invalid value 1.5 for configuration k: Not a number of type INT"),
        (ConfigType.INT, "٣", "Invalid value ٣ for configuration k: Not a number of type INT"),
        (ConfigType.LONG, "9" * 5000, None),
        (ConfigType.DOUBLE, "much", "Invalid value much for configuration k: Not a number of type DOUBLE"),
    ],
)
def test_text_of_the_wrong_type_is_rejected(type_: ConfigType, text: str, message: str | None) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_value("k", type_, text)
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    if message is not None:
        assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("validator", "value", "reason"),
    [
        (InRange(0), -1, "Value must be at least 0"),
        (InRange(0, 1), 2.0, "Value must be no more than 1"),
        (InRange(0), None, "Value must be non-null"),
        (RangeOrSpecial(-1, 1, 9), 12, "Value must be between 1 and 9 or equal to -1"),
        (OneOf(("a", "b")), "A", "String must be one of: a, b"),
        (ListOf(("a", "b")), ("a", "c"), "String must be one of: a, b"),
        (ListOf(empty_allowed=False), (), "Configuration 'k' must not be empty"),
        (ListOf(), None, "Values must not be null"),
        (NonEmpty(), "  ", "String must be non-empty"),
    ],
)
def test_values_out_of_range_are_rejected(validator: InRange, value: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=r"configuration k") as refusal:
        validator("k", value)
    assert str(refusal.value).endswith(reason)


@pytest.mark.parametrize(
    ("lenient", "strict", "value"),
    [
        (InRange(0, 9), InRange(0, 8), 9),
        (RangeOrSpecial(-1, 1, 9), InRange(1, 9), -1),
        (OneOf(("a",), ignore_case=True), OneOf(("a",)), "A"),
        (OneOf(("a",), nullable=True), OneOf(("a",)), None),
        (ListOf(nullable=True), ListOf(), None),
        (NonEmpty(), OneOf(("a",)), None),
    ],
)
def test_value_in_range_passes_and_a_stricter_validator_rejects_it(
    lenient: InRange, strict: InRange, value: object
) -> None:
    assert lenient("k", value) is None
    with pytest.raises(ConfigError, match=r"configuration k"):
        strict("k", value)


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (("a", "b"), "a,b"), (None, None), (0.5, "0.5"), (7, "7"), ((), "")]
)
def test_values_are_rendered_as_kafka_renders_them(
    value: bool | float | tuple[str, ...] | None, text: str | None
) -> None:
    assert value_to_text(value) == text


def test_parse_all_uses_defaults_and_requires_required_configs() -> None:
    table = ConfigDef.of(
        [
            ConfigKey("a.count", ConfigType.INT, 3, "How many.", InRange(1)),
            ConfigKey("a.name", ConfigType.STRING, REQUIRED, "Which."),
            ConfigKey("a.secret", ConfigType.PASSWORD, None, "Hush."),
        ]
    )
    assert table.parse_all({"a.name": "n", "unknown": "1"}) == {"a.count": 3, "a.name": "n", "a.secret": None}
    with pytest.raises(ConfigError, match=r'Missing required configuration "a.name"'):
        table.parse_all({})
    with pytest.raises(ConfigError, match="Unknown configuration 'b'"):
        table.parse("b", "1")
    assert table["a.secret"].is_sensitive
    assert not table["a.count"].is_dynamic
    assert [key.name for key in table] == ["a.count", "a.name", "a.secret"]
