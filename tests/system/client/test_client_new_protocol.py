"""Groups of the new protocol (KIP-848): sharing, taking over, moving from the classic one, static members, fencing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from barnabas.client.admin import AsyncAdmin
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.consumer.coordinator import RebalanceListener
from barnabas.client.errors import CommitFailedError
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import NewTopic, SubscriptionPattern
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.testing.embedded import EmbeddedBroker

TIME_S = 60.0


class Ledger(RebalanceListener):
    """Who has what, over all members of a test; two owners at once are an error."""

    def __init__(self, owners: dict[TopicPartition, str], name: str) -> None:
        self.owners = owners
        self.name = name
        self.lost: list[TopicPartition] = []
        self.moves = 0

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            assert partition not in self.owners, f"{partition} belongs to {self.owners[partition]}"
            self.owners[partition] = self.name
        self.moves += bool(partitions)

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            assert self.owners.pop(partition) == self.name
        self.moves += bool(partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.lost += partitions
        for partition in partitions:
            if self.owners.get(partition) == self.name:
                del self.owners[partition]


class Group:
    """Members driven side by side."""

    def __init__(self, servers: str) -> None:
        self.group_id = f"new-{uuid4().hex[:8]}"
        self.servers = servers
        self.owners: dict[TopicPartition, str] = {}
        self.members: dict[str, AsyncConsumer] = {}
        self.ledgers: dict[str, Ledger] = {}
        self.seen: list[bytes] = []

    def join(self, name: str, topics: Any, **settings: object) -> AsyncConsumer:
        given: dict[str, object] = {
            "bootstrap.servers": self.servers,
            "group.id": self.group_id,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "client.id": name,
        }
        keywords = {key.replace("_", "."): value for key, value in settings.items()}
        consumer = self.members[name] = AsyncConsumer({**given, **keywords})
        self.ledgers[name] = Ledger(self.owners, name)
        consumer.subscribe(topics, self.ledgers[name])
        return consumer

    async def drive(self, until: Callable[[], bool]) -> None:
        """Poll everybody until it is so."""

        async def step(consumer: AsyncConsumer) -> None:
            self.seen += [record.value for record in await consumer.poll(20)]

        async with asyncio.timeout(TIME_S):
            while not until():
                await asyncio.gather(*(step(consumer) for consumer in self.members.values()))

    def shares(self) -> list[int]:
        return sorted(len(consumer.assignment()) for consumer in self.members.values())

    async def close(self) -> None:
        for consumer in self.members.values():
            await consumer.close(leave=True)


@contextmanager
def closing_errors(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(KafkaError) as caught:
        yield
    assert caught.value.code is code


async def test_three_members_share_partitions_and_take_over(servers: str, topic: str) -> None:
    group = Group(servers)
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        for number in range(400):
            await producer.send(topic, b"%d" % number, partition=number % 4)
    try:
        group.join("a", [topic])
        await group.drive(lambda: group.shares() == [4])
        group.join("b", [topic], group_remote_assignor="uniform")
        await group.drive(lambda: group.shares() == [2, 2])
        group.join("c", [topic])
        await group.drive(lambda: group.shares() == [1, 1, 2])
        assert len(group.owners) == 4
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            described = (await admin.describe_groups([group.group_id]))[group.group_id]
            assert not isinstance(described, KafkaError)
            assert described.type == "consumer"
            members = {member.client_id: member.assignment for member in described.members}
        assert members == {name: consumer.assignment() for name, consumer in group.members.items()}
        await group.drive(lambda: len(set(group.seen)) == 400)
        await group.members["b"].commit()
        await group.members.pop("b").close()
        await group.drive(lambda: group.shares() == [2, 2])
        assert not any(ledger.lost for ledger in group.ledgers.values())
    finally:
        await group.close()
    assert group.owners == {}


async def test_group_migrates_from_the_classic_protocol_and_back(servers: str, topic: str) -> None:
    """A rolling upgrade, member by member, without an empty group in between (the broker speaks both)."""
    group = Group(servers)
    classic = {"group_protocol": "classic", "heartbeat_interval_ms": 100}
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    try:
        group.join("old-1", [topic], **classic, **strategy)
        group.join("old-2", [topic], **classic, **strategy)
        await group.drive(lambda: group.shares() == [2, 2])
        group.join("new-1", [topic])
        await group.drive(lambda: group.shares() == [1, 1, 2])
        await group.members.pop("old-1").close()
        await group.members.pop("old-2").close()
        await group.drive(lambda: group.shares() == [4])
        group.join("old-3", [topic], **classic, **strategy)
        await group.drive(lambda: group.shares() == [2, 2])
        await group.members.pop("new-1").close()
        await group.drive(lambda: group.shares() == [4])
    finally:
        await group.close()


async def test_static_members_keep_their_partitions_over_a_restart(servers: str, topic: str) -> None:
    group = Group(servers)
    try:
        group.join("a", [topic], group_instance_id="i-1")
        group.join("b", [topic], group_instance_id="i-2")
        await group.drive(lambda: group.shares() == [2, 2])
        before, moves = group.members["a"].assignment(), group.ledgers["b"].moves
        intruder = Group(servers)
        intruder.group_id = group.group_id
        intruder.join("thief", [topic], group_instance_id="i-1")
        with closing_errors(ErrorCode.UNRELEASED_INSTANCE_ID):
            await intruder.drive(lambda: False)
        with closing_errors(ErrorCode.UNRELEASED_INSTANCE_ID):
            await intruder.members["thief"].poll(10)
        await intruder.close()
        await group.members.pop("a").close()
        group.join("a", [topic], group_instance_id="i-1")
        await group.drive(lambda: group.shares() == [2, 2])
        assert group.members["a"].assignment() == before
        assert group.ledgers["b"].moves == moves
        await group.members.pop("a").close(leave=True)
        await group.drive(lambda: group.shares() == [4])
    finally:
        await group.close()


async def test_a_member_that_does_not_poll_leaves_and_comes_back(servers: str, topic: str) -> None:
    group = Group(servers)
    try:
        sleepy = group.join("sleepy", [topic], max_poll_interval_ms=500)
        await group.drive(lambda: group.shares() == [4])
        del group.members["sleepy"]
        group.join("awake", [topic])
        group.ledgers["awake"].owners = {}  # what sleepy has it has lost, and does not know it yet
        await group.drive(lambda: group.shares() == [4])
        with pytest.raises(CommitFailedError):
            await sleepy.commit({TopicPartition(topic, 0): 1})
        group.members["sleepy"] = sleepy
        group.ledgers["sleepy"].owners = group.ledgers["awake"].owners
        await group.drive(lambda: group.shares() == [2, 2])
        assert len(group.ledgers["sleepy"].lost) == 4
    finally:
        await group.close()


async def test_patterns_here_and_on_the_broker(servers: str, topic: str) -> None:
    group = Group(servers)
    try:
        group.join("here", re.compile(topic + r"(-\d+)?"), metadata_max_age_ms=200)
        group.join("there", SubscriptionPattern(topic + r"(-\d+)?"))
        await group.drive(lambda: group.shares() == [2, 2])
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            await admin.create_topics([NewTopic(f"{topic}-1", 2, 1)])
            await group.drive(lambda: len(group.owners) == 6)
            await admin.delete_topics([f"{topic}-1"])
        assert group.members["there"].subscription() >= {topic}
    finally:
        await group.close()
    with pytest.raises(ConfigError, match=r"group\.protocol=consumer"):
        group.join("classic", SubscriptionPattern("x"), group_protocol="classic")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_pattern_that_matches_nothing_at_first_finds_later_topics(protocol: str) -> None:
    with EmbeddedBroker() as broker:  # without any topic
        servers = broker.bootstrap_servers
        group = Group(servers)
        try:
            group.join("early", re.compile(r"later-\d+"), metadata_max_age_ms=200, group_protocol=protocol)
            await group.members["early"].poll(0)
            async with AsyncAdmin(bootstrap_servers=servers) as admin:
                await admin.create_topics([NewTopic("later-1", 2, 1)])
            await group.drive(lambda: group.shares() == [2])
        finally:
            await group.close()


async def test_a_wrong_assignor_and_a_wrong_pattern_say_so(servers: str, topic: str) -> None:
    for settings, topics, code in (
        ({"group_remote_assignor": "no-such"}, [topic], ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({}, SubscriptionPattern("(["), ErrorCode.INVALID_REGULAR_EXPRESSION),
    ):
        group = Group(servers)
        group.join("a", topics, **settings)
        with closing_errors(code):
            await group.drive(lambda: False)
        await group.close()
