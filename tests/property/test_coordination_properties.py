"""Groups under random histories: no partition has two owners, epochs never decrease, all members are reconciled in the
end, and replaying the log gives the state of the coordinator that wrote it.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.server.coordination.group.consumer.group import ConsumerGroup
from barnabas.server.coordination.group.service import GroupCoordinator
from barnabas.server.coordination.group.shard import GroupShard
from tests.configs import group_coordinator_config
from tests.golden.coordination.stage import settle
from tests.unit.server.coordination.kit import Catalog, Context, LoopClock, MemoryWriter, run_virtual

TP = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
TOPICS = ("t", "u", "v")


@dataclass
class Consumer:
    """A member that follows the protocol: it owns its assignment, and revokes partitions before it reports so."""

    name: str
    topics: list[str]
    epoch: int = 0
    owned: set[tuple[UUID, int]] = field(default_factory=set)
    pending: set[tuple[UUID, int]] | None = None
    """An assignment that the member has received and not applied yet."""

    def request(self, catalog: Catalog) -> ConsumerGroupHeartbeatRequest:
        if self.pending is not None:
            self.owned = self.pending
            self.pending = None
        joining = self.epoch == 0
        if joining:
            self.owned = set()
        by_topic: dict[UUID, list[int]] = {}
        for topic_id, p in sorted(self.owned):
            by_topic.setdefault(topic_id, []).append(p)
        return ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.name,
            member_epoch=self.epoch,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=self.topics,
            topic_partitions=[TopicPartitions(topic_id=t, partitions=ps) for t, ps in by_topic.items()],
        )

    def heed(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned, self.pending = 0, set(), None
        elif response.error_code == 0:
            assert response.member_epoch >= self.epoch, "an epoch went back"
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.pending = {(e.topic_id, p) for e in response.assignment.topic_partitions for p in e.partitions}
                self.owned &= self.pending  # partitions are revoked at once; added partitions may be used later


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.catalog = Catalog(t=5, u=3, v=1)
        self.writer = MemoryWriter()
        self.consumer_groups: list[Consumer] = []
        self.leader_epoch = 0

    async def __aenter__(self) -> World:
        config = group_coordinator_config(group_initial_rebalance_delay_ms=0)
        self.coordinator = GroupCoordinator(config, self.writer, self.catalog, LoopClock(), self.rng)
        self.coordinator.on_partition_count(1)
        self.owner = asyncio.get_running_loop().create_task(self.coordinator.run())
        await settle()
        await self.elect()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.owner.cancel()
        await asyncio.gather(self.owner, return_exceptions=True)

    async def elect(self) -> None:
        self.coordinator.on_elected(0, self.leader_epoch)
        self.leader_epoch += 1
        await settle()

    async def restart(self) -> None:
        before = stored_state(self.shard())
        self.coordinator.on_resigned(0)
        await self.elect()
        assert stored_state(self.shard()) == before, "replay and life differ"

    def shard(self) -> GroupShard:
        return next(shard for _, shard in self.coordinator._runtime.active())

    async def poll(self, consumer: Consumer, *, lose_answer: bool = False) -> None:
        request = consumer.request(self.catalog)
        response = await self.coordinator.consumer_group_heartbeat(Context(1, consumer.name), request)
        if not lose_answer:
            consumer.heed(response)

    async def step(self) -> None:
        roll = self.rng.random()
        if roll < 0.12 and len(self.consumer_groups) < 6:
            topics = self.rng.sample(TOPICS, self.rng.randint(1, 3))
            self.consumer_groups.append(Consumer(f"c{self.rng.getrandbits(32)}", topics))
        elif roll < 0.62 and self.consumer_groups:
            await self.poll(self.rng.choice(self.consumer_groups), lose_answer=self.rng.random() < 0.1)
        elif roll < 0.68 and self.consumer_groups:
            self.rng.choice(self.consumer_groups).topics = self.rng.sample(TOPICS, self.rng.randint(1, 3))
        elif roll < 0.74 and self.consumer_groups:
            gone = self.consumer_groups.pop(self.rng.randrange(len(self.consumer_groups)))
            gone.owned, gone.pending = set(), None
            if gone.epoch > 0 and self.rng.random() < 0.5:
                request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=gone.name, member_epoch=-1)
                await self.coordinator.consumer_group_heartbeat(Context(1), request)
        elif roll < 0.80:
            self.writer.refusals = [self.rng.choice([ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS])]
        elif roll < 0.84:
            await self.restart()
        elif roll < 0.88:
            grown = {n: v.partitions + (self.rng.random() < 0.3) for n, v in self.catalog.views.items()}
            self.catalog = Catalog(**grown)
            self.coordinator.on_topics_changed(self.catalog)
        else:
            await asyncio.sleep(self.rng.choice([0.1, 1, 5]))
        self.check()

    def check(self) -> None:
        group = self.shard().table.get("g")
        if isinstance(group, ConsumerGroup):
            # A member without heartbeats for its session timeout is fenced, and learns so with its next request.
            present = [consumer for consumer in self.consumer_groups if consumer.name in group.members]
            owned = [partition for consumer in present for partition in consumer.owned]
            assert len(owned) == len(set(owned)), "a partition has two owners"
            held = [
                (topic_id, p)
                for member in group.members.values()
                for partitions in (member.assigned, member.revoking)
                for topic_id, ps in partitions.items()
                for p in ps
            ]
            assert len(held) == len(set(held)), "the coordinator gave a partition away twice"
            assert set(held) == set(group.owners)

    async def settle_down(self) -> None:
        """All members keep polling until each has its target assignment, and together they own all partitions."""
        self.writer.refusals = []
        for _ in range(12 + 2 * len(self.consumer_groups)):
            await asyncio.sleep(4)  # the sessions of failed members expire
            for consumer in self.consumer_groups:
                await self.poll(consumer)
            self.check()
        for consumer in self.consumer_groups:
            consumer.owned = consumer.pending if consumer.pending is not None else consumer.owned
        wanted = {t for consumer in self.consumer_groups for t in consumer.topics}
        expected = {(v.topic_id, p) for n, v in self.catalog.views.items() if n in wanted for p in range(v.partitions)}
        assert {p for consumer in self.consumer_groups for p in consumer.owned} == expected
        assert len({consumer.epoch for consumer in self.consumer_groups}) <= 1


def stored_state(shard: GroupShard) -> dict[str, object]:
    """The state that a replay must restore."""
    state: dict[str, object] = {}
    for group_id, group in sorted(shard.table.by_id.items()):
        if isinstance(group, ConsumerGroup):
            state[group_id] = (
                group.epoch.value,
                group.metadata_hash.value,
                group.assignment_epoch.value,
                group.members.snapshot(),
                group.target.snapshot(),
                group.owners.snapshot(),
                group.regexes.snapshot(),
                group.static_members.snapshot(),
            )
        state[f"offsets of {group_id}"] = {
            key: replace(offset, log_offset=0) for key, offset in shard.store.view(group_id, committed=False).items()
        }
    return state


@given(seed=st.integers(0, 2**32), steps=st.integers(5, 80))
@settings(max_examples=60, deadline=None)
def test_consumer_group_partitions_have_one_owner_and_members_are_reconciled(seed: int, steps: int) -> None:
    async def history() -> None:
        async with World(seed) as world:
            for _ in range(steps):
                await world.step()
            await world.settle_down()
            await world.restart()

    run_virtual(history())


# -- classic groups --------------------------------------------------------------------------------------------------


class ClassicWorld(World):
    """Members that join, sync, heartbeat, commit and fail at random. Responses may arrive in any order."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.generations: dict[str, int] = {}
        self.newest = 0
        self.leaders: dict[int, str] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    async def join(self, member_id: str) -> None:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=8_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff")
            ],
        )
        response: JoinGroupResponse = await self.coordinator.join_group(Context(9), request)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            await self.join(response.member_id)
        elif response.error_code == 0:
            assert response.generation_id >= self.newest, "a generation went back"
            self.newest = response.generation_id
            self.generations[response.member_id] = response.generation_id
            leader = self.leaders.setdefault(response.generation_id, response.leader)
            assert leader == response.leader, "two leaders in a generation"
            members = [m.member_id for m in response.members]
            assert bool(members) == (response.leader == response.member_id)
            await self.sync(response.member_id, members)
        elif member_id:
            self.generations.pop(member_id, None)

    async def sync(self, member_id: str, members: list[str]) -> None:
        generation = self.generations[member_id]
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=f"{generation}:{m}".encode()) for m in members
            ],
        )
        response = await self.coordinator.sync_group(Context(5), request)
        if response.error_code == 0:
            assert response.assignment == f"{generation}:{member_id}".encode(), "someone else's assignment"

    def spawn(self, member_id: str) -> None:
        task = asyncio.get_running_loop().create_task(self.join(member_id))
        self.tasks.add(task)
        task.add_done_callback(lambda done: (self.tasks.discard(done), done.result()))  # a failure fails the test

    async def step(self) -> None:
        roll = self.rng.random()
        members = sorted(self.generations)
        if roll < 0.2 and len(members) < 5:
            self.spawn("")
        elif roll < 0.5 and members:
            await self.beat(self.rng.choice(members))
        elif roll < 0.65 and members:
            await self.commit(self.rng.choice(members))
        elif roll < 0.72 and members:
            gone = self.rng.choice(members)
            del self.generations[gone]
            if self.rng.random() < 0.5:
                request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=gone)])
                await self.coordinator.leave_group(Context(5), request)
        elif roll < 0.78:
            self.writer.refusals = [self.rng.choice([ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS])]
        elif roll < 0.82:
            await self.restart()
        else:
            await asyncio.sleep(self.rng.choice([0.1, 1, 4]))
        await settle()

    async def beat(self, member_id: str) -> None:
        request = HeartbeatRequest(group_id="g", generation_id=self.generations[member_id], member_id=member_id)
        response = await self.coordinator.heartbeat(Context(4), request)
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.spawn(member_id)
        elif response.error_code:
            del self.generations[member_id]

    async def commit(self, member_id: str) -> None:
        p, offset = self.rng.randrange(5), self.rng.randrange(1000)
        partition = OffsetCommitRequestPartition(partition_index=p, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=self.generations[member_id],
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        response = await self.coordinator.offset_commit(Context(9), request)
        if response.topics[0].partitions[0].error_code == 0:
            self.committed[("t", p)] = offset
        held = self.shard().store.view("g", committed=True)
        assert {key: stored.offset for key, stored in held.items()} == self.committed


@given(seed=st.integers(0, 2**32), steps=st.integers(5, 80))
@settings(max_examples=60, deadline=None)
def test_classic_groups_keep_generations_and_offsets(seed: int, steps: int) -> None:
    async def history() -> None:
        async with ClassicWorld(seed) as world:
            for _ in range(steps):
                await world.step()
            world.writer.refusals = []
            await asyncio.sleep(60)  # all members stop, and no request stays pending
            assert not world.tasks
            await world.restart()

    run_virtual(history())
