"""Shell: one run of the one-node scenario: a broker, clients and faults; then the faults are healed, all records are
read, and the invariants are checked.

                 faults                 healed                      restarted
    |──────────────────────────────|────────────────|────────────|──────────────────────────|
      producers, group, transactions  clients finish   read all     read all again, check

The seed decides everything: the faults, the number of clients, the size of the segments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from barnabas.testing.histories import ClientHistory, OperationKind
from barnabas.testing.sim import invariants
from barnabas.testing.sim.evidence import LAST_READER, FinalReader
from barnabas.testing.sim.faults import FaultRunner, NodeFaultMenu, random_menu
from barnabas.testing.sim.invariants import Evidence
from barnabas.testing.sim.node import SimNode
from barnabas.testing.sim.outcome import ScenarioResult, judged, play
from barnabas.testing.sim.workload import TOPICS, Mix, Workload, WorkloadFacts
from barnabas.testing.sim.workload.processing import NODES, prepare_processors, until_processed
from barnabas.testing.sim.workload.recreating import until_followed
from barnabas.testing.sim.workload.sharing import prepare_sharers
from barnabas.testing.sim.world import World

SECONDS = 8.0
"""Simulated seconds with faults."""
RECOVERY_S = 90.0
"""Simulated seconds within which a healthy broker must complete all requests."""


def torture(
    seed: int, *, seconds: float = SECONDS, menu: NodeFaultMenu | None = None, world: World | None = None
) -> ScenarioResult:
    """Runs the one-node scenario of `seed` and returns its parameters and counts. With `menu`, the faults are from that
    menu; otherwise the seed chooses a menu.

    Raises CrashError, LivenessError or CorrectnessError, with the seed and the end of the trace in its notes.
    """
    world = world or World(seed)
    return play(world, Torture(world, seconds, menu))


class Torture:
    """The one-node scenario. Its attributes remain after the run, for inspection."""

    def __init__(self, world: World, seconds: float, menu: NodeFaultMenu | None) -> None:
        rng = world.random_stream("scenario")
        self.world = world
        self.seconds = seconds
        drawn = random_menu(rng, world.random_stream("rot"))
        self.menu = menu or drawn
        with_power = not self.menu.spares_page_cache
        self.node = world.node(
            "b1",
            {
                "log.segment.delete.delay.ms": "2000",
                "replica.high.watermark.checkpoint.interval.ms": "500",
                "log.flush.offset.checkpoint.interval.ms": "1000",
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
                **NODES,
            },
        )
        if self.menu is NodeFaultMenu.DESCRIPTORS:
            self.node.open_segments_max = rng.choice([1, 3, 1000])
        self.node.clock.skew_s = rng.uniform(-30, 30)
        if with_power and rng.random() < 0.5:  # slow fsync, so that many writes are unsynced when the power fails
            self.node.usual_job_s = self.node.job_s = (0.005, 0.1)
        self.workload = Workload(
            world,
            Mix(
                producers=rng.randint(1, 3),
                readers=rng.randint(1, 2),
                transactions=0 if with_power else rng.randint(0, 2),
                watchers=rng.randint(0, 1),
                copiers=0 if with_power else rng.choice([0, 0, 1, 2]),
                sharers=0 if with_power else rng.choice([0, 0, 1, 2]),
                followers=0
                if with_power or self.menu is NodeFaultMenu.ROT
                else world.random_stream("followers").choice([0, 0, 2]),
                processors=0 if with_power else world.random_stream("processors").choice([0, 2, 3]),
            ),
            partitions=rng.randint(1, 2),
        )
        self.faults = FaultRunner(world, self.node, self.workload, self.menu)
        self.topic_config: Mapping[str, str | None] = {
            "internal.segment.bytes": str(rng.choice([6_000, 20_000, 1 << 20])),
            "segment.ms": str(rng.choice([1_500, 604_800_000])),
            "flush.messages": "1" if with_power else str(rng.choice([1, (1 << 63) - 1])),
            "index.interval.bytes": str(rng.choice([0, 100, 4096])),
        }

    @property
    def about(self) -> str:
        return self.menu.value

    @property
    def facts(self) -> WorkloadFacts:
        return self.workload.facts

    @property
    def fault_count(self) -> int:
        return self.faults.count

    async def run(self) -> None:
        """Runs the scenario. Raises the exceptions of `torture`."""
        with judged(self.world, "A broker could not be started again"):
            await self._run()

    async def _run(self) -> None:
        world, workload = self.world, self.workload
        world.trace.event("scenario", f"menu {self.menu.value}, topics {dict(self.topic_config)}")
        await self.node.start()
        async with world.admin() as admin:
            for topic in TOPICS:
                await admin.create_topic(topic, workload.partitions, configs=self.topic_config)
            await prepare_sharers(admin)
            if workload.mix.processors:
                await prepare_processors(admin)
        workload.start()
        await self.faults.run(self.seconds)
        await self.faults.heal()
        await asyncio.sleep(2.0)
        await until_processed(workload)
        await until_followed(workload)
        await workload.stop(RECOVERY_S)
        world.check_crashes()
        evidence = await self._gather()
        world.check_crashes()
        for invariant in invariants.ALL:
            invariant.check(evidence)

    async def _gather(self) -> Evidence:
        final = FinalReader(self.workload, RECOVERY_S)
        before = await final.read_all(LAST_READER, await final.bounds())
        await self._restart(self.node)
        committed = await final.committed()
        bounds = await final.bounds()
        return Evidence(
            self._checked_history(),
            not self.menu.spares_page_cache,
            self.workload.facts.committed,
            committed,
            bounds,
            before,
            await final.read_all(None, bounds),
            tuple(self.workload.facts.done_again),
        )

    def _checked_history(self) -> ClientHistory:
        """The history that the invariants check. A single broker lets consumers read records before fsync. A power cut
        may remove records that were not acknowledged, and the broker then assigns their offsets again. So if the power
        may fail, the polls during the run are left out; only sends and the final reads remain.
        """
        history = self.workload.facts.recorder.history()
        if self.menu.spares_page_cache:
            return history
        kept = (o for o in history.operations if o.kind is not OperationKind.POLL or o.process == LAST_READER)
        return ClientHistory(tuple(kept))

    async def _restart(self, node: SimNode) -> None:
        node.kill()
        await node.start()
