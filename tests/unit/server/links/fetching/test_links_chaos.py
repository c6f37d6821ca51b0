"""Two clusters with a link between them, while brokers of both are killed and cut off, and the way between the clusters
comes and goes. The mirror never has anything but a prefix of the source; a failover and a failback in the midst of it
lose exactly what was not mirrored, on every replica. The seed decides everything.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.protocol.records.validate import Origin
from barnabas.server.links.fetching.states import MirrorState
from tests.unit.server.links.fetching.clusters import Site, log_bytes, stored_state, with_two_clusters
from tests.unit.server.replication.brokers import Broker

BROKERS = 3
ALL = (1, 2, 3)


class Chaos:
    def __init__(self, source: Site, target: Site, seed: int) -> None:
        self.sites = source, target
        self.rng = random.Random(seed)
        self.calm = False
        self.writable = source
        """The cluster that takes writes."""
        self.acknowledged: dict[Site, list[tuple[int, bytes]]] = {source: [], target: []}
        """(offset, value)"""
        self.refused = 0

    def leading(self, site: Site) -> Broker | None:
        for broker in site.cluster.brokers.values():
            found = broker.partitions.get("t", 0) if broker.alive else None
            if found is not None and found.is_leader:
                return broker
        return None

    async def write(self) -> None:
        """One batch at a time, some of them transactions, into the cluster that takes writes."""
        for n in range(100_000):
            if self.calm:
                return
            await asyncio.sleep(self.rng.random() * 0.05)
            site = self.writable
            leader = self.leading(site)
            if leader is None:
                continue
            value = b"%d" % n
            task = leader.process.spawn(site.cluster.loop, self._append(leader, value, n))
            await asyncio.wait({task}, timeout=5)
            if task.done() and not task.cancelled() and task.exception() is None and task.result() is not None:
                self.acknowledged[site].append((task.result(), value))

    async def _append(self, leader: Broker, value: bytes, n: int) -> int | None:
        """The offset, if the record was acknowledged."""
        partition = leader.partition()
        transactional = self.rng.random() < 0.4
        options = {"producer_id": n, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
        batch = build_batch([SimpleRecord(None, value, 0)], transactional=transactional, **options)
        try:
            info = partition.append(batch, -1, 0)
            if transactional and self.rng.random() < 0.8:
                marker = EndTxn(self.rng.random() < 0.5, 0)
                end = build_end_txn_marker(marker, producer_id=n, producer_epoch=0, timestamp=0)
                partition.append(end, -1, 0, Origin.COORDINATOR)
            code = await partition.wait_committed(info.next_offset, leader.cluster.loop.time() + 5)
        except KafkaError:
            return None
        return info.first_offset if code is ErrorCode.NONE else None

    async def intrude(self) -> None:
        """Write to mirrors: no write may be accepted."""
        while not self.calm:
            await asyncio.sleep(self.rng.random())
            for site in self.sites:
                leader = self.leading(site)
                if leader is not None and site is not self.writable and leader.partition().is_mirror:
                    with pytest.raises(KafkaError) as raised:
                        leader.append(b"intruder", acks=1)
                    assert raised.value.code is ErrorCode.POLICY_VIOLATION
                    self.refused += 1

    async def watch(self) -> None:
        """What must be true at any time: leader epochs of mirrored batches are not above the local one."""
        while not self.calm:
            await asyncio.sleep(0.02)
            for site in self.sites:
                leader = self.leading(site)
                if leader is not None and leader.partition().is_mirror:
                    partition = leader.partition()
                    latest = partition.open_log.latest_epoch
                    aligned = site.state() in (MirrorState.MIRRORING, MirrorState.STOPPING)
                    assert not aligned or latest is None or latest <= partition.leader_epoch

    async def disturb(self, seconds: float) -> None:
        rng = self.rng
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(rng.random() * 0.6)
            site = rng.choice(self.sites)
            cluster = site.cluster
            broker = cluster.brokers[rng.choice(ALL)]
            down = [b for b in cluster.brokers.values() if not b.alive]
            match rng.choice(["kill", "start", "start", "cut", "mend", "fence", "apart", "together", "epoch"]):
                case "kill" if broker.alive:
                    broker.kill()
                    cluster.fence(broker.number)
                case "start" if down:
                    self.start(site, down[0])
                case "cut":
                    cluster.cut.add(frozenset(rng.sample((0, *ALL), 2)))
                case "mend":
                    cluster.cut.clear()
                case "fence" if broker.alive and len(cluster.isr("t", 0)) > 1:
                    cluster.fence(broker.number)
                    broker.heartbeat()
                case "apart":
                    site.is_reachable = False
                case "together":
                    site.is_reachable = True
                case "epoch" if site.leader_id() in ALL and cluster.brokers[site.leader_id()].alive:
                    state = cluster.image.topics.partition("t", 0)
                    assert state is not None
                    site.commit_partition(leader_epoch=state.leader_epoch + rng.choice([1, 5, 30]))

    def leading_open_transactions(self, site: Site) -> int:
        leader = self.leading(site)
        assert leader is not None
        return len(leader.partition().open_log.producers.open_transactions)

    def start(self, site: Site, broker: Broker) -> None:
        broker.start()
        site.attach(broker)

    async def heal(self) -> None:
        for site in self.sites:
            site.is_reachable = True
            site.cluster.cut.clear()
            for broker in site.cluster.brokers.values():
                if not broker.alive:
                    self.start(site, broker)
        for site in self.sites:
            await site.cluster.until(lambda site=site: site.cluster.isr("t") == [*ALL], 120)

    async def settle(self) -> None:
        """End the writes, and wait until every replica of both clusters has the same bytes."""
        self.calm = True
        await self.heal()

        def agree() -> bool:
            logs = {log_bytes(b) for site in self.sites for b in site.cluster.brokers.values()}
            return len(logs) == 1

        await self.sites[0].cluster.until(agree, 600)

    def values(self, site: Site) -> dict[int, bytes]:
        found = {}
        leader = self.leading(site)
        assert leader is not None
        log = leader.partition().open_log
        data = log_bytes(leader)
        for position, header in iter_batches(data):
            if not header.is_control:
                found.update((r.offset, r.value or b"") for r in iter_records(data, position, header))
        assert log.log_start_offset == 0
        return found


async def run_chaos(source: Site, target: Site, seed: int) -> None:
    chaos = Chaos(source, target, seed)
    await source.create(replicas=BROKERS)
    await target.create_mirror(replicas=BROKERS)
    async with asyncio.TaskGroup() as tasks:
        for work in (chaos.write(), chaos.intrude(), chaos.watch()):
            tasks.create_task(work)
        await chaos.disturb(8)
        if seed % 3 == 0:
            await chaos.settle()
        chaos.calm = True
    if seed % 3 == 0:
        held = chaos.values(target)
        assert all(held[offset] == value for offset, value in chaos.acknowledged[source])
        assert chaos.refused > 0
        return
    await fail_over_and_back(chaos, source, target)


async def fail_over_and_back(chaos: Chaos, source: Site, target: Site) -> None:
    """The source is lost, the target takes over, and the source comes back as a mirror, in the midst of the chaos."""
    source.is_reachable = False
    target.mirror(state="stopping")
    await chaos.disturb(2)
    await chaos.heal()
    source.is_reachable = False
    await target.cluster.until(lambda: stored_state(target).state is MirrorState.STOPPED, 400)
    position = stored_state(target).position
    before = chaos.values(target)
    assert max(before, default=-1) < position.offset  # what follows are markers
    held_at_source = chaos.values(source)
    assert all(held_at_source[offset] == value for offset, value in before.items())
    assert not chaos.leading_open_transactions(target)
    target.mirror(state="stopped")
    chaos.calm = False
    chaos.writable = target
    async with asyncio.TaskGroup() as tasks:
        for work in (chaos.write(), chaos.watch()):
            tasks.create_task(work)
        await asyncio.sleep(1)
        source.mirror(state="active")
        await chaos.disturb(8)
        await chaos.settle()
    held = chaos.values(target)
    assert {offset: held[offset] for offset in before} == before
    assert all(held[offset] == value for offset, value in chaos.acknowledged[target])
    assert len(chaos.acknowledged[target]) > 0


@pytest.mark.parametrize("seed", range(4))
def test_a_link_survives_chaos(seed: int) -> None:
    with_two_clusters(lambda source, target: run_chaos(source, target, seed), brokers=BROKERS, seed=10 * seed + 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 200))
def test_a_link_survives_more_chaos(seed: int) -> None:
    with_two_clusters(lambda source, target: run_chaos(source, target, seed), brokers=BROKERS, seed=10 * seed + 1)
