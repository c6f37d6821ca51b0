"""How long the active controller is missed: `python -m bench.controller_move [rounds]`.

Three controllers and a broker, each a process. In each round the active controller is killed (`kill -9`), or stopped in
order (SIGTERM). From there on topics are created one after the other through the broker, until one was begun after the
controller's process had ended: the longest that one of them took counts. Then the controller is started again, and the
next round begins when the quorum has caught up.

Budget, with Kafka's defaults (`controller.quorum.fetch.timeout.ms` 2000, `controller.quorum.election.timeout.ms` 1000):
after a kill the others find out 2 to 3 seconds after they last heard of the leader, and elect at once; after an orderly
stop the next leader is named, and takes over within a few round trips.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import tempfile
from pathlib import Path

from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import NewTopic
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.testing.process_cluster import ClusterProcess


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


async def rounds(cluster: ClusterProcess, count: int, *, in_order: bool) -> list[float]:
    loop = asyncio.get_running_loop()
    times = []
    async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        for number in range(count):
            leader = await caught_up(admin, len(cluster.controller_ids))
            node = cluster.node(leader)
            began = loop.time()
            ending = asyncio.create_task(asyncio.to_thread(node.stop if in_order else node.kill))
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
            await asyncio.to_thread(node.launch)
            await asyncio.to_thread(node.wait_ready)
    return times


def main(count: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="controller-move-") as folder,
        ClusterProcess(Path(folder), brokers=1, controllers=3) as cluster,
    ):
        for name, in_order in (("kill -9", False), ("SIGTERM", True)):
            times = sorted(asyncio.run(rounds(cluster, count, in_order=in_order)))
            print(
                f"{name}: median {statistics.median(times):.3f} s, longest {times[-1]:.3f} s, "
                f"shortest {times[0]:.3f} s of {count}",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
