"""Shell: how long the active controller is missed: `python -m bench.controller_move [--peer kafka]`.

Three controllers and a broker, each a process. In each round the active controller is killed (`kill -9`), or stopped in
order (SIGTERM). From there on topics are created one after the other through the broker, until one was begun after the
controller's process had ended: the longest that one of them took counts. Then the controller is started again, and the
next round begins when the quorum has caught up.

Budget, with Kafka's defaults (`controller.quorum.fetch.timeout.ms` 2000, `controller.quorum.election.timeout.ms` 1000):
after a kill the others find out 2 to 3 seconds after they last heard of the leader, and elect at once; after an orderly
stop the next leader is named, and takes over within a few round trips. Clusters run in turn, one at a time.
`--write FILE` puts the table between the markers of that file.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import NewTopic
from barnabas.core.errors import ErrorCode, KafkaError
from bench.clusters import Cluster, clusters
from bench.report import Figure, Measured, compare, write

SECTION: Final = "measured controllers"


async def caught_up(admin: AsyncAdmin, voters: int) -> int:
    """The leader, once every voter has fetched everything from it lately."""
    while True:
        try:
            found = await admin.describe_quorum()
        except KafkaError:
            await asyncio.sleep(0.05)
            continue
        newest = max(replica.last_fetch_ms for replica in found.voters)
        fresh = [r for r in found.voters if found.lag(r) == 0 and newest - r.last_fetch_ms < 1_000]
        if len(fresh) == len(found.voters) == voters:
            return found.leader_id
        await asyncio.sleep(0.05)


async def created(admin: AsyncAdmin, name: str) -> None:
    while True:
        try:
            await admin.create_topics([NewTopic(name)])
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return
            await asyncio.sleep(0.01)
        else:
            return


async def rounds(cluster: Cluster, count: int, *, in_order: bool, progress: Callable[[], None]) -> list[float]:
    loop = asyncio.get_running_loop()
    times = []
    async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        for number in range(count):
            leader = await caught_up(admin, len(cluster.controller_ids))
            began = loop.time()
            ending = asyncio.create_task(asyncio.to_thread(cluster.stop_node if in_order else cluster.kill, leader))
            longest = 0.0
            for attempt in itertools.count():
                gone = ending.done()
                began = loop.time() if attempt else began
                await created(admin, f"{'stop' if in_order else 'kill'}-{number}-{attempt}")
                longest = max(longest, loop.time() - began)
                if gone:
                    break
            times.append(longest)
            await ending
            await asyncio.to_thread(cluster.launch, leader)
            progress()
    return times


def measure(cluster: Cluster, count: int, progress: Progress) -> Measured:
    out: Measured = {}
    task = progress.add_task(cluster.name, total=2 * count)
    cluster.start()
    try:
        for how, in_order in (("killed", False), ("stopped in order", True)):
            advance = functools.partial(progress.advance, task)
            times = asyncio.run(rounds(cluster, count, in_order=in_order, progress=advance))
            out[Figure(f"{how}: until CreateTopics succeeds, median", "s", -1)] = statistics.median(times)
            out[Figure(f"{how}: shortest", "s", -1)] = min(times)
            out[Figure(f"{how}: longest", "s", -1)] = max(times)
    finally:
        cluster.stop()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.controller_move")
    parser.add_argument("--peer", choices=["kafka"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    with (
        Progress(console=Console(stderr=True)) as progress,
        tempfile.TemporaryDirectory(prefix="controller-move-") as folder,
    ):
        under_test = clusters(options.peer, Path(folder), brokers=1, controllers=3)
        measured = [measure(cluster, options.rounds, progress) for cluster in under_test]
    title = f"The active one of three controllers ends, {options.rounds} times each way; {os.cpu_count()} cores"
    sheet = compare(title, ["Barnabas", "Apache Kafka"][: len(measured)], measured[:1], measured[1:])
    Console().print(sheet.render())
    if options.write:
        write(options.write, [sheet], SECTION)


if __name__ == "__main__":
    main()
