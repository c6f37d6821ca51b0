"""The package by which Spark finds `format("barnabas.duckdb")`; see `pyspark_barnabas` for why it stays small."""

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
    """The data source behind `format("barnabas.duckdb")`: the rows of tables, polled; and rows into tables."""

    @classmethod
    def name(cls) -> str:
        return "barnabas.duckdb"

    def schema(self) -> str:
        from barnabas.spark.connectors.capture.reader import capture_schema
        from barnabas.spark.connectors.polling.duckdb import DUCKDB

        return capture_schema(self.options, DUCKDB)

    def reader(self, schema: StructType) -> DataSourceReader:
        from barnabas.spark.connectors.capture.reader import capture_batch_reader
        from barnabas.spark.connectors.polling.duckdb import DUCKDB

        return capture_batch_reader(self.options, schema, DUCKDB)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from barnabas.spark.connectors.capture.reader import capture_stream_reader
        from barnabas.spark.connectors.polling.duckdb import DUCKDB

        return capture_stream_reader(self.options, schema, DUCKDB)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from barnabas.spark.connectors.sinking.writer import target_batch_writer
        from barnabas.spark.connectors.sql.sinks.opening import duckdb_plan

        return target_batch_writer(self.options, overwrite, duckdb_plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from barnabas.spark.connectors.sinking.writer import target_stream_writer
        from barnabas.spark.connectors.sql.sinks.opening import duckdb_plan

        return target_stream_writer(self.options, duckdb_plan)
