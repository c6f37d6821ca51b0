"""Codec: records of topics (bytes) -> batches of records whose keys and values have one schema each.

Converters decode keys and values, and transforms change them. What they cannot read or change is a problem of one
record, with the stage that Connect names in its dead letters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
from msgspec import Struct

from barnabas.spark.connectors.converters.making import make_converter
from barnabas.spark.connectors.converters.runs import BadRows, Converter, Run
from barnabas.spark.connectors.sinking.options import RowOptions
from barnabas.spark.errors import SinkError

Stage = Literal["KEY_CONVERTER", "VALUE_CONVERTER", "TRANSFORMATION", "TASK_PUT"]

ROW: Final = "__barnabas_row"
"""A column with the number of the row in the batch that was read."""
NEEDED: Final = ("topic", "value")


class BadRecord(Struct, frozen=True):
    """A record that cannot become a row: its row in the batch, at which stage it failed, and why."""

    row: int
    stage: Stage
    reason: str


class RecordReader:
    """Decodes the records of one task."""

    def __init__(self, options: RowOptions) -> None:
        self._key = make_converter("key.converter", options.config, is_key=True)
        self._value = make_converter("value.converter", options.config, is_key=False)
        self._transform = transforms_of(options.config)

    def read(self, batch: Any) -> tuple[list[Any], list[BadRecord]]:
        """The records of a batch as batches of one schema, in order, and those that cannot be read. Each batch has
        the column ROW. Raises SinkError if the batch has no records.
        """
        for name in NEEDED:
            if name not in batch.schema.names:
                raise SinkError(
                    f"the rows are no records: they have no column {name}, only {', '.join(batch.schema.names)}; read"
                    " them with format('barnabas'), or set input=columns"
                )
        bad: list[BadRecord] = []
        values = _decoded(self._value, batch, "value", bad)
        keys = _decoded(self._key, batch, "key", bad)
        decoded = [joined for value in values for key in keys if (joined := _joined(batch, key, value)).num_rows]
        decoded.sort(key=lambda each: each.column(ROW)[0].as_py())
        return [after for each in decoded for after in self._transform(each, bad)], bad


Transform = Callable[[Any, list[BadRecord]], list[Any]]


def transforms_of(config: Mapping[str, str]) -> Transform:
    """The transforms that the options configure, as a function of a batch and the records that fail."""
    if not any(name.startswith("transforms") for name in config):
        return lambda batch, _: [batch]
    from barnabas.spark.connectors.transforms.chain import compile_chain
    from barnabas.spark.connectors.transforms.errors import RowFailure

    chain = compile_chain(config)

    def apply(batch: Any, bad: list[BadRecord]) -> list[Any]:
        failures: list[RowFailure] = []
        after: list[Any] = chain.apply(batch, failures)
        rows = batch.column(ROW)
        for failure in failures:
            reason = f"{failure.class_name} ({failure.label}): {failure.message}"
            bad.append(BadRecord(rows[failure.row].as_py(), "TRANSFORMATION", reason))
        return after

    return apply


def _decoded(converter: Converter, batch: Any, part: str, bad: list[BadRecord]) -> list[Run]:
    """The runs of the keys or values. Keys that there are none of are null."""
    if part not in batch.schema.names:
        return [Run(np.arange(batch.num_rows), pa.field(part, pa.binary()), pa.nulls(batch.num_rows, pa.binary()))]
    column = batch.column(part)
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    if not pa.types.is_binary(column.type):
        raise SinkError(
            f"the {part} of the records has the type {column.type}, and converters read bytes: leave out the option"
            f" {part}Format of the source, or set input=columns and select the fields"
        )
    rows = BadRows(part, raises=False)
    runs = converter.decode_column(column, rows)
    stage: Stage = "KEY_CONVERTER" if part == "key" else "VALUE_CONVERTER"
    bad += [BadRecord(row, stage, reason) for row, reason in sorted(rows.found.items())]
    return runs


def _joined(batch: Any, key: Run, value: Run) -> Any:
    """The rows that are in both runs."""
    rows, in_key, in_value = np.intersect1d(key.rows, value.rows, assume_unique=True, return_indices=True)
    others = [field for field in batch.schema if field.name not in ("key", "value")]
    taken = batch.select([field.name for field in others]).take(pa.array(rows, pa.int64()))
    arrays = [*taken.columns, key.values.take(pa.array(in_key)), value.values.take(pa.array(in_value)), pa.array(rows)]
    fields = [*others, key.field.with_name("key"), value.field.with_name("value"), pa.field(ROW, pa.int64())]
    return pa.RecordBatch.from_arrays(
        [array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array for array in arrays],
        schema=pa.schema(fields),
    )
