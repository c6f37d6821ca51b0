"""Shell: the pipeline of this example: payments from a topic, converted and written to Parquet files.

The query has no state of its own. Its checkpoint and its files are on storage that the driver and all executors share
(here a directory; on real hosts NFS, HDFS or an object store), so that any executor can continue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

TOPIC = "payments"


@dataclass(frozen=True)
class Job:
    """Where the pipeline reads and writes."""

    servers: str
    shared: Path
    """Storage that the driver and all executors see."""
    offsets_per_batch: int = 20_000

    @property
    def files(self) -> str:
        return str(self.shared / "payments")


def start_session(master: str, *, cores: int = 1) -> SparkSession:
    """A session on a standalone cluster, with an executor of `cores` cores on each worker."""
    from pyspark.sql import SparkSession

    spark: SparkSession = (
        SparkSession.builder.master(master)
        .appName("payments")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.cores", cores)
        .config("spark.executor.memory", "512m")
        .config("spark.task.maxFailures", 8)  # an executor that is killed costs a task one attempt
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def run(spark: SparkSession, job: Job) -> StreamingQuery:
    """Start the query, which ends when it has read what the topic has."""
    payments = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", job.servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.offsets_per_batch)
        .load()
    )

    # A function inside a function is sent to the executors with its code. A function of a module is sent by its name,
    # and then the executors need the module: ship it with --py-files, or in the packed environment.
    def to_cents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs in the executors: euros as text to cents."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            account = batch.column(0).cast(pa.string())
            cents = pc.multiply(batch.column(1).cast(pa.string()).cast(pa.int64()), 100)
            columns = [account, cents, batch.column(2), batch.column(3)]
            yield pa.RecordBatch.from_arrays(columns, names=["account", "cents", "partition", "offset"])

    converted = payments.select("key", "value", "partition", "offset").mapInArrow(
        to_cents, "account string, cents long, partition int, offset long"
    )
    return (
        converted.writeStream.format("parquet")
        .option("path", job.files)
        .option("checkpointLocation", str(job.shared / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
