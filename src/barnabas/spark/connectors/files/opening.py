"""Shell: the target of a query that writes files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from barnabas.spark.connectors.files.lines import LineFileTarget
from barnabas.spark.connectors.files.options import FileFormat, parse_file_sink
from barnabas.spark.connectors.files.target import DirectoryTarget
from barnabas.spark.connectors.http.texts import value_texts
from barnabas.spark.connectors.sinking.options import RowOptions
from barnabas.spark.connectors.sinking.ports import TableRows
from barnabas.spark.connectors.sinking.tables import Divided, TableDivider, table_of_topic
from barnabas.spark.connectors.sinking.writer import SinkPlan


def file_plan(options: Mapping[str, str]) -> SinkPlan:
    """What a query writes to. Raises OptionError."""
    parsed = parse_file_sink(options)
    target = LineFileTarget(parsed) if parsed.is_file else DirectoryTarget(parsed)
    return SinkPlan(target, parsed.rows, TextDivider if parsed.format is FileFormat.TEXT else TableDivider)


class TextDivider(TableDivider):
    """Rows as lines: the values of records need no fields, as with Connect's FileStreamSink."""

    def __init__(self, options: RowOptions, partition: int) -> None:
        super().__init__(options, partition)
        self._place = options.table_format

    def divide_records(self, batch: Any) -> Divided:
        texts = pa.array(value_texts(batch.column("value")), pa.binary())
        tables = []
        for topic in batch.column("topic").unique().to_pylist():
            rows = pa.compute.equal(batch.column("topic"), topic)
            lines = pa.RecordBatch.from_arrays([texts.filter(rows)], names=["value"])
            tables.append(TableRows(table_of_topic(self._place, topic), lines, (), None, None))
        return Divided(tables, [])
