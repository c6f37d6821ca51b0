"""Codec: rows -> the texts that requests carry.

Rows with a column `value` are records: their values are sent as they are, and null as the JSON `null`. Other rows are
sent as JSON objects of their columns. An object has no member for a value that its source did not send.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from barnabas.spark.connectors.http.requests import RecordText
from barnabas.spark.connectors.sinking.fields import read_fields
from barnabas.spark.connectors.sinking.presence import UNAVAILABLE, unsent_in_columns, unsent_in_records
from barnabas.spark.errors import SinkError
from barnabas.spark.records.encoding import json_texts

PLACE = ("topic", "partition", "offset")


def record_texts(
    batch: Any, source: str, start: int, topics: Any = None, unsent: Mapping[str, Any] | None = None
) -> list[RecordText]:
    """The texts of a record batch. Rows without topic, partition and offset are numbered from `start` in `source`.
    `topics` has the topic from which each record was read; None if the column `topic` of the batch has it. `unsent` has
    for each member the rows (Arrow bool) whose source did not send it. Raises SinkError for a value that is no text.
    """
    texts = _without_members(_texts(batch), unsent or {})
    if all(name in batch.schema.names for name in PLACE):
        names, partitions, offsets = (batch.column(name).to_pylist() for name in PLACE)
        if topics is not None:
            names = topics.to_pylist()
        return [
            RecordText(text, f"{topic}-{partition}", offset)
            for text, topic, partition, offset in zip(texts, names, partitions, offsets, strict=True)
        ]
    return [RecordText(text, source, start + row) for row, text in enumerate(texts)]


def unsent_members(batch: Any, placeholder: str, *, are_records: bool) -> Mapping[str, Any]:
    """Member -> the rows (Arrow bool) whose source did not send it. Values that are no flat objects, such as change
    events, stay as they are.
    """
    if not are_records:
        return {} if "value" in batch.schema.names else unsent_in_columns(batch, placeholder)
    try:
        fields = read_fields(batch, "value", keeps_json=True).columns
    except SinkError:  # no objects
        return {}
    return unsent_in_records(batch, fields, placeholder)


def _without_members(texts: list[bytes], unsent: Mapping[str, Any]) -> list[bytes]:
    """JSON objects without the members that were not sent, and without the column that names these."""
    rows: dict[int, set[str]] = {}
    for name, mask in unsent.items():
        for row in np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist():
            rows.setdefault(row, {UNAVAILABLE}).add(name)
    for row, names in rows.items():
        members = msgspec.json.decode(texts[row], type=dict[str, msgspec.Raw])
        texts[row] = msgspec.json.encode({name: value for name, value in members.items() if name not in names})
    return texts


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
