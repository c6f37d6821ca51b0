"""What a link copies besides records, between clusters of processes: offsets of share groups, and ACLs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas.client import AsyncAdmin, AsyncProducer
from barnabas.client.admin.links import Link, MirrorAction
from barnabas.client.admin.share_groups import ShareOffset, alter_share_group_offsets, list_share_group_offsets
from barnabas.client.links.drill import drill
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.client.values import ConfigResource, NewTopic
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.security.acls import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from barnabas.protocol.security.operations import AclOperation
from barnabas.testing.process import BrokerProcess
from barnabas.testing.process_cluster import ClusterProcess
from tests.system.mirror.secure_links import until

pytestmark = pytest.mark.system
SECURED = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
    "offsets.topic.num.partitions=2",
    "share.coordinator.state.topic.num.partitions=2",
    "mirror.state.topic.num.partitions=2",
)
QUICK = {"mirror.metadata.refresh.interval.ms": "200"}
QUEUE = TopicPartition("queue", 0)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of the source, and of a cluster of two brokers with the mirrors."""
    folder: Path = tmp_path_factory.mktemp("links")
    with (
        BrokerProcess(folder / "source", settings=SECURED) as source,
        ClusterProcess(folder / "mirror", brokers=2, settings=SECURED) as mirror,
    ):
        yield source.bootstrap_servers, mirror.bootstrap_servers


@asynccontextmanager
async def admins(servers: tuple[str, str]) -> AsyncIterator[tuple[AsyncAdmin, AsyncAdmin]]:
    async with AsyncAdmin(bootstrap_servers=servers[0]) as theirs, AsyncAdmin(bootstrap_servers=servers[1]) as ours:
        yield theirs, ours


async def start_of(admin: AsyncAdmin, group: str) -> int | None:
    """The offset below which a share group has acknowledged everything; None if the group has no state."""
    deadline = asyncio.get_running_loop().time() + 30
    try:
        found = (await list_share_group_offsets(admin.cluster, group, deadline=deadline)).get(QUEUE)
    except KafkaError:
        return None
    return found.start_offset if isinstance(found, ShareOffset) else None


async def move(admin: AsyncAdmin, group: str, offset: int) -> None:
    deadline = asyncio.get_running_loop().time() + 30
    errors = await alter_share_group_offsets(admin.cluster, group, {QUEUE: offset}, deadline=deadline)
    assert errors == {QUEUE: None}


async def write(servers: str, count: int) -> None:
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        for number in range(count):
            await producer.send("queue", str(number).encode(), partition=0)
        await producer.flush()


@pytest.mark.timeout(180)
def test_share_groups_go_on_at_their_offsets_bounded_and_never_under_members(servers: tuple[str, str]) -> None:
    async def scenario() -> None:
        async with admins(servers) as (theirs, ours):
            await theirs.create_topics([NewTopic("queue", 1, 1)])
            await write(servers[0], 20)
            for group in ("busy", "idle", "late"):
                await move(theirs, group, 5)
            link = Link("shares", servers[0], topics=("queue",), groups=("busy", "idle", "late"), settings=QUICK)
            await ours.create_link(link)
            await until(lambda: all_start(ours, busy=5, idle=5, late=5), "the offsets are copied")
            moves = (await drill(ours, theirs, "shares", ())).groups
            assert {(move.group_id, move.on_source, move.here) for move in moves} == {
                (group, 5, 5) for group in ("busy", "idle", "late")
            }
            async with AsyncShareConsumer(bootstrap_servers=servers[1], group_id="busy") as member:
                member.subscribe(["queue"])
                first = await member.poll(30_000)
                assert [record.offset for record in first][:1] == [5]
                await ours.alter_mirrors("shares", MirrorAction.PAUSE)
                await until(lambda: is_paused(ours), "the mirror is paused")
                await write(servers[0], 20)
                await move(theirs, "late", 33)
                await move(theirs, "idle", 2)
                await move(theirs, "busy", 2)
                await until(lambda: all_start(ours, idle=2, late=20), "offsets follow, up to the end that is here")
                assert (await start_of(ours, "busy") or 0) >= 5
                assert not (await ours.describe_links(["shares"]))["shares"].trouble
            await ours.alter_mirrors("shares", MirrorAction.RESUME)
            await until(lambda: all_start(ours, busy=2, idle=2, late=33), "the group without members follows, too")

    asyncio.run(scenario())


async def all_start(admin: AsyncAdmin, **wanted: int) -> bool:
    return {group: await start_of(admin, group) for group in wanted} == wanted


async def is_paused(admin: AsyncAdmin) -> bool:
    return [mirror.state for mirror in (await admin.describe_links(["shares"]))["shares"].mirrors] == ["PAUSED"]


def acl(principal: str, name: str, pattern: PatternType = PatternType.LITERAL) -> AclBinding:
    return AclBinding(AclResourceType.TOPIC, name, pattern, principal, "*", AclOperation.READ, AclPermissionType.ALLOW)


@pytest.mark.timeout(180)
def test_acls_that_a_rule_selects_are_added_and_never_removed(servers: tuple[str, str]) -> None:
    literal, prefixed = acl("User:alice", "orders"), acl("User:alice", "order", PatternType.PREFIXED)
    other, late, own = acl("User:bob", "orders"), acl("User:alice", "payments"), acl("User:carol", "orders")

    async def scenario() -> None:
        async with admins(servers) as (theirs, ours):
            assert set((await theirs.create_acls([literal, prefixed, other])).values()) == {None}
            assert set((await ours.create_acls([own])).values()) == {None}
            rules = ("topic;order*;read;allow;User:alice", "topic;payments;*;*;User:a*")
            with pytest.raises(KafkaError, match="is no ACL rule"):
                await ours.create_link(Link("acls", servers[0], acls=("topic;orders",), settings=QUICK))
            await ours.create_link(Link("acls", servers[0], acls=rules, settings=QUICK))
            await until(lambda: has(ours, {own, literal, prefixed}), "the selected ACLs are here")
            await theirs.delete_acls([AclBindingFilter(resource_name="orders", principal="User:alice")])
            await theirs.create_acls([late])
            await until(lambda: has(ours, {own, literal, prefixed, late}), "a new one follows, a deleted one stays")

    asyncio.run(scenario())


async def has(admin: AsyncAdmin, wanted: set[AclBinding]) -> bool:
    return set(await admin.describe_acls()) == wanted


@pytest.mark.timeout(180)
def test_a_source_without_an_authorizer_has_no_acls_to_copy(servers: tuple[str, str], tmp_path: Path) -> None:
    async def scenario(source: str) -> None:
        async with AsyncAdmin(bootstrap_servers=servers[1]) as ours, AsyncAdmin(bootstrap_servers=source) as theirs:
            await theirs.create_topics([NewTopic("plain", 1, 1)])
            await ours.create_link(Link("open", source, topics=("plain",), acls=("*;*;*;*;*",), settings=QUICK))
            await until(lambda: is_mirrored(ours), "the topic is mirrored")
            assert not (await ours.describe_links(["open"]))["open"].trouble
            config = ConfigResource.topic("plain")
            assert not isinstance((await ours.describe_configs([config]))[config], KafkaError)

    with BrokerProcess(tmp_path / "open") as source:
        asyncio.run(scenario(source.bootstrap_servers))


async def is_mirrored(admin: AsyncAdmin) -> bool:
    return [status.state for status in await admin.describe_mirrors(["open"])] == ["MIRRORING"]
