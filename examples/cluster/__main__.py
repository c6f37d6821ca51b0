"""Shell: `python -m examples.cluster`: a broker, a standalone Spark cluster of two workers, and a pipeline that
survives the kill -9 of an executor in the middle of a micro-batch.

Prints what happens, and compares the files that the pipeline wrote with the records that were published. Everything is
left under `out/cluster`. On Linux; two to three minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from examples.cluster.job import TOPIC, Job, run, start_session
from examples.cluster.standalone import StandaloneSpark

from barnabas.client.admin import AsyncAdmin
from barnabas.client.producer.producer import AsyncProducer
from barnabas.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

PARTITIONS = 4


async def publish(servers: str, records: int) -> None:
    """Payments of whole euros: the value of record i is i."""
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.create_topic(TOPIC, PARTITIONS, 1)
    table = pa.table(
        {
            "key": pa.array([b"account-%d" % (i % 1000) for i in range(records)]),
            "value": pa.array([b"%d" % i for i in range(records)]),
        }
    )
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        await producer.send_arrow(TOPIC, table, key="key")


def kill_in_a_batch(spark: SparkSession, cluster: StandaloneSpark, query: StreamingQuery) -> int | None:
    """Kill an executor while tasks of a later micro-batch run. Returns its process id, or None if the query ended."""
    tracker = spark.sparkContext.statusTracker()
    while query.isActive:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        progress = query.lastProgress
        if progress is not None and any(stage is not None and stage.numActiveTasks for stage in stages):
            return cluster.kill_executor()
        time.sleep(0.005)
    return None


def check(job: Job, records: int) -> list[str]:
    """Compare the files with the records; every record must be there once. Returns the differences."""
    log = Path(job.files, "_spark_metadata")
    assert log.is_dir(), "the query has written no batch"
    # Files of a killed task are left behind; the log of the file sink, which Spark itself reads, does not list them.
    listed = {
        line.split('"path":"')[1].split('"')[0].removeprefix("file://")
        for batch in log.iterdir()
        if not batch.name.endswith((".crc", ".tmp"))
        for line in batch.read_text().splitlines()
        if '"path":"' in line
    }
    rows = pa.concat_tables([pq.read_table(path) for path in sorted(listed)])
    found = Counter(rows["cents"].to_pylist())
    expected = Counter(range(0, records * 100, 100))
    lost, extra = expected - found, found - expected
    return [f"{lost.total()} records are missing", f"{extra.total()} records are too many"] if lost or extra else []


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.cluster", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=Path("out/cluster"))
    chosen = parser.parse_args(arguments)
    shutil.rmtree(chosen.out, ignore_errors=True)
    out = chosen.out.resolve()
    out.mkdir(parents=True)
    with BrokerProcess(out / "broker") as broker, StandaloneSpark(out / "spark") as cluster:
        print(f"broker {broker.bootstrap_servers}, Spark {cluster.url} with two workers")
        asyncio.run(publish(broker.bootstrap_servers, chosen.records))
        job = Job(broker.bootstrap_servers, out / "shared", max(1, chosen.records // 8))
        spark = start_session(cluster.url)
        try:
            query = run(spark, job)
            killed = kill_in_a_batch(spark, cluster, query)
            print(f"killed the executor with the process id {killed} in the middle of a micro-batch")
            query.awaitTermination()
            if query.exception() is not None:
                print(query.exception())
                return 1
        finally:
            spark.stop()
    differences = check(job, chosen.records)
    print("\n".join(differences) or f"all {chosen.records} records are in the files, each once")
    return 1 if differences or killed is None else 0


if __name__ == "__main__":
    sys.exit(main())
