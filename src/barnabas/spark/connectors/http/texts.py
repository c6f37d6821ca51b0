"""Codec: rows -> the texts that requests carry.

Rows with a column `value` are records: their values are sent as they are, and null as the JSON `null`. Other rows are
sent as JSON objects of their columns.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from barnabas.spark.connectors.http.requests import RecordText
from barnabas.spark.errors import SinkError
from barnabas.spark.records.encoding import json_texts

PLACE = ("topic", "partition", "offset")


def record_texts(batch: Any, source: str, start: int, topics: Any = None) -> list[RecordText]:
    """The texts of a record batch. Rows without topic, partition and offset are numbered from `start` in `source`.
    `topics` has the topic from which each record was read; None if the column `topic` of the batch has it.
    Raises SinkError for a value that is no text.
    """
    texts = _texts(batch)
    if all(name in batch.schema.names for name in PLACE):
        names, partitions, offsets = (batch.column(name).to_pylist() for name in PLACE)
        if topics is not None:
            names = topics.to_pylist()
        return [
            RecordText(text, f"{topic}-{partition}", offset)
            for text, topic, partition, offset in zip(texts, names, partitions, offsets, strict=True)
        ]
    return [RecordText(text, source, start + row) for row, text in enumerate(texts)]


def _texts(batch: Any) -> list[bytes]:
    names = batch.schema.names
    if "value" not in names:
        structs = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        return [bytes(text) for text in json_texts(structs, b"").to_pylist()]
    return value_texts(batch.column("value"))


def value_texts(column: Any) -> list[bytes]:
    """The text of each value. Raises SinkError for a value that is no text and has no fields."""
    if pa.types.is_struct(column.type):
        return [b"null" if text is None else bytes(text) for text in json_texts(column, b"").to_pylist()]
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        raise SinkError(
            f"the column value has the type {column.type}; it must be string or binary, or name it otherwise to send it"
            " as a member of a JSON object"
        )
    return [b"null" if value is None else bytes(value) for value in column.cast(pa.binary()).to_pylist()]
