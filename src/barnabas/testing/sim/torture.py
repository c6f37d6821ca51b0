"""Shell: one run of the standard scenario: a broker, clients, faults, then health, a last reading, and the verdict.

                 faults                 healed                    killed, started
    |──────────────────────────────|───────────────|──────────────|─────────────|
      producers, group, transactions   they finish    read it all    read it all again, judge

The seed decides everything: which faults, how many clients, how large the segments.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.testing.histories import History, Kind, Poll
from barnabas.testing.sim import invariants
from barnabas.testing.sim.errors import CorrectnessError, CrashError, LivenessError, SimulationError
from barnabas.testing.sim.faults import Faults, Menu, random_menu
from barnabas.testing.sim.invariants import Evidence, Rows
from barnabas.testing.sim.node import SimNode
from barnabas.testing.sim.workload import GROUP, TOPICS, Mix, Workload, decode
from barnabas.testing.sim.workload.sharing import prepare_sharers
from barnabas.testing.sim.world import World, run_world

SECONDS = 8.0
"""Simulated time with faults."""
LAST_READER = "last"
RECOVERY_S = 90.0
"""Simulated time in which a healthy cluster must have done what was asked of it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that went well."""

    seed: int
    menu: Menu
    simulated_s: float
    real_s: float
    steps: int
    faults: int
    acknowledged: int
    transactions: int
    digest: str
    """Of the whole trace: equal for equal seeds."""

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: ok ({self.menu.value}: {self.faults} faults, {self.acknowledged} records acknowledged,"
            f" {self.transactions} transactions, {self.simulated_s:.0f} s in {self.real_s:.2f} s) {self.digest[:16]}"
        )


def torture(seed: int, *, seconds: float = SECONDS, menu: Menu | None = None, world: World | None = None) -> Outcome:
    """Raises CrashError, LivenessError or CorrectnessError, with the seed and the end of the history in its notes."""
    world = world or World(seed)
    scenario = Torture(world, seconds, menu)
    began = time.perf_counter()
    run_world(world, lambda _: scenario.run(), within_s=3_600)
    return Outcome(
        seed,
        scenario.menu,
        world.elapsed_s,
        time.perf_counter() - began,
        world.loop.steps,
        scenario.faults.count,
        scenario.workload.facts.acknowledged,
        scenario.workload.facts.transactions,
        world.trace.digest(),
    )


class Torture:
    """The scenario. What it builds stays, to be looked at."""

    def __init__(self, world: World, seconds: float, menu: Menu | None) -> None:
        rng = world.chance("scenario")
        self.world = world
        self.seconds = seconds
        drawn = random_menu(rng)
        self.menu = menu or drawn
        with_power = self.menu is not Menu.KILL
        self.node = world.node(
            "b1",
            {
                "log.segment.delete.delay.ms": "2000",
                "replica.high.watermark.checkpoint.interval.ms": "500",
                "log.flush.offset.checkpoint.interval.ms": "1000",
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            },
        )
        self.node.clock.skew_s = rng.uniform(-30, 30)
        if with_power and rng.random() < 0.5:  # much is written, and not synced yet, when the power fails
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
            ),
            partitions=rng.randint(1, 2),
        )
        self.faults = Faults(world, self.node, self.workload, self.menu)
        self.topic_config: Mapping[str, str | None] = {
            "internal.segment.bytes": str(rng.choice([6_000, 20_000, 1 << 20])),
            "segment.ms": str(rng.choice([1_500, 604_800_000])),
            "flush.messages": "1" if with_power else str(rng.choice([1, (1 << 63) - 1])),
            "index.interval.bytes": str(rng.choice([0, 100, 4096])),
        }

    async def run(self) -> None:
        """Raises what `torture` raises."""
        try:
            await self._run()
        except ExceptionGroup as group:  # of the task group that applies faults
            error = _first(group)
            if isinstance(error, SimulationError):
                raise error from group
            raise CrashError(f"A broker could not be started again: {error!r}") from error
        except KafkaError as error:
            if self.world.crashes:
                raise
            if not error.retriable:
                raise CorrectnessError(f"A healthy cluster answered with {error!r}.") from error
            raise LivenessError(f"A healthy cluster did not answer in time: {error}") from error

    async def _run(self) -> None:
        world, workload = self.world, self.workload
        world.trace.event("scenario", f"menu {self.menu.value}, topics {dict(self.topic_config)}")
        await self.node.start()
        async with world.admin() as admin:
            for topic in TOPICS:
                await admin.create_topic(topic, workload.partitions, configs=self.topic_config)
            await prepare_sharers(admin)
        workload.start()
        await self.faults.run(self.seconds)
        await self.faults.heal()
        await asyncio.sleep(2.0)
        await workload.stop(RECOVERY_S)
        world.check_crashes()
        evidence = await self._gather()
        world.check_crashes()
        for invariant in invariants.ALL:
            invariant.check(evidence)

    async def _gather(self) -> Evidence:
        tps = [TopicPartition(topic, p) for topic in TOPICS for p in range(self.workload.partitions)]
        bounds = await self._bounds(tps)
        before = await self._read_all(LAST_READER, tps, bounds)
        await self._restart(self.node)
        committed = await self._committed(tps)
        bounds = await self._bounds(tps)
        after = await self._read_all(None, tps, bounds)
        return Evidence(
            self._judged(),
            self.menu is not Menu.KILL,
            self.workload.facts.committed,
            committed,
            bounds,
            before,
            after,
            tuple(self.workload.facts.done_again),
        )

    def _judged(self) -> History:
        """The history to be judged. The broker shows records to readers before they are on the platter, acknowledged or
        not; a power cut may take those that were not, and their offsets are given again. So where power fails only what
        was acknowledged, and what is there at the end, counts.
        """
        history = self.workload.facts.recorder.history()
        if self.menu is Menu.KILL:
            return history
        kept = (o for o in history.operations if o.kind is not Kind.POLL or o.process == LAST_READER)
        return History(tuple(kept))

    async def _restart(self, node: SimNode) -> None:
        node.kill()
        await node.start()

    async def _bounds(self, tps: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int, int]]:
        """When every transaction has ended: those of dead producers by their time-out."""
        found: dict[TopicPartition, tuple[int, int, int]] = {}

        async def settled() -> bool:
            try:
                async with (
                    self.world.consumer(isolation_level="read_uncommitted") as reader,
                    self.world.consumer(isolation_level="read_committed") as committed,
                ):
                    starts, ends = await reader.beginning_offsets(tps), await reader.end_offsets(tps)
                    stable = await committed.end_offsets(tps)
            except KafkaError as error:
                if error.retriable:
                    return False
                raise
            found.update({tp: (starts[tp], stable[tp], ends[tp]) for tp in tps})
            return stable == ends

        await self.world.until(settled, RECOVERY_S, "no transaction is open any more")
        return found

    async def _read_all(
        self, who: str | None, tps: list[TopicPartition], bounds: dict[TopicPartition, tuple[int, int, int]]
    ) -> dict[TopicPartition, Rows]:
        """Every partition from its start to its end, by hand, read_committed; into the history as `who`."""
        world, recorder = self.world, self.workload.facts.recorder
        rows: dict[TopicPartition, list[tuple[int, bytes | None]]] = {tp: [] for tp in tps}
        async with world.consumer(isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign(tps)
            if who is not None:
                recorder.note(who, Kind.ASSIGN, [str(tp) for tp in tps], world.elapsed_s * 1000)
            deadline = world.loop.time() + RECOVERY_S
            while True:
                positions = {tp: await consumer.position(tp) for tp in tps}
                behind = [tp for tp in tps if positions[tp] < bounds[tp][1]]
                if not behind:
                    break
                if world.loop.time() > deadline:
                    raise LivenessError(f"The last reader does not get to the end: it is at {positions} of {bounds}.")
                records = await consumer.poll(500)
                for record in records:
                    rows[TopicPartition(record.topic, record.partition)].append((record.offset, record.value))
                if who is not None:
                    operation = recorder.invoke(who, Kind.POLL, (), world.elapsed_s * 1000)
                    polls = [Poll(f"{r.topic}-{r.partition}", decode(r.value), r.offset) for r in records]
                    recorder.ok(operation, polls, world.elapsed_s * 1000)
        return {tp: tuple(found) for tp, found in rows.items()}

    async def _committed(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        async with self.world.consumer(group_id=GROUP, default_api_timeout_ms=60_000) as consumer:
            found = await consumer.committed(tps)
        return {tp: answer.offset for tp, answer in found.items() if answer is not None}


def _first(group: ExceptionGroup[Exception]) -> Exception:
    found: Exception = group
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found
