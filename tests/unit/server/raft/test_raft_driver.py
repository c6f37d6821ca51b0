"""The driver over ports in memory, in virtual time: effects are carried out in their order.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from barnabas.core.errors import KafkaError
from barnabas.server.raft.driver import Ports, RaftDriver
from barnabas.server.raft.errors import NotRaftLeaderError
from barnabas.server.raft.machine.messages import FetchRequest
from barnabas.server.raft.machine.values import ReplicaKey, Voters
from tests.configs import raft_config
from tests.property.raft_world import SimDisk, key_of, voter_of
from tests.unit.server.coordination.kit import run_virtual
from tests.unit.server.raft.memory import MemoryLog, MemoryNetwork, MemorySnapshots, MemoryVotes, Recorder


class Cluster:
    """Connected drivers, and a list of their events in order."""

    def __init__(self, size: int) -> None:
        self.events: list[str] = []
        self.network = MemoryNetwork(self.events)
        self.voters = Voters(tuple(voter_of(key_of(node_id)) for node_id in range(1, size + 1)))
        self.disks = {node_id: SimDisk() for node_id in self.voters.ids}
        self.logs: dict[int, MemoryLog] = {}
        self.recorders: dict[int, Recorder] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, node_id: int) -> RaftDriver:
        config = raft_config(voters=self.voters, kraft_version=1, endpoints=voter_of(key_of(node_id)).endpoints)
        disk = self.disks[node_id]
        recorder = self.recorders[node_id] = Recorder()
        log = self.logs[node_id] = MemoryLog(disk)
        ports = Ports(log, MemoryVotes(disk, self.events), MemorySnapshots(disk), self.network, recorder)
        driver = RaftDriver(key_of(node_id), config, ports, random.Random(node_id))
        driver.open()
        self.network.drivers[node_id] = driver
        self.tasks[node_id] = asyncio.get_running_loop().create_task(driver.run())
        return driver

    async def stop(self, node_id: int) -> None:
        del self.network.drivers[node_id]
        task = self.tasks.pop(node_id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def leader(self) -> RaftDriver:
        while True:
            for driver in self.network.drivers.values():
                if driver.machine.is_leader:
                    return driver
            await asyncio.sleep(0.05)


@asynccontextmanager
async def cluster(size: int) -> AsyncIterator[Cluster]:
    made = Cluster(size)
    for node_id in made.voters.ids:
        made.start(node_id)
    try:
        yield made
    finally:
        for node_id in list(made.tasks):
            await made.stop(node_id)


async def committed_everywhere(made: Cluster, values: list[bytes]) -> None:
    async with asyncio.timeout(60):
        while any(made.recorders[node_id].values != values for node_id in made.tasks):
            await asyncio.sleep(0.05)


def test_proposals_are_committed_in_order_on_every_node() -> None:
    async def main() -> None:
        async with cluster(3) as made:
            leader = await made.leader()
            offsets = await asyncio.gather(*(leader.propose(b"%d" % i, 1) for i in range(50)))
            assert offsets == sorted(offsets) and len(set(offsets)) == 50
            await committed_everywhere(made, [b"%d" % i for i in range(50)])

    run_virtual(main())


def test_single_voter_commits_and_shares_syncs() -> None:
    async def main() -> None:
        async with cluster(1) as made:
            leader = await made.leader()
            await asyncio.gather(*(leader.propose(b"v", 1) for _ in range(100)))
            assert made.logs[1].syncs < 10

    run_virtual(main())


def test_vote_is_saved_before_vote_requests_are_sent() -> None:
    async def main() -> None:
        async with cluster(3) as made:
            await made.leader()
            asked = made.events.index("VoteRequest to 2") if "VoteRequest to 2" in made.events else 0
            saved = made.events.index("saved epoch 1")
            begun = next(i for i, event in enumerate(made.events) if event.startswith("BeginQuorumEpoch"))
            assert asked < saved < begun  # the pre-vote needs no vote on disk; what follows does

    run_virtual(main())


def test_committed_values_survive_a_restart_of_all_nodes() -> None:
    async def main() -> None:
        async with cluster(3) as made:
            first = await made.leader()
            await first.propose(b"a", 1)
            await made.stop(first.machine.quorum.me.id)
            await (await made.leader()).propose(b"b", 1)
            for node_id in list(made.tasks):
                await made.stop(node_id)
            for node_id in made.voters.ids:
                made.start(node_id)
            await (await made.leader()).propose(b"c", 1)
            await committed_everywhere(made, [b"a", b"b", b"c"])

    run_virtual(main())


def test_a_leader_without_followers_fails_its_proposals() -> None:
    async def main() -> None:
        async with cluster(3) as made:
            leader = await made.leader()
            await leader.propose(b"a", 1)
            me = leader.machine.quorum.me.id
            for node_id in [node_id for node_id in made.tasks if node_id != me]:
                await made.stop(node_id)
            with pytest.raises(NotRaftLeaderError):
                await leader.propose(b"lost?", 1)
            with pytest.raises(NotRaftLeaderError):
                leader.propose(b"never", 1)
            assert made.recorders[me].leaders[-1].leader_id == -1

    run_virtual(main())


def test_resignation_elects_a_successor_at_once() -> None:
    async def main() -> None:
        async with cluster(3) as made:
            old = await made.leader()
            await old.propose(b"a", 1)
            await asyncio.sleep(1)
            before = asyncio.get_running_loop().time()
            old.resign(shutting_down=True)
            await asyncio.sleep(0)
            new = await made.leader()
            assert new is not old
            assert asyncio.get_running_loop().time() - before < 0.5

    run_virtual(main())


def test_disk_failure_stops_the_replica() -> None:
    async def main() -> None:
        made = Cluster(1)
        driver = made.start(1)
        leader = await made.leader()
        made.logs[1].broken = OSError("fsync failed")
        with pytest.raises(NotRaftLeaderError):
            await leader.propose(b"a", 1)
        with pytest.raises(BaseExceptionGroup) as raised:
            await made.tasks[1]
        assert raised.value.subgroup(OSError) is not None
        with pytest.raises(KafkaError, match="stopped"):
            await driver.handle(FetchRequest(ReplicaKey(9), 1, 0, 0))

    run_virtual(main())


def test_node_below_the_log_start_loads_the_snapshot() -> None:
    async def main() -> None:
        async with cluster(3) as made:
            leader = await made.leader()
            me = leader.machine.quorum.me.id
            late = next(node_id for node_id in made.tasks if node_id != me)
            await made.stop(late)
            for i in range(20):
                await leader.propose(b"%08d" % i, 1)
            snapshot_id, version, voters = leader.snapshot_controls(leader.machine.high_watermark)
            from tests.property.raft_world import Snapshot

            made.disks[me].snapshots[snapshot_id] = Snapshot(b"state", version, voters)
            leader.snapshot_taken(snapshot_id)
            made.start(late)
            await leader.propose(b"after", 1)
            async with asyncio.timeout(60):
                while made.recorders[late].values != [b"after"]:
                    await asyncio.sleep(0.05)
            assert made.recorders[late].snapshots == [snapshot_id]

    run_virtual(main())
