"""`make demo`, or `python -m examples.flights`: real data through a real broker and a real pipeline on Spark.

1  starts `barnabas serve` in a process of its own, on a free port, with its data under out/
2  publishes 26,115 weather observations, in the order in which they happened
3  writes 336,776 flights to a SQLite database, from which a Spark job takes them into a topic. The last ones are only
   scheduled at first, and change while the job runs
4  runs the pipeline in pipeline/ with `barnabas pipelines run`, and kills it (kill -9) in the middle
5  runs it again: it continues from its checkpoints
6  computes the same numbers with pandas, and compares the two results row by row
7  shows a table, and draws out/flights/flights.png
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from examples.flights import expected, publish, results
from examples.flights.database import AirportDatabase
from examples.flights.dataset import Dataset
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from barnabas.testing.process import BrokerProcess

console = Console(soft_wrap=True)
PIPELINE = Path(__file__).with_name("pipeline")
STORAGE = "file:///tmp/flights-pipeline"
KILL_AFTER = 0.4
"""The share of the records after which the pipeline is killed."""


def main() -> int:
    arguments = argparse.ArgumentParser(prog="make demo", description=__doc__.split("\n")[0])
    arguments.add_argument("--out", type=Path, default=Path("out/flights"), help="the output directory (%(default)s)")
    arguments.add_argument("--master", default="local[2]", help="Spark's master (%(default)s)")
    chosen = arguments.parse_args()
    shutil.rmtree(chosen.out, ignore_errors=True)
    chosen.out.mkdir(parents=True)
    began = time.monotonic()
    data = Dataset()
    # Kafka's name for the setting with which a decided transaction does not time out while its driver is dead.
    with BrokerProcess(chosen.out / "broker", settings=["transaction.two.phase.commit.enable=true"]) as broker:
        step(f"broker ready at {broker.bootstrap_servers} after {broker.start_seconds:.1f} s")
        publish_weather(broker.bootstrap_servers, data)
        capture_flights(broker.bootstrap_servers, data, chosen.out)
        correct = run_pipeline(broker.bootstrap_servers, data, chosen.out, chosen.master)
    if not correct:
        console.print(f"[bold red]✗[/bold red] the results are wrong, see above; everything is under {chosen.out}")
        return 1
    step(f"done in {time.monotonic() - began:.0f} s; everything is under {chosen.out}")
    return 0


def step(text: str) -> None:
    console.print(f"[bold green]•[/bold green] {text}", highlight=False)


def bars() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


def publish_weather(servers: str, data: Dataset) -> None:
    asyncio.run(publish.create_topics(servers))
    feed = data.weather_feed()
    with bars() as progress:
        task = progress.add_task(f"publishing {feed.topic}", total=len(feed.rows))
        records = feed.to_arrow()
        began = time.monotonic()
        asyncio.run(publish.publish(servers, feed.topic, records, partial(progress.advance, task)))
        rate = records.num_rows / (time.monotonic() - began)
    step(f"published {records.num_rows:,} records to the topic {feed.topic} ({rate:,.0f} records/s)")


def capture_flights(servers: str, data: Dataset, out: Path) -> None:
    """Take the flights of the database into their topic, and change some of them meanwhile."""
    database = AirportDatabase(out / "airport.db", data.flights)
    with console.status("writing the database"):
        database.create()
    step(f"wrote {len(data.flights):,} flights to the SQLite database {database.path}")
    began = time.monotonic()
    with bars() as progress, CaptureJob(database.path, servers, out) as capture:
        task = progress.add_task("flights into their topic", total=len(data.flights))
        capture.wait_for(lambda read: progress.update(task, completed=read), len(data.flights))
        task = progress.add_task("flights change", total=database.changes)
        database.change(partial(progress.advance, task))
        capture.finish()
    records = asyncio.run(results.count_records(servers, ["flights"]))
    step(
        f"a Spark job took them into the topic flights, and {database.changes:,} changes while it ran: "
        f"{records:,} offsets in {time.monotonic() - began:.0f} s"
    )


class CaptureJob:
    """Runs `examples.flights.capture` in a process of its own."""

    def __init__(self, database: Path, servers: str, out: Path) -> None:
        self._servers = servers
        self._directory = out / "capture"
        self._directory.mkdir()
        self._log = out / "capture.log.txt"
        command = [sys.executable, "-m", "examples.flights.capture", str(database), servers, str(self._directory)]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def __enter__(self) -> CaptureJob:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def wait_for(self, on_progress: Callable[[int], object], records: int) -> None:
        """Wait until the topic has this many records."""
        found = 0
        while found < records:
            if self._process.poll() is not None:
                raise SystemExit(f"the job ended with exit code {self._process.returncode}; see {self._log}")
            found = asyncio.run(results.count_records(self._servers, ["flights"]))
            on_progress(min(found, records))
            time.sleep(0.5)

    def finish(self) -> None:
        """Let the job read what is left, and end."""
        (self._directory / "finish").touch()
        if self._process.wait():
            raise SystemExit(f"the job failed with exit code {self._process.returncode}; see {self._log}")


def run_pipeline(servers: str, data: Dataset, out: Path, master: str) -> bool:
    """Run the pipeline, and compare its results. Returns True if they are correct."""
    project = out / "pipeline"
    shutil.copytree(PIPELINE, project)
    data.write_tables(project / "tables")
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace(STORAGE, (out / "storage").resolve().as_uri()))
    began = time.monotonic()
    with bars() as progress:
        records = asyncio.run(results.count_records(servers, ["flights", "weather"]))
        driver = PipelineDriver(project, servers, master, records, progress)
        driver.follow(kill_after=KILL_AFTER)
        step(f"killed the pipeline's driver after {driver.share_read:.0%} of the records")
        driver.follow()
    step(f"the second driver read the rest; both took {time.monotonic() - began:.0f} s")
    with console.status("reading the results"):
        delays = expected.read_parquet(project / "spark-warehouse" / "delays")
        in_weather = asyncio.run(results.read_flights_in_weather(servers, expected.flights_in_weather(data)))
    correct = check("table delays", delays, expected.delays_by_day(data))
    correct &= check("topic flights-in-weather", in_weather, expected.flights_in_weather(data))
    from examples.flights import report

    console.print(report.airlines_table(delays))
    report.draw(delays, in_weather, out / "flights.png")
    step(f"plot: {out / 'flights.png'}")
    return correct


class PipelineDriver:
    """Runs `barnabas pipelines run --once` in a process of its own, and shows its progress."""

    def __init__(self, project: Path, servers: str, master: str, records: int, progress: Progress) -> None:
        self._command = [
            sys.executable,
            "-m",
            "barnabas",
            "pipelines",
            "run",
            str(project),
            "--master",
            master,
            "--json",
        ]
        self._environment = os.environ | {"BARNABAS_BOOTSTRAP": servers}
        self._log = project.with_name("pipeline.log.txt")
        self._records = records
        self._progress = progress
        self._task = progress.add_task("joining flights with weather", total=records)
        self.share_read = 0.0

    def follow(self, *, kill_after: float | None = None) -> None:
        """Run the pipeline to its end, or kill it when it has read this share of the records."""
        with (
            self._log.open("a") as log,  # the Java process of a driver that is killed complains
            subprocess.Popen(
                self._command, env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                self._show(json.loads(line))
                if kill_after is not None and self.share_read >= kill_after:
                    process.kill()
                    return
        if process.returncode:
            raise SystemExit(f"the pipeline failed with exit code {process.returncode}; see {self._log}")

    def _show(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "progress" and event["flow"] == "join_weather" and event["lag"] is not None:
            read = self._records - event["lag"]
            self.share_read = read / self._records
            self._progress.update(self._task, completed=read)


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
