"""Shell: one run of the cluster's scenario, from its seed to the verdict.

       trouble      quiet    trouble     quiet                         all killed, started
    |────────────|─────────|───────────|─────────|──────────|─────────|──────────────────|
      producers, groups, transactions, copiers, share consumers       read it all again, judge
                                                  read it all

The seed decides everything: how many nodes in which roles, which faults, how many clients, how large the segments.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace

from barnabas.testing.sim import invariants
from barnabas.testing.sim.cluster.cluster import SimCluster
from barnabas.testing.sim.cluster.disks import power_cut
from barnabas.testing.sim.cluster.layout import RACKS, ClusterLayout
from barnabas.testing.sim.cluster.nemesis import Nemesis
from barnabas.testing.sim.cluster.trouble import LOSSY, ClusterFaultMenu, Trouble
from barnabas.testing.sim.cluster.watch import ClusterWatch
from barnabas.testing.sim.evidence import LAST_READER, LastLook
from barnabas.testing.sim.invariants import Evidence
from barnabas.testing.sim.outcome import ScenarioResult, judged, play
from barnabas.testing.sim.workload import TOPICS, Mix, Workload
from barnabas.testing.sim.workload.sharing import prepare_sharers
from barnabas.testing.sim.world import World

SECONDS = 10.0
"""Simulated time with faults."""
RECOVERY_S = 60.0
"""Simulated time in which a healed cluster must be well, and must have done what was asked of it."""


def storm(
    seed: int, *, seconds: float = SECONDS, menu: ClusterFaultMenu | None = None, world: World | None = None
) -> ScenarioResult:
    """Raises CrashError, LivenessError or CorrectnessError, with the seed and the end of the history in its notes."""
    world = world or World(seed)
    return play(world, Storm(world, seconds, menu))


class Storm:
    """The scenario. What it builds stays, to be looked at."""

    def __init__(self, world: World, seconds: float, menu: ClusterFaultMenu | None) -> None:
        rng = world.chance("scenario")
        self.world = world
        self.seconds = seconds
        drawn = rng.choice(
            [
                ClusterFaultMenu.KILL,
                ClusterFaultMenu.KILL,
                ClusterFaultMenu.POWER,
                ClusterFaultMenu.BLACKOUT,
                ClusterFaultMenu.DISK,
            ]
        )
        self.menu = menu or drawn
        self.layout = replace(
            random_layout(rng),
            racks=world.chance("racks").random() < 0.3,
            directories=world.chance("directories").random() < 0.3,
        )
        config = {"metadata.log.max.record.bytes.between.snapshots": str(rng.choice([2_000, 20_971_520]))}
        if self.menu is ClusterFaultMenu.BLACKOUT:
            config["log.flush.interval.messages"] = "1"
        self.cluster = SimCluster(world, self.layout, config)
        slow = (
            self.menu is not ClusterFaultMenu.KILL and rng.random() < 0.6
        )  # then much is written and not synced at any time
        for node in self.cluster.hosts.values():
            node.clock.skew_s = rng.uniform(-10, 10)
            if slow:
                node.usual_job_s = node.job_s = (0.005, 0.1)
        racks = RACKS if self.layout.racks else ()
        self.workload = Workload(world, random_mix(rng), partitions=rng.randint(1, 2), racks=racks)
        self.trouble = Trouble(self.cluster, self.workload, self.menu, TOPICS)
        self.nemesis = Nemesis(self.trouble)
        self.watch: ClusterWatch | None = None
        self.episodes = rng.choice([1, 1, 2])
        self.topic_config: Mapping[str, str | None] = {
            "internal.segment.bytes": str(rng.choice([6_000, 20_000, 1 << 20])),
            "segment.ms": str(rng.choice([1_500, 604_800_000])),
            "index.interval.bytes": str(rng.choice([0, 100, 4096])),
        }

    @property
    def about(self) -> str:
        return f"{self.menu.value}, {self.layout}"

    @property
    def fault_count(self) -> int:
        return self.nemesis.count

    async def run(self) -> None:
        """Raises what `storm` raises."""
        with judged(self.world, "A fault could not be applied or undone"):
            await self._run()

    async def _run(self) -> None:
        world, workload = self.world, self.workload
        world.trace.event("scenario", f"{self.menu.value}, {self.layout}, {workload.mix}, {dict(self.topic_config)}")
        self.watch = ClusterWatch(self.cluster, workload)
        await self.cluster.start()
        async with world.admin() as admin:
            for topic in TOPICS:
                await admin.create_topic(topic, workload.partitions, configs=self.topic_config)
            await prepare_sharers(admin)
        workload.start()
        for _ in range(self.episodes):
            await self.nemesis.strike(self.seconds / self.episodes)
            await self.nemesis.rest(RECOVERY_S)
            world.check_crashes()
            if self.menu in LOSSY:  # what replication alone has to make good
                await power_cut(self.trouble)
                await self.nemesis.rest(RECOVERY_S)
        await asyncio.sleep(1.0)
        await workload.stop(RECOVERY_S)
        world.check_crashes()
        evidence = await self._gather()
        world.check_crashes()
        for invariant in invariants.ALL:
            invariant.check(evidence)

    async def _gather(self) -> Evidence:
        assert self.watch is not None
        look = LastLook(self.workload, RECOVERY_S)
        before = await look.read_all(LAST_READER, await look.bounds())
        await self.cluster.until_well(RECOVERY_S, quiet=True)
        self.watch.at_rest()
        for node in self.cluster.hosts.values():
            node.kill()
        for node in self.cluster.hosts.values():
            await self.cluster.up(node)
        await self.cluster.until_well(RECOVERY_S)
        committed = await look.committed()
        bounds = await look.bounds()
        after = await look.read_all(None, bounds)
        return Evidence(
            self.workload.facts.recorder.history(),
            False,
            self.workload.facts.committed,
            committed,
            bounds,
            before,
            after,
            tuple(self.workload.facts.done_again),
        )


def random_layout(rng: random.Random) -> ClusterLayout:
    brokers = rng.choice([3, 3, 3, 4])
    if rng.random() < 0.5:
        return ClusterLayout(brokers, 3, combined=True, dynamic=rng.random() < 0.2)
    return ClusterLayout(brokers, rng.choice([1, 3, 3]), dynamic=rng.random() < 0.2)


def random_mix(rng: random.Random) -> Mix:
    return Mix(
        producers=rng.randint(1, 2),
        transactions=rng.randint(0, 1),
        readers=rng.randint(1, 2),
        watchers=rng.randint(0, 1),
        copiers=rng.choice([0, 1, 2]),
        sharers=rng.choice([0, 0, 1, 2]),
    )
