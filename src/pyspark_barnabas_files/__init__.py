"""The package by which Spark finds `format("barnabas.files")`.

Spark imports it whenever it looks up any data source, so it imports only PySpark until it is used.
"""

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
    """The data source behind `format("barnabas.files")`: a text file, or a directory of files."""

    @classmethod
    def name(cls) -> str:
        return "barnabas.files"

    def schema(self) -> str:
        from barnabas.spark.connectors.files.source import file_schema

        return file_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from barnabas.spark.connectors.files.source import file_batch_reader

        return file_batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from barnabas.spark.connectors.files.source import file_stream_reader

        return file_stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from barnabas.spark.connectors.files.opening import file_plan
        from barnabas.spark.connectors.sinking.writer import target_batch_writer

        return target_batch_writer(self.options, overwrite, file_plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from barnabas.spark.connectors.files.opening import file_plan
        from barnabas.spark.connectors.sinking.writer import target_stream_writer

        return target_stream_writer(self.options, file_plan)
