"""The package by which Spark finds `format("barnabas.mariadb")`; see `pyspark_barnabas` for why it stays small."""

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

    from barnabas.spark.connectors.capture.ports import Connector


class DefaultSource(DataSource):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The data source behind `format("barnabas.mariadb")`: the changes of tables, and their rows.

    With the option `mode`, the tables are polled.
    """

    @classmethod
    def name(cls) -> str:
        return "barnabas.mariadb"

    def _connector(self) -> Connector:
        if "mode" in self.options:
            from barnabas.spark.connectors.polling.mysql import MARIADB_POLLING

            return MARIADB_POLLING
        from barnabas.spark.connectors.mysql.source import MARIADB

        return MARIADB

    def schema(self) -> str:
        from barnabas.spark.connectors.capture.reader import capture_schema

        return capture_schema(self.options, self._connector())

    def reader(self, schema: StructType) -> DataSourceReader:
        from barnabas.spark.connectors.capture.reader import capture_batch_reader

        return capture_batch_reader(self.options, schema, self._connector())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from barnabas.spark.connectors.capture.reader import capture_stream_reader

        return capture_stream_reader(self.options, schema, self._connector())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from barnabas.spark.connectors.sinking.writer import target_batch_writer
        from barnabas.spark.connectors.sql.sinks.opening import mysql_plan

        return target_batch_writer(self.options, overwrite, mysql_plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from barnabas.spark.connectors.sinking.writer import target_stream_writer
        from barnabas.spark.connectors.sql.sinks.opening import mysql_plan

        return target_stream_writer(self.options, mysql_plan)
