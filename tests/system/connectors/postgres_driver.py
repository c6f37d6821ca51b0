"""A driver program that the tests kill: the rows of a PostgreSQL table into a topic, exactly once.

    python -m tests.system.connectors.postgres_driver FOLDER SERVERS OPTIONS once|continuous

OPTIONS is the JSON of the source's options. With output=records, the records are written as they are. With output=rows,
a record's key is the key of the row, its value the row in JSON, or null for a deleted row; the header `position` has
the position of the change.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from barnabas.spark.environment import prepare_environment


def main(folder: Path, servers: str, options: str, mode: str) -> None:
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    given = json.loads(options)
    rows = spark.readStream.format("barnabas.postgres").options(**given).load()
    records = rows if given["output"] == "records" else as_records(rows)
    writer = records.writeStream.format("barnabas").option("kafka.bootstrap.servers", servers)
    writer = writer.option("includeHeaders", True).option("checkpointLocation", str(folder / "checkpoint"))
    query = (writer.trigger(availableNow=True) if mode == "once" else writer).start()
    query.awaitTermination()
    spark.stop()


def as_records(rows: Any) -> Any:
    """The rows as records of the topic `out`."""
    value = "to_json(struct(id, code, big, ratio, __unavailable), map('ignoreNullFields', 'false'))"
    return rows.selectExpr(
        "'out' AS topic",
        "CAST(id AS STRING) AS key",
        f"IF(__deleted, NULL, {value}) AS value",
        "array(struct('position' AS key, CAST(concat(__position, __op) AS BINARY) AS value)) AS headers",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
