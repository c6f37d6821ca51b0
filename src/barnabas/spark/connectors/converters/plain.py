"""Codec: Connect's StringConverter and ByteArrayConverter, for whole columns.

Source: org.apache.kafka.connect.storage.StringConverter, org.apache.kafka.connect.converters.ByteArrayConverter.
"""

from __future__ import annotations

from typing import Any

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.converters.errors import ConverterDataError
from barnabas.spark.connectors.converters.runs import BadRows, Run


class StringConverter:
    """Keys or values that are one value each, as text. `name` is `key` or `value`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def row_bytes(self, field: Any) -> int:
        return 0

    def encode_column(self, column: Any, field: Any, topics: Any) -> Any:
        """The text of each value as bytes. Raises ConverterDataError for structs, lists and maps."""
        if pa.types.is_nested(column.type):
            raise ConverterDataError(
                f"StringConverter writes single values, and the {self._name} is a {column.type}: use JsonConverter, or"
                " the transform ExtractField"
            )
        return column.cast(pa.string()).cast(pa.binary())

    def decode_column(self, column: Any, bad: BadRows) -> list[Run]:
        """One run of texts. A row that is not UTF-8 is bad."""
        rows = np.arange(len(column))
        try:
            texts = column.cast(pa.string())
        except pa.ArrowInvalid:
            for row, value in enumerate(column.to_pylist()):
                try:
                    (value or b"").decode()
                except UnicodeDecodeError as error:
                    bad.add(row, error)
            rows = bad.good(rows)
            texts = column.take(pa.array(rows)).cast(pa.string())
        return [Run(rows, pa.field(self._name, pa.string()), texts)] if len(rows) else []


class ByteArrayConverter:
    """Keys or values that are bytes already. `name` is `key` or `value`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def row_bytes(self, field: Any) -> int:
        return 0

    def encode_column(self, column: Any, field: Any, topics: Any) -> Any:
        """The same bytes. Raises ConverterDataError for another type."""
        if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
            raise ConverterDataError(
                f"ByteArrayConverter writes bytes, and the {self._name} is a {column.type}: use JsonConverter"
            )
        return column.cast(pa.binary())

    def decode_column(self, column: Any, bad: BadRows) -> list[Run]:
        """One run of bytes."""
        return [Run(np.arange(len(column)), pa.field(self._name, pa.binary()), column)] if len(column) else []
