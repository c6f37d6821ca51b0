"""A driver program that dies at named points: the lines of a text file into a lake table or a directory, exactly once.

    python -m tests.system.connectors.lake_driver FOLDER FORMAT OPTIONS

FOLDER/lines.txt is the input. The program ends when it is written. Faults are files FOLDER/armed-N-POINT-ACTION,
which fire in the order of their numbers: at the points `written` (a task has its files), `staged` (all tasks have) and
`committed`, with the actions `raise`, `exit` (the Python process) and `jvm` (all of Spark).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter

from barnabas.spark.environment import prepare_environment


def fire(folder: Path, point: str) -> None:
    """Carry out the next fault if it is at this point."""
    armed = sorted(folder.glob("armed-*"))
    if not armed:
        return
    _, number, wanted, action = armed[0].name.split("-")
    if wanted != point:
        return
    try:
        armed[0].rename(folder / f"fired-{number}-{point}-{action}")
    except FileNotFoundError:
        return  # another task of the micro-batch
    if action == "jvm":
        os.kill(int((folder / "jvm.pid").read_text()), signal.SIGKILL)
    if action == "raise":
        raise RuntimeError(f"a fault at {point}")
    os._exit(1)


class FaultyWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The writer of a format, with faults."""

    def __init__(self, inner: Any, folder: Path) -> None:
        self.inner = inner
        self.folder = folder

    def write(self, iterator: Iterator[Any]) -> Any:
        message = self.inner.write(iterator)
        fire(self.folder, "written")
        return message

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  # the name of Spark
        fire(self.folder, "staged")
        self.inner.commit(messages, batchId)
        fire(self.folder, "committed")

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  # the name of Spark
        self.inner.abort(messages, batchId)


class FaultySink(DataSource):  # type: ignore[misc]  # pyspark is not followed by mypy
    """`format("faulty_sink")`: the format that the option __format names, with faults."""

    @classmethod
    def name(cls) -> str:
        return "faulty_sink"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        import importlib

        module = importlib.import_module("pyspark_barnabas_" + self.options["__format"].removeprefix("barnabas."))
        inner = module.DefaultSource(self.options).streamWriter(schema, overwrite)
        return FaultyWriter(inner, Path(self.options["__folder"]))


def main(folder: Path, format_: str, options: dict[str, str]) -> None:
    prepare_environment()
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", False).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    (folder / "jvm.pid").write_text(str(spark.sparkContext._gateway.proc.pid))
    spark.dataSource.register(FaultySink)
    while True:
        lines = (
            spark.readStream.format("barnabas.files")
            .option("file", str(folder / "lines.txt"))
            .option("maxBytesPerTrigger", "2k")
            .load()
        )
        query = (
            lines.selectExpr("CAST(value AS BIGINT) AS id", "CAST(value AS BIGINT) % 10 AS slot", "position")
            .repartition(2)
            .writeStream.format("faulty_sink")
            .options(**{**options, "__format": format_, "__folder": str(folder)})
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
            break
        except StreamingQueryException as error:
            with (folder / "errors.txt").open("a") as log:
                log.write(f"{error}\n---\n")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
