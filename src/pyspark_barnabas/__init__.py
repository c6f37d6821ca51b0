"""By this package Spark finds `format("barnabas")` without being told: it imports every module named `pyspark_*`.

It is imported whenever any data source is looked up, so it must stay tiny: the work is in `barnabas.spark`, and is
imported when it is called.
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
    """`spark.read.format("barnabas")` and its three siblings."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> str:
        from barnabas.spark.source import schema

        return schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from barnabas.spark.source import batch_reader

        return batch_reader(self.options, schema.names)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from barnabas.spark.source import stream_reader

        return stream_reader(self.options, schema.names)

    # Spark passes `overwrite` by keyword in some processes and by position in others: its name is part of the API.
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from barnabas.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from barnabas.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
