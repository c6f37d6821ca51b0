"""Shell: one run of the scenario of two clusters: topics of the east are mirrored to the west under faults; then the
mirrors are stopped, the west takes the writes, and the east becomes the mirror.

        faults      healed   cut over    faults in the west    failback     read and compare
    |────────────|──────────|──────────|────────────────────|────────────|──────────────────|
      writers in the east                writers in the west

The cut-over is a promotion (no record is lost) or a failover (the two clusters are cut apart while the east takes
writes; its last records are lost, and saved to files at the failback). The seed decides everything.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from barnabas.client.admin.links import MirrorAction
from barnabas.client.values import ConfigChange, ConfigResource
from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.server.links.fetching.states import MirrorState
from barnabas.server.links.fetching.task import MirrorTask
from barnabas.testing.sim.cluster.layout import ClusterLayout
from barnabas.testing.sim.cluster.view import mirror_tasks_of
from barnabas.testing.sim.errors import CorrectnessError
from barnabas.testing.sim.mirroring.faults import KEEPS_ALL, LinkFaultContext, LinkFaultMenu
from barnabas.testing.sim.mirroring.final_rules import (
    check_acknowledged,
    check_views,
    read_site,
)
from barnabas.testing.sim.mirroring.programs import OWN, PARTITIONS, READERS, SHARED, SHARERS, Programs
from barnabas.testing.sim.mirroring.rules import CutOverLeavesNothingOpen, NoSilentGap, TailIsSaved
from barnabas.testing.sim.mirroring.site import Site
from barnabas.testing.sim.mirroring.watch import LinkWatch
from barnabas.testing.sim.outcome import ScenarioResult, judged, play
from barnabas.testing.sim.workload import ATOMIC, PLAIN, WorkloadFacts
from barnabas.testing.sim.world import World

SECONDS: Final = 8.0
"""Simulated seconds with faults before the cut-over."""
RECOVERY_S: Final = 120.0
"""Simulated seconds within which healed clusters must be healthy, and mirrors must catch up. A mirror that has failed
several times waits for its back-off."""
_TOPICS: Final = (PLAIN, ATOMIC)
_AGAIN: Final = "again"
"""A topic that is deleted and created again on the source, in some runs."""
_LOSSY_SHARE: Final = 0.4
"""The share of the seeds with power cuts or disk faults."""
_SHARES_SHARE: Final = 0.4
_UNCLEAN: Final = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


def mirroring(
    seed: int,
    *,
    seconds: float = SECONDS,
    menu: LinkFaultMenu | None = None,
    shares: bool | None = None,
    world: World | None = None,
) -> ScenarioResult:
    """Runs the scenario of `seed` and returns its parameters and counts.

    Raises CrashError, LivenessError or CorrectnessError, with the seed and the end of the trace in its notes.
    """
    world = world or World(seed)
    return play(world, MirroringScenario(world, seconds, menu, shares=shares))


class MirroringScenario:
    """The scenario of two clusters. Its attributes remain after the run, for inspection."""

    def __init__(
        self,
        world: World,
        seconds: float = SECONDS,
        menu: LinkFaultMenu | None = None,
        *,
        shares: bool | None = None,
    ) -> None:
        rng = world.random_stream("scenario")
        drawn = rng.choice([LinkFaultMenu.KILL, LinkFaultMenu.UNCLEAN, LinkFaultMenu.RETENTION])
        self.world = world
        self.seconds = seconds
        extras = world.random_stream("extras")  # of its own, so that the other draws of a seed stay as they are
        if menu is None and extras.random() < _LOSSY_SHARE:
            drawn = extras.choice([LinkFaultMenu.POWER, LinkFaultMenu.DISK])
        self.menu = menu or drawn
        self.shares = (menu is None and extras.random() < _SHARES_SHARE) if shares is None else shares
        """Whether a share group works in the east."""
        self.is_planned = rng.random() < 0.4
        """Whether the cut-over waits until the mirrors have everything."""
        self.both_ways = rng.random() < 0.5
        """Whether the east has a link to the west from the beginning."""
        self.recreates = rng.random() < 0.3
        self.east = Site(world, "east", random_layout(rng, "east-", unclean=self.menu is LinkFaultMenu.UNCLEAN), {})
        self.west = Site(world, "west", random_layout(rng, "west-"), {})
        self.east.other, self.west.other = self.west, self.east
        self.facts = WorkloadFacts()
        self.writers = Programs(self.east, self.facts).add_writers()
        self.readers = Programs(self.east, self.facts).add_readers(READERS, SHARED)
        self.sharers = Programs(self.east, self.facts).add_sharers(2 if self.shares else 0)
        self.guests = Programs(self.west, self.facts).add_readers(SHARED).add_intruder()
        self.successors = Programs(self.west, self.facts).add_writers()
        self.watch = LinkWatch([self.east, self.west], [self.guests])
        self.faults = LinkFaultContext(self.east, self.west, self.watch, self.menu)
        self.faults.gaps = self.watch.rule(self.west, NoSilentGap).gaps
        self.topic_config = {"internal.segment.bytes": str(rng.choice([6_000, 1 << 20]))}

    @property
    def about(self) -> str:
        ways = "both ways" if self.both_ways else "one way"
        shares = ", a share group" if self.shares else ""
        return f"{self.menu.value}, {'promote' if self.is_planned else 'failover'}, {ways}{shares}"

    @property
    def fault_count(self) -> int:
        return self.faults.count

    @property
    def saved_batches(self) -> int:
        """The batches that were cut off and saved to files."""
        return sum(self.watch.rule(site, TailIsSaved).saved for site in (self.east, self.west))

    @property
    def skipped_offsets(self) -> int:
        rule = self.watch.rule(self.west, NoSilentGap)
        return sum(map(rule.skipped, partitions()))

    async def run(self) -> None:
        """Runs the scenario. Raises the exceptions of `mirroring`."""
        with judged(self.world, "A fault could not be applied or undone"):
            await self._run()

    async def _run(self) -> None:
        self.world.trace.event("scenario", f"{self.about}: {self.east.cluster.layout}; {self.west.cluster.layout}")
        await self._begin()
        await self.faults.strike(self.seconds)
        await self.faults.heal()
        for site in (self.east, self.west):
            await site.cluster.until_well(RECOVERY_S)
        if self.recreates:
            await self._recreate()
        await (self._promote() if self.is_planned else self._fail_over())
        await self._write_in_the_west()
        await self._fail_back()
        await self._compare()
        self.world.check_crashes()

    # ---- the beginning

    async def _begin(self) -> None:
        async with asyncio.TaskGroup() as starting:
            for site in (self.east, self.west):
                starting.create_task(site.cluster.start())
        async with self.east.admin() as admin:
            for topic in _TOPICS:
                unclean = _UNCLEAN if self.menu is LinkFaultMenu.UNCLEAN and topic == PLAIN else {}
                await admin.create_topic(topic, PARTITIONS, configs=self.topic_config | unclean)
            if self.recreates:
                await admin.create_topic(_AGAIN, 1)
        async with self.west.admin() as admin:
            await admin.create_topic(OWN, 1)
            if self.shares:
                group = ConfigResource.group(SHARERS)
                await admin.incremental_alter_configs({group: [ConfigChange("share.auto.offset.reset", "earliest")]})
        self.writers.start()
        self.readers.start()
        self.sharers.start()
        await self._link(self.west)
        if self.both_ways:
            await self._link(self.east)
        await self.world.until(lambda: all(map(self.west.mode, _TOPICS)), RECOVERY_S, "the topics are mirrors")
        await self._allow_truncations(self.west)
        self.guests.start()

    async def _allow_truncations(self, site: Site) -> None:
        """Lets the mirrors of a site follow unclean elections, also those that happened while the link was cut."""
        if self.menu is LinkFaultMenu.UNCLEAN:
            async with site.admin() as admin:
                setting = {"mirror.support.unclean.leader.election": "true"}
                refused = await admin.alter_configs({ConfigResource.topic(PLAIN): setting})
            if any(refused.values()):
                raise CorrectnessError(f"The config of a mirror was refused: {refused}")

    async def _link(self, site: Site) -> None:
        async with site.admin() as admin:
            await admin.create_link(site.link())

    # ---- what happens to the mirrors

    async def caught_up(self, site: Site) -> None:
        """Waits until the mirrors of a site have everything that the other site has."""
        wrong = ""

        def have_all() -> bool:
            nonlocal wrong
            wrong = next(filter(None, (_problem(site, tp) for tp in partitions())), "")
            return not wrong

        try:
            await self.world.until(have_all, RECOVERY_S, "the mirrors have caught up")
        except BaseException as error:
            error.add_note(f"--- the mirrors of the {site.name}: {wrong}")
            raise
        await asyncio.sleep(2.0)  # some rounds of the link, which also copy group offsets

    async def _recreate(self) -> None:
        """Deletes a topic on the source and creates it again: the mirror must fail, and say so."""
        async with self.east.admin() as admin:
            await admin.delete_topics([_AGAIN])
            await self.world.until(lambda: not self.east.has_topic(_AGAIN), RECOVERY_S, "the topic is deleted")
            await admin.create_topic(_AGAIN, 1)
        async with self.east.producer() as producer:
            for number in range(3):
                await producer.send_and_wait(_AGAIN, b"%d" % number, partition=0)

        def is_noticed() -> bool:
            task = task_of(self.west, TopicPartition(_AGAIN, 0))
            return task is not None and task.state is MirrorState.FAILED and "created again" in task.report().reason

        await self.world.until(is_noticed, RECOVERY_S, "a link notices that a topic was created again")
        leader = self.west.leader(TopicPartition(_AGAIN, 0))
        if leader is not None and leader.log.log_end_offset:
            raise CorrectnessError("RecreationIsNoticed is broken: the mirror has records of the new topic")

    async def _promote(self) -> None:
        await self.writers.stop(RECOVERY_S)
        await self.sharers.stop(RECOVERY_S)
        await self.caught_up(self.west)
        self.watch.at_rest(self.west, partitions())
        await self._stop_mirrors()

    async def _fail_over(self) -> None:
        """The connection is cut; the writers of the east go on for a while, and lose what they write from now on."""
        network = self.world.network
        for one, other in self.faults.pairs():
            network.cut(one, other)
        await asyncio.sleep(self.faults.some(0.2, 2.0))
        await self._stop_mirrors()
        await self.writers.stop(RECOVERY_S)

    async def _stop_mirrors(self) -> None:
        async def is_stopped() -> bool:
            try:
                async with self.west.admin() as admin:
                    await admin.alter_mirrors(self.west.link_name, MirrorAction.STOP)
            except BarnabasError as error:
                self.world.trace.event("operator", f"stop: {error}")
            return not any(map(self.west.mode, _TOPICS))

        await self.world.until(is_stopped, RECOVERY_S, "the mirrors are stopped")
        self.watch.check()
        positions = self.watch.rule(self.west, CutOverLeavesNothingOpen).positions
        self.world.trace.event("operator", f"the mirrors are stopped at {sorted(positions.values())}")

    async def _write_in_the_west(self) -> None:
        self.successors.start()
        await self.faults.strike(3.0, sites=1)
        await self.faults.heal()
        await self.west.cluster.until_well(RECOVERY_S)
        await self.east.cluster.until_well(RECOVERY_S)
        await asyncio.sleep(1.0)
        for programs in (self.successors, self.guests, self.readers, self.sharers):
            await programs.stop(RECOVERY_S)
        self.world.check_crashes()

    async def _fail_back(self) -> None:
        """The east becomes a mirror of the west."""
        if not self.both_ways:
            await self._link(self.east)
        for seen in self.watch.check():
            if seen.site is self.east:
                self.watch.rule(self.east, TailIsSaved).keep_all(seen)

        async def is_started() -> bool:
            async with self.east.admin() as admin:
                for change in await admin.alter_mirrors(self.east.link_name, MirrorAction.START, _TOPICS):
                    if change.error is not None:
                        self.world.trace.event("operator", f"start: {change.error}")
            return all(map(self.east.mode, _TOPICS))

        await self.world.until(is_started, RECOVERY_S, "the topics of the east are mirrors")
        await self._allow_truncations(self.east)
        await self.caught_up(self.east)
        self.watch.at_rest(self.east, partitions())

    # ---- the end

    async def _compare(self) -> None:
        views = {}
        for site in (self.east, self.west):
            views[site.name] = await read_site(site, partitions(), RECOVERY_S)
        check_views(views["east"], views["west"])
        check_acknowledged(views["west"], self.successors.known)
        check_acknowledged(views["west"], self.guests.known)
        if self.menu in KEEPS_ALL:
            check_acknowledged(views["west"], self.writers.known, below=None if self.is_planned else self._mirrored())

    def _mirrored(self) -> dict[TopicPartition, int]:
        """Up to which offset each partition was mirrored at a failover. A transaction that is committed on the source
        is aborted if its marker was not mirrored, so the topic of transactions is left out."""
        positions = self.watch.rule(self.west, CutOverLeavesNothingOpen).positions
        return {
            tp: positions[replica.key]
            for tp, replica in self.west.leaders()
            if replica.key in positions and tp.topic == PLAIN
        }


def partitions() -> list[TopicPartition]:
    """The partitions that are mirrored from the east to the west, and then back."""
    return [TopicPartition(topic, index) for topic in _TOPICS for index in range(PARTITIONS)]


def _problem(site: Site, tp: TopicPartition) -> str:
    """Why a mirror has not caught up; empty if it has."""
    here, there, task = site.leader(tp), site.other.leader(tp), task_of(site, tp)
    if here is None or there is None or task is None:
        return f"{tp} has no leader"
    if task.state is not MirrorState.MIRRORING:
        return f"{tp} is {task.state}: {task.report().reason}"
    ends = [(one.partition.high_watermark, one.log.log_end_offset) for one in (here, there)]
    if ends[0] != ends[1]:
        return f"{tp} ends at {ends[0]}, its source at {ends[1]}"
    starts = [one.log.log_start_offset for one in (here, there)]
    return "" if starts[0] >= starts[1] else f"{tp} begins at {starts[0]}, its source at {starts[1]}"


def task_of(site: Site, tp: TopicPartition) -> MirrorTask | None:
    """The task of a mirror partition on its leader."""
    leader = site.leader(tp)
    if leader is None:
        return None
    return next((task for task in mirror_tasks_of(leader.node) if task.key == (tp.topic, tp.partition)), None)


def random_layout(rng: random.Random, prefix: str, *, unclean: bool = False) -> ClusterLayout:
    """A small cluster. For unclean elections, the controller is a node of its own, which is not cut off."""
    brokers = rng.choice([2, 3])
    combined = rng.random() < 0.5 and not unclean
    controllers = rng.choice([1, 3]) if combined and brokers == 3 else 1
    return ClusterLayout(brokers, controllers, combined=combined, prefix=prefix)
