"""Table: attacks by very many members of groups, each on a connection of its own. They send nothing that is large."""

from __future__ import annotations

import asyncio
import random
import time
import uuid

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from bench.attacks.largest import TOPIC, World, create, with_group, with_shares
from bench.attacks.registry import Steps, attack
from bench.group_members import Member, connect, rebalance_classic, reconcile_consumer

COMMITTERS = 100
COMMITTED = 50
COMMITTING_S = 10.0
MEMBERS = 1_000
SHARE_MEMBERS = 200
"""The default of group.share.max.size."""
TOPICS = 50
WIDTH = 100


@attack("committers", f"{COMMITTERS} consumers that commit {COMMITTED} offsets each, again and again")
def committers(address: str) -> Steps:
    with_group(address, COMMITTED)
    yield
    commits = asyncio.run(_commit_for(address, COMMITTING_S))
    return f"{commits / COMMITTING_S:.0f} commits/s"


async def _commit_for(address: str, seconds: float) -> int:
    members = await connect(address, COMMITTERS)
    end = time.monotonic() + seconds

    async def commit(member: Member, group: str) -> int:
        count = 0
        while time.monotonic() < end:
            count += 1
            partitions = [
                OffsetCommitRequestPartition(partition_index=p, committed_offset=count, committed_metadata="")
                for p in range(COMMITTED)
            ]
            topic = OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
            response = await member.ask(
                OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic]), 8
            )
            assert {p.error_code for p in response.topics[0].partitions} == {ErrorCode.NONE}
        return count

    return sum(await asyncio.gather(*(commit(member, f"g{index}") for index, member in enumerate(members))))


@attack("rebalance-classic", f"three rebalances of a classic group of {MEMBERS} members")
def rebalances(address: str) -> Steps:
    with_group(address)
    yield
    return f"the slowest took {max(rebalance_classic(address, MEMBERS, 3)):.2f} s"


@attack("rebalance-consumer", f"{MEMBERS} members join a consumer group (KIP-848) at once")
def consumer_members(address: str) -> Steps:
    create(with_group(address), ["members"], MEMBERS)
    yield
    return f"took {reconcile_consumer(address, 'members', MEMBERS):.2f} s"


@attack(
    "rebalance-uneven",
    f"{MEMBERS} members with different subscriptions to {TOPICS} topics of {WIDTH} partitions join at once (KIP-848)",
)
def uneven_members(address: str) -> Steps:
    client = with_group(address)
    for index in range(TOPICS):
        create(client, [f"u{index}"], WIDTH)
    yield
    began = time.monotonic()
    asyncio.run(_join_unevenly(address))
    return f"took {time.monotonic() - began:.2f} s"


async def _join_unevenly(address: str) -> None:
    rng = random.Random(1)
    members = await connect(address, MEMBERS)
    chosen = [[f"u{index}" for index in rng.sample(range(TOPICS), 5)] for _ in members]
    for member in members:
        member.member_id = str(uuid.uuid4())
    for _ in range(3):
        await asyncio.gather(*(m.heartbeat("uneven", topics) for m, topics in zip(members, chosen, strict=True)))
        await asyncio.sleep(1.0)  # group.consumer.assignment.interval.ms


@attack("rebalance-share", f"{SHARE_MEMBERS} members join a share group of {TOPICS * WIDTH} share partitions at once")
def share_members(address: str) -> Steps:
    world = World(with_group(address, TOPICS * WIDTH))
    world.find_topic()
    with_shares(world)
    yield
    began = time.monotonic()
    asyncio.run(_join_share_group(address))
    return f"took {time.monotonic() - began:.2f} s"


async def _join_share_group(address: str) -> None:
    members = await connect(address, SHARE_MEMBERS)
    for member in members:
        member.member_id = str(uuid.uuid4())

    async def beat(member: Member) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id="s", member_id=member.member_id, member_epoch=member.epoch, subscribed_topic_names=[TOPIC]
        )
        response = await member.ask(request, 1)
        assert response.error_code == ErrorCode.NONE, response
        member.epoch = response.member_epoch

    for _ in range(3):
        await asyncio.gather(*(beat(member) for member in members))
        await asyncio.sleep(1.0)  # group.share.assignment.interval.ms
