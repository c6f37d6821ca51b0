"""Codec: Connect's converters for one number or boolean: ShortConverter, IntegerConverter, LongConverter,
FloatConverter, DoubleConverter, BooleanConverter. Numbers are big-endian, as Kafka's serializers write them.

Source: org.apache.kafka.connect.converters.NumberConverter and BooleanConverter, which read an optional schema.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from barnabas.client.columns.byte_column import from_arrow, np, pa
from barnabas.spark.connectors.arrow_fields import arrow_type, in_form_of, record_field, schema_of
from barnabas.spark.connectors.connect_schemas import ConnectSchema, ConnectType
from barnabas.spark.connectors.converters.errors import ConverterDataError
from barnabas.spark.connectors.converters.runs import BadRows, Run, is_json
from barnabas.spark.connectors.json_schemas import ConnectSchemaError


class NumberForm(Struct, frozen=True):
    """The type of the values, and their bytes as numpy names them."""

    type: ConnectType
    bytes: str


NUMBER_FORMS: Final = {
    "BooleanConverter": NumberForm(ConnectType.BOOLEAN, ">u1"),
    "DoubleConverter": NumberForm(ConnectType.FLOAT64, ">f8"),
    "FloatConverter": NumberForm(ConnectType.FLOAT32, ">f4"),
    "IntegerConverter": NumberForm(ConnectType.INT32, ">i4"),
    "LongConverter": NumberForm(ConnectType.INT64, ">i8"),
    "ShortConverter": NumberForm(ConnectType.INT16, ">i2"),
}


class NumberConverter:
    """Keys or values that are one number or boolean each. `name` is `key` or `value`, `converter` a name of
    NUMBER_FORMS.
    """

    def __init__(self, name: str, converter: str) -> None:
        self._name = name
        self._converter = converter
        self._form = NUMBER_FORMS[converter]
        self._schema = ConnectSchema(self._form.type, optional=True)

    def row_bytes(self, field: Any) -> int:
        return 0

    def encode_column(self, column: Any, field: Any, topics: Any) -> Any:
        """The bytes of each number. Raises ConverterDataError for values of another type."""
        if column.null_count == len(column):
            return pa.nulls(len(column), pa.binary())
        try:
            schema = None if is_json(field) else schema_of(field)
        except ConnectSchemaError as error:
            raise ConverterDataError(str(error)) from error
        if schema is None or schema.type is not self._form.type:
            given = "JSON without a schema" if schema is None else schema.type.value
            raise ConverterDataError(
                f"{self._converter} writes values of type {self._form.type.value}, and the {self._name} is {given}: use"
                " the converter of that type, or the transform Cast"
            )
        values = in_form_of(column, schema)
        if pa.types.is_temporal(values.type):
            values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
        plain = values.fill_null(False if self._form.type is ConnectType.BOOLEAN else 0)
        numbers = plain.to_numpy(zero_copy_only=False).astype(self._form.bytes)
        data = pa.py_buffer(numbers.tobytes())
        width = pa.binary(numbers.dtype.itemsize)
        mask = None if not values.null_count else values.is_valid().buffers()[1]
        return pa.Array.from_buffers(width, len(numbers), [mask, data]).cast(pa.binary())

    def decode_column(self, column: Any, bad: BadRows) -> list[Run]:
        """One run of numbers. A row with another number of bytes is bad."""
        texts = from_arrow(column)
        kind = np.dtype(self._form.bytes)
        wrong = (texts.length >= 0) & (texts.length != kind.itemsize)
        for row in np.flatnonzero(wrong).tolist():
            bad.add(row, f"it has {texts.length[row]} bytes, and {self._converter} reads {kind.itemsize}")
        present = np.flatnonzero((texts.length >= 0) & ~wrong)
        numbers = np.zeros(len(texts), kind)
        places = texts.at[present][:, None] + np.arange(kind.itemsize)
        numbers[present] = np.ascontiguousarray(texts.data[places]).view(kind).reshape(-1)
        if self._form.type is ConnectType.BOOLEAN:
            for row in np.flatnonzero(numbers > 1).tolist():
                bad.add(row, f"its byte is {numbers[row]}, and BooleanConverter reads 0 and 1")
            numbers = numbers.astype(bool)
        rows = bad.good(np.arange(len(texts)))
        native = numbers[rows].astype(numbers.dtype.newbyteorder("="))
        values = pa.array(native, arrow_type(self._schema), mask=texts.length[rows] < 0)
        return [Run(rows, record_field(self._name, self._schema), values)] if len(rows) else []
