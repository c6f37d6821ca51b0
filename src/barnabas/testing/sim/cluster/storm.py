"""Shell: one run of the cluster scenario: nodes, clients and faults; then all records are read, every node is
restarted, and the invariants are checked.

        faults     healed      faults     healed                 all killed and restarted
    |────────────|─────────|───────────|─────────|──────────|───────────────────────────|
      producers, groups, transactions, copiers,    read all    read all again, check
      share consumers

The seed decides everything: the number and roles of nodes, the faults, the number of clients, the size of the segments.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from barnabas.client.admin.quotas import quota_entity
from barnabas.testing.sim import invariants
from barnabas.testing.sim.cluster import hostile_clients
from barnabas.testing.sim.cluster.cluster import SimCluster
from barnabas.testing.sim.cluster.disk_faults import power_cut
from barnabas.testing.sim.cluster.fault_context import LOSSY, ClusterFaultMenu, FaultContext
from barnabas.testing.sim.cluster.hostile_clients import HostileClients, RequestCosts, Siege
from barnabas.testing.sim.cluster.layout import RACKS, ClusterLayout
from barnabas.testing.sim.cluster.nemesis import Nemesis
from barnabas.testing.sim.cluster.tiered_faults import TIERED_NODES, TIERED_TOPICS, change_faults
from barnabas.testing.sim.cluster.view import broker_of
from barnabas.testing.sim.cluster.watch import ClusterWatch
from barnabas.testing.sim.evidence import LAST_READER, FinalReader
from barnabas.testing.sim.invariants import Evidence
from barnabas.testing.sim.objects import SimObjectStore
from barnabas.testing.sim.outcome import ScenarioResult, judged, play
from barnabas.testing.sim.workload import TOPICS, Mix, Workload, WorkloadFacts
from barnabas.testing.sim.workload.processing import NODES, prepare_processors, until_processed
from barnabas.testing.sim.workload.sharing import prepare_sharers
from barnabas.testing.sim.world import World

SECONDS = 10.0
"""Simulated seconds with faults."""
RECOVERY_S = 60.0
"""Simulated seconds within which a healed cluster must be healthy, and must complete all requests."""
SASL_SHARE: Final = 0.1
"""The share of the seeds whose nodes and clients log in."""
QUOTAS_DRAWN: Final = 0.3
"""The share of storms with quotas."""
HOSTILE_SHARE: Final = 0.3
"""The share of storms with hostile clients, unless clients log in."""
DELAYS_END_S: Final = 120.0
"""Simulated seconds after which no client is delayed any more by quotas that were removed."""
ALL_CLIENTS: Final = quota_entity({"client-id": None})
"""Every client of the workload, each with a quota of its own."""
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
COMPACTING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "log.roll.ms": "20",
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.min.cleanable.ratio": "0",
        "log.cleaner.delete.retention.ms": "0",
    }
)
"""Settings with which the offsets topic, where the copiers' transactions commit offsets, is compacted again and again
during a run."""


def storm(
    seed: int,
    *,
    seconds: float = SECONDS,
    menu: ClusterFaultMenu | None = None,
    settings: Mapping[str, str] = NO_SETTINGS,
    world: World | None = None,
    sasl: bool | None = None,
    quotas: bool | None = None,
    hostile: bool | None = None,
    tiered: bool = False,
) -> ScenarioResult:
    """Runs the cluster scenario of `seed` and returns its parameters and counts. With `menu`, the faults are from that
    menu; otherwise the seed chooses a menu. `settings` are broker settings in addition to those of the scenario. With
    `sasl`, nodes and clients log in, with `quotas`, clients are delayed by quotas, and with `hostile`, some clients are
    hostile; None leaves it to the seed, if the seed also chooses the menu. With `tiered`, the topics are in tiered
    storage, in an object store with faults.

    Raises CrashError, LivenessError or CorrectnessError, with the seed and the end of the trace in its notes.
    """
    world = world or World(seed)
    return play(world, Storm(world, seconds, menu, settings, sasl=sasl, quotas=quotas, hostile=hostile, tiered=tiered))


class Storm:
    """The cluster scenario. Its attributes remain after the run, for inspection."""

    def __init__(
        self,
        world: World,
        seconds: float,
        menu: ClusterFaultMenu | None,
        settings: Mapping[str, str] = NO_SETTINGS,
        *,
        sasl: bool | None = None,
        quotas: bool | None = None,
        hostile: bool | None = None,
        tiered: bool = False,
    ) -> None:
        """`quotas` and `hostile` are drawn from the seed if they are None, and then only without a `menu`."""
        rng = world.random_stream("scenario")
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
            racks=world.random_stream("racks").random() < 0.3,
            directories=world.random_stream("directories").random() < 0.3 and not tiered,
            sasl=(menu is None and world.random_stream("sasl").random() < SASL_SHARE) if sasl is None else sasl,
        )
        config = {
            "metadata.log.max.record.bytes.between.snapshots": str(rng.choice([2_000, 20_971_520])),
            **NODES,
        }
        if self.menu is ClusterFaultMenu.BLACKOUT:
            config["log.flush.interval.messages"] = "1"
        self.objects = SimObjectStore(world.random_stream("objects")) if tiered else None
        if tiered:
            config |= TIERED_NODES
        hostility = world.random_stream("hostile")
        is_hostile = menu is None and hostility.random() < HOSTILE_SHARE
        is_hostile = (is_hostile if hostile is None else hostile) and not self.layout.sasl
        if is_hostile:
            config |= hostile_clients.SETTINGS | hostility.choice([{}, hostile_clients.COUNTING])
        self.cluster = SimCluster(world, self.layout, config | dict(settings))
        for node in self.cluster.hosts.values():
            node.objects = self.objects
            node.takes_time = is_hostile
        slow = (
            self.menu is not ClusterFaultMenu.KILL and rng.random() < 0.6
        )  # slow fsync, so that many writes are unsynced at any time
        for node in self.cluster.hosts.values():
            node.clock.skew_s = rng.uniform(-10, 10)
            if slow:
                node.usual_job_s = node.job_s = (0.005, 0.1)
        racks = RACKS if self.layout.racks else ()
        mix = replace(
            random_mix(rng),
            visitors=1 if self.layout.sasl else 0,
            processors=world.random_stream("processors").choice([0, 2, 3]),
        )
        self.workload = Workload(world, mix, partitions=rng.randint(1, 2), racks=racks)
        self.costs = RequestCosts() if is_hostile else None
        """The work for each client, if clients are hostile."""
        self.answers: list[float] = []
        """The seconds after which neighbours of hostile clients were answered."""
        self.fault_context = FaultContext(self.cluster, self.workload, self.menu, TOPICS)
        self.nemesis = Nemesis(self.fault_context)
        limits = world.random_stream("quotas")
        has_quotas = menu is None and limits.random() < QUOTAS_DRAWN if quotas is None else quotas
        self.quotas = random_quotas(limits) if has_quotas else {}
        self.throttled = 0
        """The requests that the brokers have delayed, except those that were killed meanwhile."""
        self.watch: ClusterWatch | None = None
        self.episodes = rng.choice([1, 1, 2])
        self.topic_config: Mapping[str, str | None] = {
            "internal.segment.bytes": str(rng.choice([6_000, 20_000, 1 << 20])),
            "segment.ms": str(rng.choice([1_500, 604_800_000])),
            "index.interval.bytes": str(rng.choice([0, 100, 4096])),
            **(TIERED_TOPICS if tiered else {}),
        }

    @property
    def about(self) -> str:
        return f"{self.menu.value}, {self.layout}"

    @property
    def facts(self) -> WorkloadFacts:
        return self.workload.facts

    @property
    def fault_count(self) -> int:
        return self.nemesis.count

    async def run(self) -> None:
        """Runs the scenario. Raises the exceptions of `storm`."""
        with judged(self.world, "A fault could not be applied or undone"):
            await self._run()

    async def _run(self) -> None:
        world, workload = self.world, self.workload
        world.trace.event(
            "scenario", f"{self.menu.value}, {self.layout}, {workload.mix}, {dict(self.topic_config)}, {self.quotas}"
        )
        self.watch = ClusterWatch(self.cluster, workload, self.costs)
        await self.cluster.start()
        async with world.admin() as admin:
            for topic in TOPICS:
                await admin.create_topic(topic, workload.partitions, configs=self.topic_config)
            await prepare_sharers(admin)
            if workload.mix.processors:
                await prepare_processors(admin)
            if self.quotas:
                await admin.alter_client_quotas({ALL_CLIENTS: self.quotas})
        workload.start()
        for _ in range(self.episodes):
            await self._strike(self.seconds / self.episodes)
            await self.nemesis.rest(RECOVERY_S)
            world.check_crashes()
            if self.costs is not None:
                siege = Siege(self.cluster, self.costs)
                await siege.hold()
                self.answers += siege.answers
            if self.menu in LOSSY:  # only replication can restore the lost data
                await power_cut(self.fault_context)
                await self.nemesis.rest(RECOVERY_S)
        await asyncio.sleep(1.0)
        if self.quotas:
            await self._end_quotas()
        # A delay that a quota has imposed lasts to its end, though the quota is removed meanwhile, as in Apache Kafka.
        await until_processed(workload, after_s=DELAYS_END_S if self.quotas else 0.0)
        await workload.stop(RECOVERY_S)
        world.check_crashes()
        evidence = await self._gather()
        world.check_crashes()
        for invariant in invariants.ALL:
            invariant.check(evidence)

    async def _strike(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            if self.objects is not None:
                faults = self.world.random_stream("object faults")
                group.create_task(change_faults(self.objects, faults, seconds))
            if self.costs is not None:
                group.create_task(HostileClients(self.cluster, self.workload.partitions).attack(seconds))
            await self.nemesis.strike(seconds)

    async def _end_quotas(self) -> None:
        """Count the delayed requests, and remove the quotas: at a hundred bytes per second the processors would need
        minutes for what is left, and the last readers read everything at once."""
        for node in self.cluster.hosts.values():
            broker = broker_of(node)
            if broker is not None:
                self.throttled += sum(broker.quotas.throttled.values())
        self.world.trace.event("quotas", f"{self.throttled} requests were delayed")
        async with self.world.admin() as admin:
            await admin.alter_client_quotas({ALL_CLIENTS: dict.fromkeys(self.quotas)})
        # A broker that does not know it yet could delay a reader for more than a minute.
        await self.world.until(self._no_broker_has_quotas, RECOVERY_S, "every broker knows that the quotas are removed")

    def _no_broker_has_quotas(self) -> bool:
        found = map(broker_of, self.cluster.hosts.values())
        return not any(broker is not None and broker.quotas.is_active for broker in found)

    async def _gather(self) -> Evidence:
        assert self.watch is not None
        final = FinalReader(self.workload, RECOVERY_S)
        before = await final.read_all(LAST_READER, await final.bounds())
        await self.cluster.until_well(RECOVERY_S, quiet=True)
        self.watch.at_rest()
        for node in self.cluster.hosts.values():
            node.kill()
        for node in self.cluster.hosts.values():
            await self.cluster.up(node)
        await self.cluster.until_well(RECOVERY_S)
        committed = await final.committed()
        bounds = await final.bounds()
        after = await final.read_all(None, bounds)
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


def random_quotas(rng: random.Random) -> Mapping[str, float]:
    """Quotas in bytes per second that delay the clients of the workload often, for seconds."""
    wanted = {name: float(rng.choice([100, 400])) for name in ("producer_byte_rate", "consumer_byte_rate")}
    return dict(rng.choice([list(wanted.items())[:1], list(wanted.items())[1:], list(wanted.items())]))


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
