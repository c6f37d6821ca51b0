"""`format("faulty")`: the data source `barnabas` with faults at named points (tests/system/spark/faults.py)."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):  # type: ignore[misc]  # pyspark is not followed by mypy
    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from tests.system.spark.faults import faulty_stream_writer

        return faulty_stream_writer(dict(self.options), schema, overwrite)
