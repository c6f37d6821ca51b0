"""Shell: `python -m bench.connectors`: change capture and sinks of databases, ours beside Debezium's in Kafka Connect.

Both sides work on the same server, the same broker and the same rows, in turn, each with a table of its own. A first
round with a few rows warms up the Spark session and the Java machines, and is not counted. Debezium and Connect come
from Maven Central; without Maven their columns are missing. `--write docs/PERFORMANCE.md` puts each table, as soon as
it is there, between the `connectors` markers of that file. Everything takes about ten minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from tests.interop.spark_connector import start_session

from barnabas.spark.environment import session_defaults
from barnabas.testing.databases import MariaDbServer, PostgresServer
from bench.connectors.databases import TRANSACTION_ROWS, Database, MariaDb, Postgres
from bench.connectors.measuring import Bench, Load, fill_topic
from bench.connectors.sides import Barnabas, Debezium, Side
from bench.report import Measured, Sheet, number, ratio, write
from bench.servers import find_server

SECTION: Final = "connectors"
TOPIC: Final = "items"
WARM_UP: Final = 20
"""The first round has so many times less rows."""
DATABASES: Final[dict[str, tuple[Callable[[], Any], Callable[[Any], Database]]]] = {
    "postgres": (PostgresServer, Postgres),
    "mariadb": (MariaDbServer, MariaDb),
}
PARTS: Final = ("capture", "sink")


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    databases: list[str]
    parts: list[str]
    load: Load
    rounds: int
    peer: bool
    broker: str


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.connectors", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=300_000, help="rows of a captured table (%(default)s)")
    parser.add_argument("--sink-rows", type=int, default=150_000, help="records of the sink's topic (%(default)s)")
    parser.add_argument("--latency-seconds", type=int, default=15, help="how long latency is measured (%(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="how often everything is measured (%(default)s)")
    parser.add_argument("--databases", default=",".join(DATABASES), help="with commas between them (%(default)s)")
    parser.add_argument("--only", default=",".join(PARTS), help="measurements, with commas between them (%(default)s)")
    parser.add_argument("--ours", action="store_true", help="leave Debezium out")
    parser.add_argument("--broker", default="barnabas", choices=("barnabas", "kafka"), help="(%(default)s)")
    parser.add_argument("--write", type=Path, help="put the tables between the markers of this Markdown file")
    chosen = parser.parse_args()
    if chosen.rows % (WARM_UP * 2 * TRANSACTION_ROWS):
        parser.error(f"--rows must be a multiple of {WARM_UP * 2 * TRANSACTION_ROWS}, for whole transactions")
    plan = Plan(
        _names(parser, chosen.databases, DATABASES),
        _names(parser, chosen.only, PARTS),
        Load(chosen.rows, chosen.sink_rows, chosen.latency_seconds),
        chosen.rounds,
        shutil.which("mvn") is not None and not chosen.ours,
        chosen.broker,
    )
    console = Console()
    sheets: list[Sheet] = []
    began = time.monotonic()

    def finish(sheet: Sheet) -> None:
        sheets.append(sheet)
        console.print(sheet.render())
        console.print(f"after {time.monotonic() - began:,.0f} s")
        if chosen.write:
            write(chosen.write, sheets, SECTION)

    measure(plan, console, finish)


def _names(parser: argparse.ArgumentParser, text: str, known: Any) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(known):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return names


def measure(plan: Plan, console: Console, finish: Callable[[Sheet], None]) -> None:
    """Run the measurements, and call `finish` with the table of each database."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-connectors-")))
        broker = find_server(plan.broker, folder)
        broker.start()
        stack.callback(broker.stop)
        servers = broker.bootstrap_servers
        if "sink" in plan.parts:
            fill_topic(servers, TOPIC, plan.load.sink_rows)
        settings = {**session_defaults("local"), "spark.python.unix.domain.socket.enabled": "true"}
        spark = start_session([], settings)  # docs/SPARK.md, Speed
        stack.callback(spark.stop)
        for name in plan.databases:
            start, wrap = DATABASES[name]
            with ExitStack() as running:
                database = wrap(running.enter_context(start()))
                sides: list[Side] = [Barnabas(spark, servers, database, folder / f"ours-{name}")]
                running.enter_context(closing(sides[0]))
                if plan.peer:
                    sides.append(running.enter_context(closing(Debezium(servers, database, folder / name))))
                finish(sheet(database.name, plan, rounds(plan, Bench(database, servers), sides, console)))


def rounds(plan: Plan, bench: Bench, sides: list[Side], console: Console) -> dict[str, list[Measured]]:
    """The figures of each side and round, without the first round, which warms up."""
    found: dict[str, list[Measured]] = {side.name: [] for side in sides}
    server = bench.database.name.lower()  # the sink's table is also the name of its consumer group
    for round_ in range(plan.rounds + 1):
        load = plan.load if round_ else Load(plan.load.rows // WARM_UP, plan.load.sink_rows // WARM_UP, 4)
        for side in sides:
            figures: Measured = {}
            with console.status(f"round {round_}: {side.name}"):
                if "capture" in plan.parts:
                    figures |= bench.capture(side, f"items_{side.prefix}_{round_}", load)
                if "sink" in plan.parts:
                    figures |= bench.sink(side, TOPIC, f"sunk_{server}_{side.prefix}_{round_}", load.sink_rows)
            console.print(round_, side.name, {figure.name: round(value) for figure, value in figures.items()})
            if round_:
                found[side.name].append(figures)
    return found


def sheet(name: str, plan: Plan, found: dict[str, list[Measured]]) -> Sheet:
    """The table of one database: medians, and the median of the rounds' ratios with their range."""
    ours, *peers = found.values()
    rows = []
    for figure in ours[0]:
        sides = [[measured[figure] for measured in runs] for runs in (ours, *peers)]
        row = [figure.name, *(f"{number(statistics.median(side))} {figure.unit}" for side in sides)]
        if peers:
            ratios = [ratio(figure, one, other) for one, other in zip(*sides, strict=True)]
            row.append(f"{statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})")
        rows.append(tuple(row))
    broker = "" if plan.broker == "barnabas" else ", the broker is Apache Kafka"
    title = (
        f"{name}: a table of {plan.load.rows:,} rows, a topic of {plan.load.sink_rows:,} records for the sink,"
        f" median of {plan.rounds} rounds{broker}"
    )
    return Sheet(title, ("", *found, "better by") if peers else ("", *found), rows)


if __name__ == "__main__":
    main()
