"""A driver program that the tests kill: the streaming queries of a JSON file, in one Spark session.

    python -m tests.system.connectors.query_driver FOLDER once|continuous [MASTER]

FOLDER/queries.json has a list of objects with `name`, `read` and `write` (the options, and the `format`), and perhaps
`select` (expressions of SQL) and `workers die` (the test kills Spark's Python processes). A query's checkpoint is
FOLDER/NAME. With `once`, the queries that read databases read all there is, then those that read topics, and the
program ends. With `continuous`, all of them run until one fails.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from barnabas.spark.environment import prepare_environment

STARVED = "Python worker failed to connect back"
"""Spark gives a worker ten seconds to start, which a busy machine may need longer for. The query is started again."""

WORKER_DIED = ("Python worker exited unexpectedly", "Connection reset", "EOFException", "Broken pipe")
"""What Spark says of a query whose Python process was killed. It is started again if the query has `workers die`."""

FAILURES_MAX = 30


def main(folder: Path, mode: str, master: str = "local[4]") -> None:
    prepare_environment()
    from pyspark.sql import SparkSession

    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    builder = SparkSession.builder.master(master).config("spark.driver.extraJavaOptions", options)
    builder = builder.config("spark.ui.enabled", False).config("spark.sql.session.timeZone", "UTC")
    spark = builder.config("spark.driver.memory", "2g").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    queries = json.loads((folder / "queries.json").read_text())
    if mode == "continuous":
        run_all(spark, folder, queries)
    for from_topics in (False, True):
        for query in queries:
            if (query["read"]["format"] == "barnabas") == from_topics:
                run_once(spark, folder, query)
    spark.stop()


def run_all(spark: Any, folder: Path, queries: list[dict[str, Any]]) -> None:
    """Start the queries one after the other, since each one starts processes, and watch them until one fails for good.

    A sink fails if its database dies between the tasks and the commit of a micro-batch, and is started again.
    """
    running: dict[str, Any] = {}
    failures: Counter[str] = Counter()
    while True:
        for query in queries:
            name = query["name"]
            one = running.get(name)
            if one is not None and not one.isActive:
                print(f"{name} failed: {one.exception()}", file=sys.stderr, flush=True)
                failures[name] += 1
                excused = (STARVED, *WORKER_DIED) if query.get("workers die") else (STARVED,)
                may_fail = query["read"]["format"] == "barnabas" or any(
                    text in str(one.exception()) for text in excused
                )
                if not may_fail or failures[name] > FAILURES_MAX:
                    sys.exit(1)
                one = None
            if one is None:
                one = running[name] = start(spark, folder, query, once=False)
                while one.isActive and one.lastProgress is None:
                    time.sleep(0.2)  # Spark's JVM does not notify Python of progress
        time.sleep(0.2)  # between two looks at the queries


def run_once(spark: Any, folder: Path, query: dict[str, Any]) -> None:
    while True:
        try:
            start(spark, folder, query, once=True).awaitTermination()
            return
        except Exception as error:
            if STARVED not in str(error):
                raise


def start(spark: Any, folder: Path, query: dict[str, Any], *, once: bool) -> Any:
    reading, writing = dict(query["read"]), dict(query["write"])
    rows = spark.readStream.format(reading.pop("format")).options(**reading).load()
    if "select" in query:
        rows = rows.selectExpr(*query["select"])
    writer = rows.writeStream.format(writing.pop("format")).options(**writing).queryName(query["name"])
    writer = writer.option("checkpointLocation", str(folder / query["name"]))
    return (writer.trigger(availableNow=True) if once else writer).start()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
