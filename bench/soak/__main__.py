"""Shell: `python -m bench.soak`: half an hour of mixed load on one broker, while its figures must not grow.

    python -m bench.soak --minutes 30 --plot docs/soak.svg

Producers, transactions, members of groups of both protocols, share consumers, topics, connections and producer ids come
and go (`load.py`). Retention and expiration are shortened to a minute, so that the tables of the broker reach their
size early. Every ten seconds the broker reports its memory, descriptors, tasks and objects by type (`server.py`).

A figure is flat if its median over the last third of the time is at most `GROWTH_MAX` above that over the third before.
The exit code is 1 if a figure grows, or if a kind of load stands still.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table

from barnabas.core.child_processes import start_child
from barnabas.testing.process import BrokerProcess

SAMPLE_S: Final = 10.0
GROWTH_MAX: Final = 0.03
SLACK: Final[dict[str, float]] = {"memory": 1e6, "descriptors": 20, "tasks": 20}
"""A figure may also grow by so much in all. Other figures are counts of objects, with `_OBJECTS_SLACK`."""
_OBJECTS_SLACK: Final = 500
SETTINGS: Final = (
    "offsets.retention.minutes=1",
    "offsets.retention.check.interval.ms=10000",
    "transactional.id.expiration.ms=60000",
    "transaction.remove.expired.transaction.cleanup.interval.ms=10000",
    "producer.id.expiration.ms=60000",
    "producer.id.expiration.check.interval.ms=10000",
    "log.retention.check.interval.ms=10000",
    "log.segment.delete.delay.ms=5000",
    "log.cleaner.backoff.ms=5000",
    "offsets.topic.segment.bytes=1048576",
    "transaction.state.log.segment.bytes=1048576",
    "share.coordinator.state.topic.segment.bytes=1048576",
    "group.initial.rebalance.delay.ms=0",
    "max.incremental.fetch.session.cache.slots=100",
)


class Sampler:
    """The figures of the broker and the counts of the load, over time."""

    def __init__(self, pid: int, report: Path) -> None:
        self._pid = pid
        self._report = report
        self.times: list[float] = []
        self.samples: list[dict[str, Any]] = []

    def take(self, at: float) -> None:
        """Raises TimeoutError if the broker does not report within a minute."""
        self._report.unlink(missing_ok=True)
        os.kill(self._pid, signal.SIGUSR1)
        deadline = time.monotonic() + 60
        while not self._report.exists():
            if time.monotonic() > deadline:
                raise TimeoutError("The broker did not report its figures within a minute.")
            time.sleep(0.05)
        self.samples.append(json.loads(self._report.read_text()))
        self.times.append(at)

    def series(self) -> dict[str, list[float]]:
        """Each figure over time: memory, descriptors, tasks, objects, and the frequent types."""
        types = sorted({name for sample in self.samples for name in sample["types"]})
        found = {name: [float(s[name]) for s in self.samples] for name in ("memory", "descriptors", "tasks", "objects")}
        return found | {name: [float(s["types"].get(name, 0)) for s in self.samples] for name in types}


def growth(values: Sequence[float]) -> tuple[float, float]:
    """The medians of the second and of the last third."""
    third = max(len(values) // 3, 1)
    return statistics.median(values[third : 2 * third] or values), statistics.median(values[-third:])


def grows(name: str, values: Sequence[float]) -> bool:
    before, after = growth(values)
    return after - before > max(before * GROWTH_MAX, SLACK.get(name, _OBJECTS_SLACK))


def soak(minutes: float, folder: Path) -> tuple[Sampler, dict[str, int], dict[str, int]]:
    """Run the load. Returns the samples, and the counts of the load in the middle and at the end."""
    report = folder / "figures.json"
    broker = BrokerProcess(folder / "data", settings=SETTINGS, module=("bench.soak.server", str(report)))
    broker.start()
    assert broker.process is not None
    load = start_child(
        [sys.executable, "-m", "bench.soak.load", broker.bootstrap_servers], stdout=subprocess.PIPE, text=True
    )
    done: list[dict[str, int]] = [{}]
    threading.Thread(target=_read_counts, args=(load, done), daemon=True).start()
    sampler, middle = Sampler(broker.process.pid, report), dict[str, int]()
    count = max(int(minutes * 60 / SAMPLE_S), 3)
    try:
        with Progress() as progress:
            task = progress.add_task("soak", total=count)
            began = time.monotonic()
            for number in range(1, count + 1):
                time.sleep(max(0.0, began + number * SAMPLE_S - time.monotonic()))
                sampler.take(time.monotonic() - began)
                if number == count // 2:
                    middle = dict(done[-1])
                memory = sampler.samples[-1]["memory"] / 1e6
                progress.update(task, advance=1, description=f"soak, {memory:.1f} MB")
    finally:
        load.terminate()
        load.wait(30)
        broker.stop()
    return sampler, middle, done[-1]


def _read_counts(load: subprocess.Popen[str], done: list[dict[str, int]]) -> None:
    assert load.stdout is not None
    for line in load.stdout:
        done[-1] = json.loads(line)


def show(sampler: Sampler, middle: dict[str, int], done: dict[str, int]) -> bool:
    """Print the tables. Returns whether every figure is flat and every kind of load went on."""
    series = sampler.series()
    growing = {name for name, values in series.items() if grows(name, values)}
    table = Table(Column("figure", overflow="fold"), "second third", "last third", "flat")
    for name, values in series.items():
        if name in ("memory", "descriptors", "tasks", "objects") or name in growing:
            before, after = growth(values)
            scale, unit = (1e6, " MB") if name == "memory" else (1, "")
            shown = (f"{before / scale:,.1f}{unit}", f"{after / scale:,.1f}{unit}")
            table.add_row(name, *shown, "no" if name in growing else "yes")
    console = Console()
    console.print(table)
    kinds = Table("load", "first half", "second half")
    for name in sorted(done):
        kinds.add_row(name, f"{middle.get(name, 0):,}", f"{done[name] - middle.get(name, 0):,}")
    console.print(kinds)
    still = [name for name in done if "failed" not in name and done[name] == middle.get(name, 0)]
    if still:
        console.print(f"These kinds of load stood still: {', '.join(still)}")
    return not growing and not still


def plot(sampler: Sampler, path: Path) -> None:
    """Draw the four figures over time."""
    from matplotlib import use

    use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(10, 6), sharex=True)
    minutes = [at / 60 for at in sampler.times]
    series = sampler.series()
    titles = (("memory", "resident memory, MB", 1e6), ("descriptors", "open descriptors", 1), ("tasks", "tasks", 1),
              ("objects", "objects of the garbage collector", 1))  # fmt: skip
    for axis, (name, title, scale) in zip(axes.flat, titles, strict=True):
        axis.plot(minutes, [value / scale for value in series[name]], color="#2a6f97")
        axis.set_title(title)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    for axis in axes[1]:
        axis.set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--plot", type=Path, help="draw the figures over time to this SVG file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        sampler, middle, done = soak(arguments.minutes, Path(folder))
    if arguments.plot is not None:
        plot(sampler, arguments.plot)
    return 0 if show(sampler, middle, done) else 1


if __name__ == "__main__":
    raise SystemExit(main())
