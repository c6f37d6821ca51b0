"""Shell: how long a failover of a cluster link takes: `python -m bench.link_failover`.

A cluster of one broker is mirrored by a cluster of three brokers, one topic for each round. A round begins with the
failover of one topic, as `barnabas links failover` does it, and ends when a new producer has an acks=all record
accepted. In the first half of the rounds the source runs; then it is killed (`kill -9`).

Budget: four requests of each partition's leader (state STOPPING, leader epoch, floor of producer ids, state STOPPED)
and one for the topic, each a few round trips of the cluster; below 2 s for hundreds of partitions. `--write FILE` puts
the table between the markers of that file.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from barnabas.client import AsyncProducer
from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.links import Link
from barnabas.client.links.cutover import failover
from barnabas.client.values import NewTopic
from bench.clusters import BarnabasCluster
from bench.report import Sheet, number, write

SECTION: Final = "measured link failover"
LINK: Final = "dr"
POLL_S: Final = 0.05
CAUGHT_UP_S: Final = 120.0
FAILOVER_S: Final = 60.0


@dataclass(frozen=True)
class Load:
    """The sizes of a run."""

    rounds: int
    partitions: int
    records: int

    @property
    def topics(self) -> list[str]:
        return [f"load-{number}" for number in range(2 * self.rounds)]


@dataclass(frozen=True)
class Took:
    """Seconds since the failover was requested."""

    command: float
    first_write: float
    all_writes: float
    """Until each partition has accepted a record."""


async def fill(source: AsyncAdmin, servers: str, load: Load) -> None:
    await source.create_topics([NewTopic(topic, load.partitions, 1) for topic in load.topics])
    async with AsyncProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        for topic in load.topics:
            for at in range(load.records):
                await producer.send(topic, value=b"x" * 500, partition=at % load.partitions)


async def mirrored(target: AsyncAdmin, load: Load) -> None:
    """Wait until the mirrors have all records."""
    async with asyncio.timeout(CAUGHT_UP_S):
        while True:
            statuses = await target.describe_mirrors([LINK])
            mirrors = sum(status.lag == 0 and status.source_high_watermark > 0 for status in statuses)
            if mirrors == len(load.topics) * load.partitions:
                return
            await asyncio.sleep(POLL_S)


async def fail_over(target: AsyncAdmin, servers: str, topic: str, partitions: int) -> Took:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await failover(target, LINK, [topic], timeout_s=FAILOVER_S)
    command = loop.time() - began
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        writes = [asyncio.ensure_future(producer.send_and_wait(topic, b"x", partition=p)) for p in range(partitions)]
        await asyncio.wait(writes, return_when=asyncio.FIRST_COMPLETED)
        first = loop.time() - began
        await asyncio.gather(*writes)
        return Took(command, first, loop.time() - began)


async def measure(source: BarnabasCluster, target: BarnabasCluster, load: Load, progress: Progress) -> list[list[Took]]:
    """The rounds with a source that runs, and those without."""
    task = progress.add_task("failover", total=len(load.topics))
    taken: list[list[Took]] = [[], []]
    servers = target.bootstrap_servers
    async with AsyncAdmin(bootstrap_servers=servers) as here:
        async with AsyncAdmin(bootstrap_servers=source.bootstrap_servers) as there:
            await fill(there, source.bootstrap_servers, load)
        await here.create_link(Link(LINK, source.bootstrap_servers, topics=("load-.*",)))
        await mirrored(here, load)
        for at, topic in enumerate(load.topics):
            if at == load.rounds:
                await asyncio.to_thread(source.kill, 1)
            taken[at >= load.rounds].append(await fail_over(here, servers, topic, load.partitions))
            progress.advance(task)
    return taken


def table(taken: Sequence[Sequence[Took]], load: Load) -> Sheet:
    rows = []
    for name, field in (
        ("the command returns", "command"),
        ("the first record is accepted", "first_write"),
        ("every partition has accepted a record", "all_writes"),
    ):
        row = [name]
        for rounds in taken:
            times = [1000 * getattr(took, field) for took in rounds]
            row += [f"{number(statistics.median(times))} ms", f"{number(max(times))} ms"]
        rows.append(tuple(row))
    title = (
        f"Failover of a topic of {load.partitions} partitions, {load.rounds} times with its source running and "
        f"{load.rounds} times with its source killed; {os.cpu_count()} cores"
    )
    return Sheet(title, ("until", "running: median", "longest", "killed: median", "longest"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.link_failover")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=24)
    parser.add_argument("--records", type=int, default=5_000, help="of each topic")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    load = Load(options.rounds, options.partitions, options.records)
    with (
        Progress(console=Console(stderr=True)) as progress,
        tempfile.TemporaryDirectory(prefix="link-failover-") as folder,
    ):
        source = BarnabasCluster(Path(folder) / "source", brokers=1)
        target = BarnabasCluster(Path(folder) / "target", brokers=3)
        source.start()
        try:
            target.start()
            try:
                taken = asyncio.run(measure(source, target, load, progress))
            finally:
                target.stop()
        finally:
            source.stop()
    sheet = table(taken, load)
    Console().print(sheet.render())
    if options.write:
        write(options.write, [sheet], SECTION)


if __name__ == "__main__":
    main()
