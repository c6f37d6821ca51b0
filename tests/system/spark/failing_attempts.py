"""Batch writes of which one task attempt fails, in a Spark session that tries tasks again; run as a program.

    python -m tests.system.spark.failing_attempts SERVERS TOPIC TIMES FOLDER

Prints, for each write, how many rows a reader that starts right after `save()` sees.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROWS = 12
BATCH_ROWS = 6
ROW_BYTES = 720_000
"""A batch of Arrow is larger than a chunk of the sink (4 MiB): an attempt writes its first one before it fails."""


def main(servers: str, topic: str, times: int, folder: str) -> None:
    from barnabas.spark.environment import prepare_environment, session_defaults

    prepare_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", False)
    for key, value in session_defaults("local[2,3]").items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH_ROWS)
    for number in range(times):
        marker = str(Path(folder) / f"failed-{number}")

        def failing_once(batches: Iterable[Any], marker: str = marker) -> Iterator[Any]:
            for count, batch in enumerate(batches):
                yield batch
                if count == 1:  # rows of this attempt are in the log
                    try:
                        Path(marker).touch(exist_ok=False)
                    except FileExistsError:
                        continue
                    raise RuntimeError("a function of the user fails")

        rows = spark.range(0, ROWS, 1, 1).selectExpr(f"repeat('x', {ROW_BYTES}) AS value")
        rows.mapInArrow(failing_once, "value string").write.format("barnabas").options(
            **{"kafka.bootstrap.servers": servers, "topic": topic, "delivery": "exactly-once"}
        ).mode("append").save()
        reader = spark.read.format("barnabas").options(**{"kafka.bootstrap.servers": servers, "subscribe": topic})
        print(reader.option("columns", "offset").load().count(), Path(marker).exists(), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
