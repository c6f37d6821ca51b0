"""Shell: the time of one page of metrics of a broker with many partitions, and how long it holds the event loop.

    python -m bench.scrape [--partitions N] [--write docs/PERFORMANCE.md]       a few seconds for 10,000 partitions

Back of an envelope: 10,000 leaders have ten series each, 100,000 lines; a line that is formatted by an f-string takes
0.3 us, and reading the state of a partition 2 us: 50 ms. The page is built in slices of 2 ms, between which requests
are served; `longest turn` is the most processor time in which the loop ran nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Final, Self

import uvloop
from rich.console import Console

from barnabas import AsyncAdmin
from barnabas.client.values import NewTopic
from barnabas.server.node.config import build_config
from barnabas.server.node.server import Node
from bench.report import Sheet, write

PARTITIONS: Final = 10_000
TOPICS: Final = 100
ROUNDS: Final = 7
SCRAPE_INTERVAL_S: Final = 15
"""How often Prometheus reads a page by default in deploy/monitoring."""
_TICK_S: Final = 0.0005
_READER: Final = """
import sys, time
from urllib.request import urlopen
for _ in sys.stdin:
    began = time.perf_counter()
    with urlopen(sys.argv[1]) as page:
        body = page.read()
    print(time.perf_counter() - began, len(body), body.count(bytes([10])), flush=True)
"""


async def longest_turn(stop: asyncio.Event) -> float:
    """The most processor time in seconds that this loop used between two looks of a timer, until `stop` is set."""
    longest = 0.0
    while not stop.is_set():
        used = time.thread_time()
        await asyncio.sleep(_TICK_S)
        longest = max(longest, time.thread_time() - used)
    return longest


class Reader:
    """Another process, which reads the page when it is asked to. Its start is not part of a measurement."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    @classmethod
    async def start(cls, url: str) -> Self:
        return cls(await asyncio.create_subprocess_exec(sys.executable, "-c", _READER, url, stdin=PIPE, stdout=PIPE))

    async def scrape(self) -> tuple[float, int, int]:
        """Read the page. Returns its time in seconds, its bytes and its lines."""
        self._stdin.write(b"\n")
        seconds, size, lines = (await self._stdout.readline()).split()
        return float(seconds), int(size), int(lines)

    async def stop(self) -> None:
        self._stdin.close()
        await self._process.wait()


async def measure(node: Node, partitions: int) -> Sheet:
    async with AsyncAdmin(bootstrap_servers=node.bootstrap_servers, request_timeout_ms=120_000) as admin:
        for number in range(TOPICS):
            await admin.create_topics([NewTopic(f"topic-{number:03}", partitions // TOPICS, 1)], timeout_ms=120_000)
    assert node.pages is not None
    gc.collect()
    gc.freeze()  # as `barnabas serve` does when it is ready
    reader = await Reader.start(node.pages.url)
    await reader.scrape()
    times: list[float] = []
    turns: list[float] = []
    used: list[float] = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        seconds, size, lines = await reader.scrape()
        used.append(time.thread_time() - began)
        times.append(seconds)
    for _ in range(ROUNDS):  # apart, because looking costs processor time, too
        stop = asyncio.Event()
        watching = asyncio.create_task(longest_turn(stop))
        await reader.scrape()
        stop.set()
        turns.append(await watching)
    await reader.stop()
    return Sheet(
        f"One page of metrics of a broker with {partitions:,} partitions: {lines:,} lines, {size / 1e6:.1f} MB",
        ("", "best", f"median of {ROUNDS}"),
        (
            ("time of the page", f"{min(times) * 1e3:.0f} ms", f"{statistics.median(times) * 1e3:.0f} ms"),
            ("processor time of the node", f"{min(used) * 1e3:.0f} ms", f"{statistics.median(used) * 1e3:.0f} ms"),
            (
                f"of one processor, with a page every {SCRAPE_INTERVAL_S} s",
                f"{min(used) / SCRAPE_INTERVAL_S:.2%}",
                f"{statistics.median(used) / SCRAPE_INTERVAL_S:.2%}",
            ),
            ("longest turn", f"{min(turns) * 1e3:.1f} ms", f"{statistics.median(turns) * 1e3:.1f} ms"),
        ),
    )


async def run(partitions: int) -> Sheet:
    with tempfile.TemporaryDirectory(prefix="barnabas-scrape-") as folder:
        config = build_config(
            {"num.partitions": "1"}, data_dir=str(Path(folder)), listener="PLAINTEXT://127.0.0.1:0",
            metadata_fsync=False,
        )  # fmt: skip
        node = Node(config, metrics_url="http://127.0.0.1:0/metrics")
        ready = asyncio.Event()
        running = asyncio.create_task(node.run(lambda _: ready.set()))
        await ready.wait()
        sheet = await measure(node, partitions)
        node.stop()
        await running
        return sheet


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scrape", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--write", metavar="FILE", type=Path, help="put the table between the markers of this file")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sheet = runner.run(run(options.partitions))
    Console().print(sheet.render())
    if options.write:
        write(options.write, [sheet], section="measured scrape")


if __name__ == "__main__":
    main()
