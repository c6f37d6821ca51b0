"""A driver program of the kill matrix: reads a topic, shuffles at random, writes exactly once, restarts its query.

    python -m tests.system.spark.faulty_query FOLDER SERVERS PLAN MASTER

It ends when the file `finish` appears in the folder and all rows have been written.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from barnabas.spark.environment import prepare_environment


def main(folder: Path, servers: str, plan: str, master: str) -> None:
    prepare_environment()
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sf

    builder = SparkSession.builder.master(master).config("spark.ui.enabled", False)
    builder = builder.config("spark.sql.shuffle.partitions", 3).config("spark.task.maxFailures", 4)
    if plan == "speculation":
        builder = (
            builder.config("spark.speculation", True)
            .config("spark.speculation.quantile", 0.3)
            .config("spark.speculation.multiplier", 1.1)
            .config("spark.speculation.interval", "100ms")
            .config("spark.speculation.minTaskRuntime", "500ms")
        )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    (folder / "driver.pid").write_text(str(os.getpid()))
    (folder / "jvm.pid").write_text(str(spark.sparkContext._gateway.proc.pid))

    def start() -> Any:
        stream = (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", "in")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 600)
            .load()
            .select("value")
        )
        if plan != "narrow":
            stream = stream.repartition(3, sf.rand())
        return (
            stream.writeStream.format("faulty")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", "out")
            .option("spark.faults", str(folder))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )

    while True:
        query = start()
        try:
            while not query.awaitTermination(0.5):
                if (folder / "finish").exists():
                    query.processAllAvailable()
                    query.stop()
                    return
        except StreamingQueryException as error:
            with (folder / "errors.txt").open("a") as log:
                log.write(f"{error}\n---\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
