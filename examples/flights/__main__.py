"""`make demo`, or `python -m examples.flights`: real data through a real broker and a real Spark streaming job.

1  starts `barnabas serve` in a process of its own, on a free port, with its data under out/
2  publishes 336,776 flights and 26,115 weather observations, in the order in which they happened
3  runs the pipeline of pipeline.py: windows, joins with tables, a join of the two streams
4  computes the same numbers with pandas, and compares the two results row by row
5  shows a table, and draws out/flights/flights.png
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights import expected, publish
from examples.flights.dataset import Dataset
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from barnabas.spark.environment import prepare_environment
from barnabas.spark.java import shim_home
from barnabas.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

console = Console(soft_wrap=True)
ROWS_PER_MICRO_BATCH = 60_000


def main() -> int:
    arguments = argparse.ArgumentParser(prog="make demo", description=__doc__.split("\n")[0])
    arguments.add_argument("--out", type=Path, default=Path("out/flights"), help="the output directory (%(default)s)")
    arguments.add_argument("--master", default="local[2]", help="Spark's master (%(default)s)")
    chosen = arguments.parse_args()
    shutil.rmtree(chosen.out, ignore_errors=True)
    chosen.out.mkdir(parents=True)
    began = time.monotonic()
    data = Dataset()
    with BrokerProcess(chosen.out / "broker") as broker:
        step(f"broker ready at {broker.bootstrap_servers} after {broker.start_seconds:.1f} s")
        publish_feeds(broker.bootstrap_servers, data)
        data.write_tables(chosen.out / "tables")
        correct = run_spark(broker.bootstrap_servers, data, chosen.out, chosen.master)
    step(f"done in {time.monotonic() - began:.0f} s; everything is under {chosen.out}")
    return 0 if correct else 1


def step(text: str) -> None:
    console.print(f"[bold green]•[/bold green] {text}", highlight=False)


def bars() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


def publish_feeds(servers: str, data: Dataset) -> None:
    asyncio.run(publish.create_topics(servers))
    with bars() as progress:
        for feed in data.feeds():
            task = progress.add_task(f"publishing {feed.topic}", total=len(feed.rows))
            records = feed.to_arrow()
            began = time.monotonic()
            asyncio.run(publish.publish(servers, feed.topic, records, partial(progress.advance, task)))
            rate = records.num_rows / (time.monotonic() - began)
            size = records["value"].nbytes / 1e6
            step(
                f"published {records.num_rows:,} records to the topic {feed.topic} "
                f"({size:.0f} MB of JSON, {rate:,.0f} records/s)"
            )


def run_spark(servers: str, data: Dataset, out: Path, master: str) -> bool:
    """Run all parts that need a Spark session. Returns True if the result is correct."""
    with console.status("starting Spark"):
        spark = start_session(master, out)
    from examples.flights import pipeline, report

    try:
        began = time.monotonic()
        follow(pipeline.start(spark, servers, out, ROWS_PER_MICRO_BATCH), len(data.flights))
        step(f"both streaming queries read the whole year in {time.monotonic() - began:.0f} s")
        with console.status("reading the results"):
            delays = pipeline.read_delays(spark, servers).toPandas()
            in_weather = expected.read_parquet(out / "flights_in_weather")
    finally:
        spark.stop()
    correct = check("topic delays", delays, expected.delays_by_day(data))
    correct &= check("table flights_in_weather", in_weather, expected.flights_in_weather(data))
    console.print(report.airlines_table(delays))
    report.draw(delays, in_weather, out / "flights.png")
    step(f"plot: {out / 'flights.png'}")
    return correct


def start_session(master: str, out: Path) -> SparkSession:
    """A plain local session; `format("barnabas")` needs no special configuration."""
    # The launcher removes a Java option that makes Java print a warning.
    os.environ["JAVA_HOME"] = str(shim_home(prepare_environment(), (out / "java").resolve()))
    from pyspark.sql import SparkSession

    quiet = Path(__file__).with_name("log4j2.properties").resolve().as_uri()
    session: SparkSession = (
        SparkSession.builder.master(master)
        .appName("flights")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 4)
        .config("spark.sql.warehouse.dir", str((out / "warehouse").resolve()))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet}")
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .getOrCreate()
    )
    return session


def follow(queries: Mapping[str, StreamingQuery], flights: int) -> None:
    """Show the progress of the queries until they end. Raises the exception of a query that failed."""
    with bars() as progress:
        tasks = {name: progress.add_task(f"streaming {name}", total=flights) for name in queries}
        while any(query.isActive for query in queries.values()):
            for name, query in queries.items():
                query.awaitTermination(0.2)
                done = sum(
                    source.numInputRows
                    for report in query.recentProgress
                    for source in report.sources
                    if '"flights"' in str(source.endOffset)
                )
                progress.update(tasks[name], completed=done)


def check(what: str, got: expected.pd.DataFrame, wanted: expected.pd.DataFrame) -> bool:
    """Compare a result with the one that pandas computed, print the outcome, and return whether they are equal."""
    differences = expected.compare(got, wanted)
    if not differences:
        step(f"{what}: {len(got):,} rows, each the same as in the batch computation")
    for difference in differences:
        console.print(f"[bold red]✗[/bold red] {what} is wrong: {difference}")
    return not differences


if __name__ == "__main__":
    sys.exit(main())
