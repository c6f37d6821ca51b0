"""Shell: `python -m bench.pipelines`: pipelines on Spark and on `barnabas.stream`, beside Spark's own connector and
Kafka Streams, on one broker of ours and with the same data.

Spark's connector writes at least once; it comes from Maven Central, as Kafka Streams does, and without Maven their rows
are missing. `--only read,write` chooses measurements; `--write docs/PERFORMANCE.md` puts each table, as soon as it is
there, between the `pipelines` markers of that file. Everything takes about ten minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from tests.interop.spark_connector import connector_jars, start_session

from barnabas.testing.process import BrokerProcess
from bench.pipelines import batch, parts, streaming
from bench.pipelines.latency import LatencyLoad, latency_sheet
from bench.report import Sheet, write
from bench.spark_typed import measure_typed

NAMES = ("read", "write", "table", "transform", "words", "batch-times", "parts", "typed", "latency")
HEADING = ("", "records/s", "MB/s", "broker CPU", "ratio")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipelines", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=2, help="how often everything is measured (%(default)s)")
    parser.add_argument("--megabytes", type=int, default=100, help="the size of each topic (%(default)s)")
    parser.add_argument("--only", default=",".join(NAMES), help="measurements, with commas between them (all)")
    parser.add_argument("--write", type=Path, help="put the tables between the markers of this Markdown file")
    chosen = parser.parse_args()
    names = chosen.only.split(",")
    if unknown := set(names) - set(NAMES):
        parser.error(f"there is no measurement {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    console = Console()
    sheets: list[Sheet] = []
    began = time.monotonic()

    def finish(sheet: Sheet) -> None:
        sheets.append(sheet)
        console.print(sheet.render())
        console.print(f"after {time.monotonic() - began:,.0f} s")
        if chosen.write:
            write(chosen.write, sheets, "pipelines")

    measure(names, chosen.rounds, chosen.megabytes, console, finish)


def measure(names: list[str], rounds: int, megabytes: int, console: Console, finish: Callable[[Sheet], None]) -> None:
    """Run the measurements, and call `finish` with each table."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-pipelines-")))
        notes = parts.notes_folder(folder)
        settings = ("group.initial.rebalance.delay.ms=0", "transaction.two.phase.commit.enable=true")
        broker = stack.enter_context(BrokerProcess(folder / "broker", settings=settings))
        if "latency" in names:
            finish(latency_sheet(broker.bootstrap_servers, rounds, LatencyLoad()))
        if "typed" in names:  # before the other session: the class path of the JVM is that of its first session
            finish(measure_typed(rounds, megabytes * 5_000))
        if set(names) - {"latency", "typed"}:
            jars = connector_jars()
            assert broker.process is not None
            spark = start_session(jars, {"spark.python.unix.domain.socket.enabled": "true"})  # docs/SPARK.md, Speed
            stack.callback(spark.stop)
            bench = batch.Bench(spark, broker.bootstrap_servers, bool(jars), broker.process.pid)
            if set(names) - {"latency", "typed", "batch-times", "parts"}:
                finish(throughput_sheet(bench, names, rounds, megabytes, console))
            small = streaming.small_topic(bench) if {"batch-times", "parts"} & set(names) else ""
            if "batch-times" in names:
                finish(streaming.batch_times(bench, small, rounds))
            if "parts" in names:
                finish(parts.parts_sheet(bench, small, streaming.SMALL_BATCH, 1, notes))


def throughput_sheet(bench: batch.Bench, names: list[str], rounds: int, megabytes: int, console: Console) -> Sheet:
    loads = batch.fill_topics(bench.servers, megabytes) if {"read", "transform"} & set(names) else {}
    plans = {
        "read": lambda: batch.reads(bench, loads),
        "write": lambda: batch.writes(bench, megabytes),
        "table": lambda: batch.tables(bench, megabytes * 10_000, megabytes * 500),
        "transform": lambda: streaming.transforms(bench, loads[100]),
        "words": lambda: streaming.word_counts(bench, megabytes * 2_500),
    }
    cells: list[tuple[str, ...]] = []
    for name in (name for name in NAMES if name in names and name in plans):
        for row in plans[name]():
            row.run(rounds, bench.broker_pid)
            cells += row.cells()
            for line in cells[-len(row.contenders) :]:
                console.print(*line, sep="  ", highlight=False)
    title = (
        f"Spark, local[2] on {os.cpu_count()} cores, {megabytes} MB a topic, {batch.PARTITIONS} partitions, median of"
    )
    return Sheet(
        f"{title} {rounds} rounds; the ratio is to the last of its group; broker CPU is per record", HEADING, cells
    )


if __name__ == "__main__":
    main()
