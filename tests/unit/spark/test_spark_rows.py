"""Which columns may be written, and errors that name the remedy."""

from __future__ import annotations

import pyarrow as pa
import pytest

from barnabas.spark.errors import SinkError
from barnabas.spark.sink.options import SinkOptions
from barnabas.spark.sink.rows import HEADERS_TYPE, RowLayout, record_columns, row_layout

TO_T = SinkOptions(client={}, topic="t")
NO_TOPIC = SinkOptions(client={})


def test_layout_has_every_column() -> None:
    columns = {"Key": "string", "value": "binary", "topic": "string", "partition": "int", "headers": HEADERS_TYPE}
    assert row_layout(columns, NO_TOPIC) == RowLayout(None, has_key=True, has_partition=True, has_headers=True)


def test_value_alone_is_enough_when_the_topic_is_an_option() -> None:
    assert row_layout({"value": "varchar(20)"}, TO_T) == RowLayout("t", False, False, False)


def test_the_option_overrides_the_column_whatever_its_type() -> None:
    assert row_layout({"value": "string", "topic": "int"}, TO_T).topic == "t"


def test_headers_can_be_left_out() -> None:
    options = SinkOptions(client={}, topic="t", include_headers=False)
    assert not row_layout({"value": "string", "headers": HEADERS_TYPE}, options).has_headers


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ({"key": "string"}, TO_T, "required column 'value' not found"),
        ({"value": "string"}, NO_TOPIC, "set the option topic"),
        ({"value": "int"}, TO_T, "'value' has type int; it must be binary or string"),
        ({"value": "string", "key": "bigint"}, TO_T, "'key' has type bigint"),
        ({"value": "string", "topic": "binary"}, NO_TOPIC, "'topic' has type binary"),
        ({"value": "string", "partition": "bigint"}, TO_T, "'partition' has type bigint; it must be int"),
        ({"value": "string", "headers": "map<string,binary>"}, TO_T, "must be array<struct<key:string,value:binary>>"),
        ({"value": "string", "carrier": "string"}, TO_T, "a record has no column 'carrier'"),
        ({"value": "string", "VALUE": "string"}, TO_T, "same name"),
    ],
)
def test_invalid_columns_raise_an_error_with_the_remedy(
    columns: dict[str, str], options: SinkOptions, says: str
) -> None:
    with pytest.raises(SinkError) as refused:
        row_layout(columns, options)
    assert says in str(refused.value)


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "bigint", "void"])
def test_a_timestamp_is_written(kind: str) -> None:
    layout = row_layout({"value": "string", "timestamp": kind}, TO_T)
    assert layout == RowLayout("t", False, False, False, has_timestamp=True)


def test_a_column_of_nulls_is_a_value() -> None:
    assert row_layout({"value": "void", "key": "string"}, TO_T).has_key


def test_rows_become_records_topic_by_topic() -> None:
    table = pa.table({"value": ["1", "2", "3"], "topic": ["b", "a", "b"], "timestamp": [1, 2, 3]})
    layout = row_layout({"value": "string", "topic": "string", "timestamp": "bigint"}, NO_TOPIC)
    records = list(record_columns(table, layout))
    assert [(r.topic, r.table["value"].to_pylist(), r.timestamp, r.key) for r in records] == [
        ("b", ["1", "3"], "timestamp", None),
        ("a", ["2"], "timestamp", None),
    ]
