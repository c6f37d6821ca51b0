"""`python -m examples.shop`: two databases, each captured, joined on Spark, into a Delta table and back.

1  starts PostgreSQL, MariaDB and `barnabas serve`, each in a process of its own with its data in a temporary directory
2  people place, pay and cancel orders in PostgreSQL, and customers move in MariaDB, as long as it runs
3  runs pipeline.py, and kills in turn the pipeline, PostgreSQL, the broker and MariaDB (kill -9)
4  lets the pipeline read the rest
5  computes the join from the two databases, and compares the Delta table and both written tables with it, row by row
6  draws out/shop/shop.png
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from examples.shop.databases import ORDERS_AT_ONCE, Sampler, Shop
from examples.shop.pipeline import CUSTOMERS, ORDERS, REPORT
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import NewTopic
from barnabas.core.child_processes import start_child
from barnabas.core.errors import KafkaError
from barnabas.testing.databases import MariaDbServer, PostgresServer
from barnabas.testing.process import BrokerProcess

console = Console(soft_wrap=True)
ATTEMPTS = 3
"""How often the last run of the pipeline is tried."""
STANDSTILL_S = 600.0
"""How long the pipeline may take for its next rows. A busy machine needs minutes to start it."""


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m examples.shop", description=__doc__.split("\n")[0])
    arguments.add_argument("--out", type=Path, default=Path("out/shop"), help="the output directory (%(default)s)")
    arguments.add_argument("--orders", type=int, default=4000, help="how many orders are placed (%(default)s)")
    arguments.add_argument("--seconds", type=float, default=60, help="in how many seconds (%(default)s)")
    arguments.add_argument("--customers", type=int, default=200, help="how many customers there are (%(default)s)")
    arguments.add_argument("--kills", default="pipeline,postgres,broker,mariadb", help="what is killed (%(default)s)")
    chosen = arguments.parse_args()
    shutil.rmtree(chosen.out, ignore_errors=True)
    chosen.out.mkdir(parents=True)
    out: Path = chosen.out.resolve()
    began = time.monotonic()
    settings = ["transaction.two.phase.commit.enable=true"]
    with (
        PostgresServer() as postgres,
        MariaDbServer() as mariadb,
        BrokerProcess(out / "broker", settings=settings) as broker,
    ):
        servers = broker.bootstrap_servers
        step(f"PostgreSQL on port {postgres.port}, MariaDB on port {mariadb.port}, broker at {servers}")
        shop = Shop(postgres, mariadb)
        shop.create(chosen.customers)
        create_topics(servers)
        addresses = {"postgres": postgres.port, "mariadb": mariadb.port, "broker": servers}
        (out / "shop.json").write_text(json.dumps(addresses))
        day = Day(shop, out, {"postgres": postgres, "broker": broker, "mariadb": mariadb})
        sizes = Sizes(chosen.orders, chosen.seconds, chosen.customers)
        day.run(sizes, [name for name in chosen.kills.split(",") if name])
        correct = compare(shop, out)
        from examples.shop import report

        report.draw(day.sampler.samples, day.kills, shop.report_rows(), out / "shop.png")
    step(f"picture: {chosen.out / 'shop.png'}")
    step(f"done in {time.monotonic() - began:.0f} s; everything is under {chosen.out}")
    return 0 if correct else 1


def step(text: str) -> None:
    console.print(f"[bold green]•[/bold green] {text}", highlight=False)


def create_topics(servers: str) -> None:
    """Two partitions for each topic. Without this, they would be created with the defaults of the broker."""

    async def create() -> None:
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            topics = [NewTopic(name, 2, 1) for name in (ORDERS, CUSTOMERS, REPORT)]
            for result in (await admin.create_topics(topics)).values():
                if isinstance(result, KafkaError):
                    raise result

    asyncio.run(create())


class Sizes(Struct, frozen=True):
    """How many orders are placed in how many seconds, and how many customers there are."""

    orders: int
    seconds: float
    customers: int


class Day:
    """A day of the shop: people who use the databases, the pipeline, and what is killed."""

    def __init__(self, shop: Shop, out: Path, servers: Mapping[str, Any]) -> None:
        self._shop = shop
        self._out = out
        self._servers = servers
        self._pipeline: subprocess.Popen[bytes] | None = None
        self.sampler = Sampler(shop)
        self.kills: list[tuple[float, str]] = []
        """When what was killed."""

    def run(self, sizes: Sizes, kills: list[str]) -> None:
        """Place all orders while the pipeline runs, and return when it has read everything."""
        stopped = threading.Event()
        with bars() as progress:
            bar = [progress.add_task(text, total=sizes.orders) for text in ("orders placed", "orders in the report")]

            def show(_: int, reported: int) -> None:
                progress.update(bar[0], completed=self._shop.written)
                progress.update(bar[1], completed=reported)

            pause_s = sizes.seconds * ORDERS_AT_ONCE / sizes.orders
            threads = [
                threading.Thread(target=self._shop.place_orders, args=(sizes.orders, sizes.customers, pause_s)),
                threading.Thread(target=self._shop.change_customers, args=(sizes.customers, 0.1)),
                threading.Thread(target=self.sampler.run, args=(stopped.wait, show)),
            ]
            for thread in threads:
                thread.start()
            try:
                self._start("continuous")
                for name in kills:
                    self._wait_for_rows(sizes.orders // 20)
                    self._kill(name)
                self._wait_for_rows(sizes.orders // 20)
                threads[0].join()
                self._shop.stop()
                threads[1].join()
                self._end_pipeline()
                self._wait_for_end()
            finally:
                self._shop.stop()
                stopped.set()
                self._end_pipeline()
                for thread in threads:
                    thread.join()

    def _kill(self, name: str) -> None:
        self.kills.append((time.monotonic() - self.sampler.began, name))
        if name == "pipeline":
            self._end_pipeline()
            self._start("continuous")
        else:
            self._servers[name].kill()
            time.sleep(1)
            self._servers[name].start()
        step(f"killed {name} after {self._reported():,} orders in the report, and started it again")

    def _reported(self) -> int:
        """How many rows the report has."""
        return self.sampler.samples[-1][2] if self.sampler.samples else 0

    def _wait_for_rows(self, count: int) -> None:
        """Wait until the report has so many more rows, or all there will be."""
        wanted = self._reported() + count
        self._wait(lambda: self._reported() >= wanted or self._is_level(), "new rows of the report")

    def _is_level(self) -> bool:
        """Whether the report has as many rows as there are orders."""
        return bool(self.sampler.samples) and 0 < self.sampler.samples[-1][1] == self.sampler.samples[-1][2]

    def _wait_for_end(self) -> None:
        for _ in range(ATTEMPTS):
            self._start("once")
            assert self._pipeline is not None
            self._wait(self._has_ended, "the end of the pipeline", restart=False)
            if not self._pipeline.returncode:
                return
        raise SystemExit(f"the pipeline failed with exit code {self._pipeline.returncode}; see {self._log}")

    def _has_ended(self) -> bool:
        return self._pipeline is not None and self._pipeline.poll() is not None

    def _wait(self, condition: Callable[[], bool], what: str, *, restart: bool = True) -> None:
        """Wait, as long as rows arrive. A pipeline that has failed is started again, as a supervisor would do."""
        seen, changed_at = -1, time.monotonic()
        while not condition():
            if self._reported() != seen:
                seen, changed_at = self._reported(), time.monotonic()
            if time.monotonic() > changed_at + STANDSTILL_S:
                raise SystemExit(f"{STANDSTILL_S:.0f} s without {what}; see {self._log}")
            if restart and self._has_ended():
                step(f"the pipeline ended; see {self._log}")
                self._start("continuous")
            time.sleep(0.2)

    @property
    def _log(self) -> Path:
        return self._out / "pipeline.log.txt"

    def _start(self, mode: str) -> None:
        command = [sys.executable, "-m", "examples.shop.pipeline", str(self._out), mode]
        with self._log.open("a") as log:
            self._pipeline = start_child(command, start_new_session=True, stdout=log, stderr=log, env=dict(os.environ))

    def _end_pipeline(self) -> None:
        """Kill the pipeline with its Java process and its workers."""
        if self._pipeline is not None and self._pipeline.poll() is None:
            os.killpg(self._pipeline.pid, signal.SIGKILL)
            self._pipeline.wait()


def bars() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


def compare(shop: Shop, out: Path) -> bool:
    """Compare what the pipeline wrote with the join of the two databases, and print the outcome."""
    from deltalake import DeltaTable

    expected = shop.expected_report()
    delta = DeltaTable(out / "report").to_pyarrow_table().to_pylist()
    found = {row["order_id"]: (row["name"], row["country"], row["cents"], row["state"]) for row in delta}
    correct = check("Delta table report", found, expected)
    correct &= check("MariaDB table order_report", shop.report_rows(), expected)
    return correct & check("PostgreSQL table customers", shop.copied_customers(), shop.customer_rows())


def check(what: str, found: Mapping[int, Any], wanted: Mapping[int, Any]) -> bool:
    wrong = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    if not wrong:
        step(f"{what}: {len(found):,} rows, each as it is in the source databases")
        return True
    key = wrong[0]
    console.print(
        f"[bold red]✗[/bold red] {what}: {len(wrong):,} rows are wrong, the first one is {key}: {found.get(key)}, and "
        f"not {wanted.get(key)}"
    )
    return False


if __name__ == "__main__":
    sys.exit(main())
