"""The package by which Spark finds `format("barnabas.http")`.

Spark imports it whenever it looks up any data source, so it imports only PySpark until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The data source behind `format("barnabas.http")`: requests to a web service."""

    @classmethod
    def name(cls) -> str:
        return "barnabas.http"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from barnabas.spark.connectors.http.writer import http_batch_writer

        return http_batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from barnabas.spark.connectors.http.writer import http_stream_writer

        return http_stream_writer(self.options, schema, overwrite)
