"""Brokers that copy from each other while they are killed, cut off and fenced: in the end they agree, and nothing that
was committed or acknowledged is lost or out of order. The seed decides everything.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from barnabas.core.errors import ErrorCode
from tests.unit.server.replication.brokers import Broker, Cluster, in_virtual_time

NODES = (0, 1, 2, 3)
"""0 is the controller."""


class Chaos:
    def __init__(self, cluster: Cluster, seed: int, *, flush: bool) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.flush = flush
        self.acknowledged: dict[int, list[bytes]] = {0: [], 1: []}
        self.calm = False

    def leader(self, index: int) -> Broker | None:
        for broker in self.cluster.brokers.values():
            found = broker.partitions.get("t", index) if broker.alive else None
            if found is not None and found.is_leader:
                return broker
        return None

    async def write(self, index: int) -> None:
        """One value at a time, given up when its leader is in trouble."""
        for n in range(100_000):
            if self.calm:
                return
            leader = self.leader(index)
            await asyncio.sleep(self.rng.random() * 0.05)
            if leader is None or not leader.alive:
                continue
            value = b"%d-%d" % (index, n)
            task = leader.process.spawn(self.cluster.loop, leader.produce(value, index=index, timeout_s=5))
            await asyncio.wait({task}, timeout=5)  # a task of a process that was killed never ends
            if task.done() and task.exception() is None and task.result() is ErrorCode.NONE:
                self.acknowledged[index].append(value)

    async def disturb(self, seconds: float) -> None:
        cluster, rng = self.cluster, self.rng
        end = cluster.loop.time() + seconds
        while cluster.loop.time() < end:
            await asyncio.sleep(rng.random() * 0.6)
            broker = cluster.brokers[rng.choice([1, 2, 3])]
            down = [b for b in cluster.brokers.values() if not b.alive]
            match rng.choice(["kill", "start", "start", "cut", "cut", "mend", "fence"]):
                case "kill" if broker.alive:
                    broker.lose_power() if self.flush else broker.kill()
                    cluster.fence(broker.number)
                case "start" if down:
                    down[0].start()
                case "cut":
                    cluster.cut.add(frozenset(rng.sample(NODES, 2)))
                case "mend":
                    cluster.cut.clear()
                case "fence" if broker.alive and len(cluster.isr("t", 0)) > 1:
                    cluster.fence(broker.number)
                    broker.heartbeat()

    async def heal(self) -> None:
        cluster = self.cluster
        self.calm = True
        cluster.cut.clear()
        for broker in cluster.brokers.values():
            if not broker.alive:
                broker.start()
        await cluster.until(self.is_whole, 120)

    def is_whole(self) -> bool:
        """Everybody is in sync, and has the same."""
        return all(
            self.cluster.isr("t", index) == [1, 2, 3]
            and len({b.end(index) for b in self.cluster.brokers.values()}) == 1
            for index in (0, 1)
        )

    def judge(self) -> None:
        for index in (0, 1):
            copies = [broker.values(index=index) for broker in self.cluster.brokers.values()]
            assert copies[0] == copies[1] == copies[2]
            kept = [value for value in copies[0] if value in set(self.acknowledged[index])]
            assert kept == self.acknowledged[index], "acknowledged values were lost, doubled or reordered"


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 100))])
def test_replicas_agree_after_faults(seed: int, *, flush: bool) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create(
            "t", [[1, 2, 3], [2, 3, 1]], min_insync_replicas="2", **({"flush_messages": "1"} if flush else {})
        )
        await cluster.until(lambda: all(len(b.partitions) == 2 for b in cluster.brokers.values()))
        chaos = Chaos(cluster, seed, flush=flush)
        async with asyncio.TaskGroup() as tasks:
            for index in (0, 1):
                tasks.create_task(chaos.write(index))
            await chaos.disturb(15)
            await chaos.heal()
        chaos.judge()
        assert sum(map(len, chaos.acknowledged.values())) > 20

    in_virtual_time(main, seed=seed)
