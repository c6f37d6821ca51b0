"""Shell: `python -m bench.lake_sinks`: rows per second from Spark into lake tables and files, beside its Parquet sink.

Each sink writes the same rows (five columns) with two tasks. A round writes once to each sink; the table shows the
median of the rounds after the first, in which Spark and the kernels are compiled. Budget: Spark passes rows to Python
at some 2,000,000 rows/s on two cores, and PyArrow's Parquet writer takes about as long as Spark's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from barnabas.spark.environment import prepare_environment

ICEBERG = {"table": "bench.rows"}
UPSERT = {"insert.mode": "upsert", "pk.fields": "id"}
SINKS: dict[str, tuple[str, dict[str, str]]] = {
    "Spark, Parquet": ("parquet", {}),
    "Delta": ("barnabas.delta", {}),
    "Delta, upsert into an empty table": ("barnabas.delta", UPSERT),
    "Iceberg": ("barnabas.iceberg", ICEBERG),
    "Iceberg, upsert into an empty table": ("barnabas.iceberg", ICEBERG | UPSERT),
    "files, Parquet": ("barnabas.files", {"file.format": "parquet"}),
    "files, Avro": ("barnabas.files", {"file.format": "avro"}),
    "files, JSON": ("barnabas.files", {"file.format": "json"}),
}


def write(frame: Any, format_: str, options: dict[str, str], folder: str) -> float:
    """Write all rows, and return the seconds."""
    place = {"catalog.warehouse": folder} if format_ == "barnabas.iceberg" else {"path": f"{folder}/rows"}
    start = time.perf_counter()
    frame.write.format(format_).mode("append").options(**options, **place).save()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="rows per second into lake tables")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    prepare_environment()
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.range(given.rows).selectExpr(
        "id",
        "concat('name-', id % 1000) AS name",
        "id * 1.5D AS price",
        "timestamp_seconds(id) AS at",
        "id % 7 AS shard",
    )
    seconds: dict[str, list[float]] = {name: [] for name in SINKS}
    for _ in range(given.rounds):
        for name, (format_, options) in SINKS.items():
            with tempfile.TemporaryDirectory() as folder:
                seconds[name].append(write(frame, format_, options, folder))
    spark.stop()
    table = Table("sink", "rows/s", "beside Spark's Parquet")
    base = seconds["Spark, Parquet"]
    for name, measured in seconds.items():
        ratios = [one / other for one, other in zip(base[1:], measured[1:], strict=True)]
        rate = given.rows / statistics.median(measured[1:])
        table.add_row(name, f"{rate:,.0f}", f"{statistics.median(ratios):.2f} x")
    Console().print(table)


if __name__ == "__main__":
    main()
