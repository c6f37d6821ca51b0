"""The package by which Spark finds `format("barnabas.sqlite")`; see `pyspark_barnabas` for why it stays small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The data source behind `format("barnabas.sqlite")`: the rows of tables, polled; and rows into tables."""

    @classmethod
    def name(cls) -> str:
        return "barnabas.sqlite"

    def schema(self) -> str:
        from barnabas.spark.connectors.capture.reader import capture_schema
        from barnabas.spark.connectors.polling.sqlite import SQLITE

        return capture_schema(self.options, SQLITE)

    def reader(self, schema: StructType) -> DataSourceReader:
        from barnabas.spark.connectors.capture.reader import capture_batch_reader
        from barnabas.spark.connectors.polling.sqlite import SQLITE

        return capture_batch_reader(self.options, schema, SQLITE)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from barnabas.spark.connectors.capture.reader import capture_stream_reader
        from barnabas.spark.connectors.polling.sqlite import SQLITE

        return capture_stream_reader(self.options, schema, SQLITE)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from barnabas.spark.connectors.sinking.writer import target_batch_writer
        from barnabas.spark.connectors.sql.sinks.opening import sqlite_plan

        return target_batch_writer(self.options, overwrite, sqlite_plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from barnabas.spark.connectors.sinking.writer import target_stream_writer
        from barnabas.spark.connectors.sql.sinks.opening import sqlite_plan

        return target_stream_writer(self.options, sqlite_plan)
