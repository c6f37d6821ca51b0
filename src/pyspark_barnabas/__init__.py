"""The package by which Spark finds `format("barnabas")`: Spark imports every module whose name begins with `pyspark_`.

Spark imports this package whenever it looks up any data source, so the package must stay small. `barnabas.spark` has
the implementation, and is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    """The data source behind `format("barnabas")`: batch and streaming readers and writers."""

    # Spark pickles the data source after it has called `schema`. The readers therefore use the schemas of that call.
    _pinned: Any = None

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> str:
        from barnabas.spark.source.reader import schema

        ddl, self._pinned = schema(self.options)
        return ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        from barnabas.spark.source.reader import batch_reader

        return batch_reader(self.options, schema, self._pinned)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from barnabas.spark.source.reader import stream_reader

        return stream_reader(self.options, schema, self._pinned)

    # Spark passes `overwrite` by keyword in some processes and by position in others, so its name is part of the API.
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from barnabas.spark.sink.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from barnabas.spark.sink.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)
