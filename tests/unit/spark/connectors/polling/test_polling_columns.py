"""What columns must be to be polled, the types of rows, and the values of SQLite."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.connectors.events.changes import ColumnSchema, TableSchema
from barnabas.spark.connectors.polling.columns import (
    check_columns,
    in_zone,
    initial_position,
    like_sample,
    mapped_type,
    time_form,
    truncated,
)
from barnabas.spark.connectors.polling.errors import PolledTableError, PolledValueError
from barnabas.spark.connectors.polling.options import NumericMapping
from barnabas.spark.connectors.polling.ports import PolledColumns
from barnabas.spark.connectors.polling.sqlite_values import DatePrecision, TimeRules, declared_type, to_column
from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.connectors.sql.polling import PolledTable, PollingMode, Position, TimeForm

BOTH = PolledTable(
    Dialect.POSTGRES, ("public", "orders"), PollingMode.TIMESTAMP_INCREMENTING, "id", ("updated", "created")
)


def columns(**types: Any) -> PolledColumns:
    """Columns by name: a type, or a type and whether it allows null."""
    found = tuple(
        ColumnSchema(name, *(kind if isinstance(kind, tuple) else (kind, False))) for name, kind in types.items()
    )
    times = {one.name: TimeForm.NATIVE for one in found if pa.types.is_timestamp(one.type)}
    return PolledColumns(TableSchema("db", "public", "orders", found, ()), "*", times)


TIME = pa.timestamp("us")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"id": pa.int64(), "updated": TIME}, "has no column created, which timestamp.column.name names"),
        ({"updated": TIME, "created": TIME}, "has no column id, which incrementing.column.name names"),
        ({"id": pa.string(), "updated": TIME, "created": TIME}, "of the type string, whose values cannot increment"),
        ({"id": pa.int32(), "updated": TIME, "created": pa.date32()}, "which is no time"),
        (
            {"id": (pa.int32(), True), "updated": TIME, "created": TIME},
            'ALTER TABLE "public"."orders" ALTER COLUMN "id" SET NOT NULL',
        ),
        ({"id": pa.int32(), "updated": (TIME, True), "created": (TIME, True)}, "updated of public.orders allows null"),
    ],
)
def test_columns_that_cannot_be_polled_are_refused_with_what_to_do(found: dict[str, Any], message: str) -> None:
    with pytest.raises(PolledTableError) as refusal:
        check_columns(BOTH, columns(**found), checks_nulls=True)
    assert message in str(refusal.value)


def test_one_of_several_times_without_nulls_is_enough() -> None:
    check_columns(BOTH, columns(id=pa.decimal128(20, 0), updated=(TIME, True), created=TIME), checks_nulls=True)
    check_columns(BOTH, columns(id=(pa.int8(), True), updated=(TIME, True), created=(TIME, True)), checks_nulls=False)


def test_times_of_two_forms_are_refused() -> None:
    mixed = PolledColumns(
        TableSchema("db", "", "t", (), ()), "*", {"updated": TimeForm.ISO_TEXT, "created": TimeForm.SECONDS}
    )
    with pytest.raises(PolledTableError, match="cannot be compared"):
        time_form(BOTH, mixed)


@pytest.mark.parametrize(
    ("kind", "mapped"),
    [
        (pa.decimal128(2, 0), (None, pa.int8(), pa.int8(), pa.int8())),
        (pa.decimal128(9, 0), (None, pa.int32(), pa.int32(), pa.int32())),
        (pa.decimal128(18, 0), (None, pa.int64(), pa.int64(), pa.int64())),
        (pa.decimal128(19, 0), (None, None, None, None)),
        (pa.decimal128(10, 2), (None, None, pa.float64(), pa.float64())),
        (pa.decimal128(30, 2), (None, None, None, pa.float64())),
        (pa.int16(), (None, None, None, None)),
    ],
)
def test_numeric_mapping_has_the_rules_of_connect(kind: Any, mapped: tuple[Any, ...]) -> None:
    for mapping, wanted in zip(NumericMapping, mapped, strict=True):
        assert mapped_type(kind, mapping) == (wanted or kind), mapping


def test_a_limit_is_given_in_the_zone_and_form_of_the_column() -> None:
    assert in_zone("2024-07-01 10:00:00.123456+00", "Europe/Berlin") == "2024-07-01 12:00:00.123456"
    assert in_zone("2024-01-01 10:00:00.5", "Europe/Berlin") == "2024-01-01 11:00:00.500"
    assert in_zone(1_700_000_000, "Europe/Berlin") == 1_700_000_000
    assert like_sample("2024-01-01 10:00:00.000", "2023-05-05T00:00:00Z") == "2024-01-01T10:00:00"
    assert like_sample("2024-01-01 10:00:00.900", "2023-05-05 00:00:00") == "2024-01-01 10:00:00"
    assert like_sample("2024-01-01 10:00:00.987", "2023-05-05 00:00:00.5") == "2024-01-01 10:00:00.9"
    assert like_sample("2024-01-01 10:00:00.987", "2023-05-05") == "2024-01-01"
    assert truncated("2024-01-01 10:00:00.987654+00", 0) == "2024-01-01 10:00:00+00"
    assert truncated("2024-01-01 10:00:00.987654", 3) == "2024-01-01 10:00:00.987"
    assert truncated(1_700_000_000, 0) == 1_700_000_000
    assert like_sample("2024-01-01 10:00:00.000", None) == "2024-01-01 10:00:00.000"


def test_the_initial_time_is_a_position_in_the_form_of_the_column() -> None:
    sqlite = PolledTable(Dialect.SQLITE, ("t",), PollingMode.TIMESTAMP, None, ("at",), TimeForm.SECONDS)
    assert initial_position(sqlite, 5_000, "UTC") == Position(5, None)
    assert initial_position(BOTH, 0, "Asia/Tokyo") == Position("1970-01-01 09:00:00.000+00", -(1 << 63))


@pytest.mark.parametrize(
    ("declared", "values", "wanted"),
    [
        ("BIGINT", [1, None, -5], pa.array([1, None, -5], pa.int64())),
        ("varchar(20)", ["a", 5, None], pa.array(["a", "5", None])),
        ("DECIMAL(9, 2)", [1.1, 3, "2.5"], pa.array([Decimal("1.1"), Decimal(3), Decimal("2.5")], pa.decimal128(9, 2))),
        ("NUMERIC", [1, 2.5], pa.array([1.0, 2.5])),
        ("boolean", [1, 0, None], pa.array([True, False, None])),
        ("blob", [b"\0", "a"], pa.array([b"\0", b"a"])),
        ("DATE", ["2024-02-29", 86_400_000], pa.array([date(2024, 2, 29), date(1970, 1, 2)])),
        (
            "DATETIME",
            ["2024-01-31 12:00:00.5", "2024-01-31T12:00:00+01:00", 1_500],
            pa.array(
                [
                    datetime(2024, 1, 31, 12, 0, 0, 500_000, UTC),
                    datetime(2024, 1, 31, 11, tzinfo=UTC),
                    datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
                ],
                pa.timestamp("us", "UTC"),
            ),
        ),
    ],
)  # fmt: skip
def test_values_of_sqlite_have_the_declared_type(declared: str, values: list[Any], wanted: Any) -> None:
    assert to_column(values, declared_type(declared, ""), "c", TimeRules()).equals(wanted)


def test_a_column_without_a_declared_type_has_that_of_its_first_value() -> None:
    kinds = [declared_type("", storage) for storage in ("integer", "real", "text", "blob", "")]
    assert kinds == [pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.string()]


def test_times_without_a_zone_are_those_of_the_zone_that_is_given() -> None:
    rules = TimeRules(DatePrecision.SECONDS, "Europe/Berlin")
    read = to_column(["2024-07-01 12:00:00", 60], declared_type("TIMESTAMP", ""), "c", rules)
    assert read.to_pylist() == [datetime(2024, 7, 1, 10, tzinfo=UTC), datetime(1970, 1, 1, 0, 1, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("declared", "value"),
    [("INTEGER", "many"), ("BOOLEAN", 2), ("DOUBLE", "x"), ("DATE", "yesterday"), ("DECIMAL(4,2)", "1.234"),
     ("DECIMAL(4,2)", 12345), ("REAL", 1 << 60), ("TEXT", b"x")],
)  # fmt: skip
def test_a_value_of_another_type_is_named(declared: str, value: Any) -> None:
    with pytest.raises(PolledValueError) as error:
        to_column([None, value], declared_type(declared, ""), "c", TimeRules())
    assert repr(value) in str(error.value)
    assert "the column c" in str(error.value)
