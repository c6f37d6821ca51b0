"""Connect's converters of one number: the bytes of Kafka's serializers."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.connectors.arrow_fields import schema_of
from barnabas.spark.connectors.connect_schemas import ConnectSchema, ConnectType
from barnabas.spark.connectors.converters.errors import ConverterDataError
from barnabas.spark.connectors.converters.making import make_converter
from barnabas.spark.connectors.converters.runs import BadRows, json_field


def make(name: str) -> Any:
    return make_converter("key.converter", {"key.converter": name}, is_key=True)


@pytest.mark.parametrize(
    ("name", "kind", "values", "form"),
    [
        ("ShortConverter", pa.int16(), [-2, 300, None], ">h"),
        ("IntegerConverter", pa.int32(), [1, -(1 << 31), None], ">i"),
        ("LongConverter", pa.int64(), [(1 << 63) - 1, 0, None], ">q"),
        ("FloatConverter", pa.float32(), [0.5, -1.0, None], ">f"),
        ("DoubleConverter", pa.float64(), [0.1, float("inf"), None], ">d"),
        ("org.apache.kafka.connect.converters.BooleanConverter", pa.bool_(), [True, False, None], ">?"),
    ],
)
def test_numbers_are_big_endian_and_read_back(name: str, kind: Any, values: list[Any], form: str) -> None:
    converter = make(name)
    column = pa.array([0, *values], kind).slice(1) if kind != pa.bool_() else pa.array([False, *values]).slice(1)
    encoded = converter.encode_column(column, pa.field("key", kind), None)
    assert encoded.to_pylist() == [None if value is None else struct.pack(form, value) for value in values]
    (run,) = converter.decode_column(encoded, BadRows("key"))
    assert (run.rows.tolist(), run.values) == ([0, 1, 2], column)
    assert schema_of(run.field) == ConnectSchema(schema_of(pa.field("key", kind)).type, optional=True)


def test_bytes_of_another_length_are_bad_rows() -> None:
    bad = BadRows("key", raises=False)
    (run,) = make("IntegerConverter").decode_column(pa.array([b"\0\0\0\1", b"\0\1", b"", None], pa.binary()), bad)
    assert (run.rows.tolist(), run.values.to_pylist(), sorted(bad.found)) == ([0, 3], [1, None], [1, 2])
    bad = BadRows("key", raises=False)
    (run,) = make("BooleanConverter").decode_column(pa.array([b"\1", b"\2"], pa.binary()), bad)
    assert (run.values.to_pylist(), list(bad.found)) == ([True], [1])


def test_values_of_another_type_are_refused() -> None:
    with pytest.raises(ConverterDataError, match=f"of type {ConnectType.INT32.value}, and the key is int64"):
        make("IntegerConverter").encode_column(pa.array([1]), pa.field("key", pa.int64()), None)
    with pytest.raises(ConverterDataError, match="JSON without a schema"):
        make("LongConverter").encode_column(pa.array(["1"]), json_field("key"), None)
