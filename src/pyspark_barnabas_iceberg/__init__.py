"""The package by which Spark finds `format("barnabas.iceberg")`.

Spark imports it whenever it looks up any data source, so it imports only PySpark until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The data source behind `format("barnabas.iceberg")`: tables that are read, and written in batches and streams."""

    @classmethod
    def name(cls) -> str:
        return "barnabas.iceberg"

    def schema(self) -> str:
        from barnabas.spark.connectors.lake.options import LakeKind
        from barnabas.spark.connectors.lake.reading import lake_columns

        return lake_columns(LakeKind.ICEBERG, self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from barnabas.spark.connectors.lake.options import LakeKind
        from barnabas.spark.connectors.lake.reading import lake_reader

        return lake_reader(LakeKind.ICEBERG, self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from barnabas.spark.connectors.lake.opening import iceberg_plan
        from barnabas.spark.connectors.sinking.writer import target_batch_writer

        return target_batch_writer(self.options, overwrite, iceberg_plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from barnabas.spark.connectors.lake.opening import iceberg_plan
        from barnabas.spark.connectors.sinking.writer import target_stream_writer

        return target_stream_writer(self.options, iceberg_plan)
