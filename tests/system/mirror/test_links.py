"""A link between two clusters in one process: discovery, mirrors, group offsets, cut-over, failback and deletion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas.client import AsyncConsumer, AsyncProducer
from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.links import Link, MirrorAction
from barnabas.client.errors import DeliveryFailedError
from barnabas.client.links import cutover
from barnabas.client.links.drill import drill
from barnabas.client.links.verifying import verify
from barnabas.client.values import LATEST, ConfigResource, IsolationLevel, NewTopic, OffsetAndTimestamp
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.testing.embedded import AsyncEmbeddedBroker

pytestmark = pytest.mark.system
T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
QUICK = {"mirror.metadata.refresh.interval.ms": "200"}
DEADLINE_S = 20.0


class Side(AsyncAdmin):
    """An admin client that knows its broker."""

    def __init__(self, broker: AsyncEmbeddedBroker) -> None:
        super().__init__(bootstrap_servers=broker.bootstrap_servers)
        self.broker = broker
        self.servers = broker.bootstrap_servers

    def tails(self) -> dict[str, list[bytes]]:
        """The values of the records in each file that was saved before a truncation."""
        found = {}
        for path in sorted(Path(self.broker.data_dir).rglob("*.mirror-tail-*.log")):
            data = path.read_bytes()
            batches = iter_batches(data)
            found[path.name] = [r.value or b"" for at, header in batches for r in iter_records(data, at, header)]
        return found


@asynccontextmanager
async def two_clusters() -> AsyncIterator[tuple[Side, Side]]:
    """Admin clients of the source and of the mirror."""
    async with (
        AsyncEmbeddedBroker() as source,
        AsyncEmbeddedBroker() as mirror,
        Side(source) as theirs,
        Side(mirror) as ours,
    ):
        yield theirs, ours


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await holds():
            await asyncio.sleep(0.02)  # the interval of a poll, not a time that must be enough


async def write(admin: Side, count: int, text: str) -> None:
    async with AsyncProducer(bootstrap_servers=admin.servers) as producer:
        for number in range(count):
            await producer.send("orders", value=f"{text}-{number}".encode(), partition=number % 2)
        await producer.flush()


async def caught_up(admin: Side, total: int) -> bool:
    statuses = await admin.describe_mirrors()
    return (
        len(statuses) == 2
        and all(s.lag == 0 for s in statuses)
        and sum(s.source_high_watermark for s in statuses) == total
    )


def test_a_link_mirrors_fails_over_and_back() -> None:
    async def scenario() -> None:
        async with two_clusters() as (theirs, ours):
            await theirs.create_topics([NewTopic("orders", 2, 1, configs={"retention.ms": "123456789"})])
            await write(theirs, 100, "first")
            await theirs.alter_group_offsets("readers", {T0: 10, T1: 20})
            link = Link("paris", theirs.servers, topics=("ord.*",), groups=("read.*",), settings=QUICK)
            assert (await ours.create_link(link, validate_only=True)).source_cluster_id
            assert not await ours.describe_links()
            await ours.create_link(link)
            await until(lambda: caught_up(ours, 100))
            await check_what_was_copied(theirs, ours)
            await check_refusals(ours)
            await write(theirs, 50, "second")
            changes = await cutover.promote(ours, "paris", (), timeout_s=DEADLINE_S, progress=lambda _: None)
            assert [(c.topic, c.state, c.error) for c in changes] == [("orders", "stopping", None)]
            await write(ours, 10, "after")
            positions = {m.partition: m.offset for m in (await ours.describe_links())["paris"].mirrors}
            assert positions == {0: 75, 1: 75}
            await check_failback(theirs, ours)
            assert (await ours.delete_link("paris")).name == "paris"
            assert not await ours.describe_links()
            orders = ConfigResource.topic("orders")
            configs = (await ours.describe_configs([orders]))[orders]
            assert "mirror.name" not in configs and "mirror.state" not in configs, "an ordinary topic again"

    asyncio.run(scenario())


async def check_what_was_copied(theirs: Side, ours: Side) -> None:
    there, here = [(await admin.describe_topics(["orders"]))["orders"] for admin in (theirs, ours)]
    assert not isinstance(there, KafkaError) and not isinstance(here, KafkaError)
    assert here.topic_id == there.topic_id
    found = [one async for one in verify(theirs, ours, [T0, T1])]
    assert [(one.start, one.end, one.is_equal) for one in found] == [(0, 50, True), (0, 50, True)]
    orders = ConfigResource.topic("orders")
    configs = (await ours.describe_configs([orders]))[orders]
    assert not isinstance(configs, KafkaError)
    assert configs["retention.ms"].value == "123456789"

    async def has_offsets() -> bool:
        offsets = await ours.list_group_offsets("readers")
        return {tp: getattr(o, "offset", o) for tp, o in offsets.items()} == {T0: 10, T1: 20}

    await until(has_offsets)
    report = await drill(ours, theirs, "paris", ())
    assert (report.lost_records, report.problems) == (0, ())
    assert {(g.group_id, g.here, g.behind) for g in report.groups} == {("readers", 10, 0), ("readers", 20, 0)}


async def check_refusals(ours: Side) -> None:
    with pytest.raises(DeliveryFailedError, match="is a mirror"):
        await write(ours, 1, "too early")
    for call in (
        ours.delete_link("paris"),
        ours.create_link(Link("paris", ours.servers)),
        ours.alter_link(Link("absent", "127.0.0.1:1")),
        ours.alter_mirrors("absent", MirrorAction.PAUSE),
    ):
        with pytest.raises(KafkaError):
            await call
    orders = ConfigResource.topic("orders")
    refused = await ours.alter_configs({orders: {"mirror.state": "stopped"}})
    error = refused[orders]
    assert isinstance(error, KafkaError) and error.code is ErrorCode.INVALID_CONFIG
    (missing,) = await ours.alter_mirrors("paris", MirrorAction.PAUSE, ["absent"])
    assert missing.error is not None and missing.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def check_failback(theirs: Side, ours: Side) -> None:
    """The former source, which has acknowledged records that were never mirrored, becomes the mirror. Its brokers save
    these records to files."""
    await write(theirs, 6, "lost")
    back = Link("back", ours.servers, settings=QUICK)
    assert [c.state for c in await cutover.reverse(ours, theirs, "paris", back, (), validate_only=True)] == ["active"]
    assert not theirs.tails()
    with pytest.raises(KafkaError, match="Not stopped, or not of link paris: absent"):
        await cutover.reverse(ours, theirs, "paris", back, ["absent"])
    (started,) = await cutover.reverse(ours, theirs, "paris", back, ["ord.*"])
    assert started.error is None
    await until(lambda: caught_up(theirs, 160))
    found = [one async for one in verify(ours, theirs, [T0, T1])]
    assert [(one.end, one.is_equal, one.missing) for one in found] == [(80, True, 0), (80, True, 0)]
    assert theirs.tails() == {
        "00000000000000000075.mirror-tail-orders-0-78.log": [b"lost-0", b"lost-2", b"lost-4"],
        "00000000000000000075.mirror-tail-orders-1-78.log": [b"lost-1", b"lost-3", b"lost-5"],
    }
    described = (await theirs.describe_links(["back"]))["back"].link
    assert (described.topics, described.groups) == (("ord.*",), ("read.*",))


def test_a_failover_needs_no_source_and_leaves_no_transaction_open() -> None:
    async def scenario() -> None:
        async with two_clusters() as (theirs, ours):
            await theirs.create_topics([NewTopic("orders", 2, 1)])
            await ours.create_link(Link("paris", theirs.servers, topics=("orders",), settings=QUICK))
            async with AsyncProducer(bootstrap_servers=theirs.servers, transactional_id="t") as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                for partition in (0, 1):
                    await producer.send_and_wait("orders", value=b"open", partition=partition)
                await until(lambda: caught_up(ours, 2))
                assert await ends(ours, IsolationLevel.READ_COMMITTED) == [0, 0]
                await ours.alter_mirrors("paris", MirrorAction.PAUSE)
                await until(lambda: all_are(ours, "PAUSED"))
                await producer.abort_transaction()  # its marker is not mirrored
            await theirs.broker.stop()
            await cutover.failover(ours, "paris", (), timeout_s=DEADLINE_S)
            assert await ends(ours, IsolationLevel.READ_COMMITTED) == [2, 2]  # the record, and its abort marker
            await write(ours, 2, "after")
            assert await ends(ours, IsolationLevel.READ_COMMITTED) == [3, 3]

    asyncio.run(scenario())


async def ends(admin: Side, isolation: IsolationLevel) -> list[int]:
    found = await admin.list_offsets({T0: LATEST, T1: LATEST}, isolation=isolation)
    return [offset.offset for offset in found.values() if isinstance(offset, OffsetAndTimestamp)]


def test_offsets_of_a_group_are_bounded_and_never_moved_under_its_members() -> None:
    async def scenario() -> None:
        async with two_clusters() as (theirs, ours):
            await theirs.create_topics([NewTopic("orders", 2, 1)])
            await write(theirs, 20, "first")
            groups = ("busy", "idle", "late")
            for group in groups:
                await theirs.alter_group_offsets(group, {T0: 4})
            link = Link("paris", theirs.servers, topics=("orders",), groups=(".*",), settings=QUICK)
            await ours.create_link(link)
            await until(lambda: all_have(ours, dict.fromkeys(groups, 4)))
            settings = {"bootstrap.servers": ours.servers, "group.id": "busy", "enable.auto.commit": False}
            async with AsyncConsumer(settings) as consumer:
                consumer.subscribe(["orders"])
                await anext(aiter(consumer))  # now the group has a member
                await ours.alter_mirrors("paris", MirrorAction.PAUSE)
                await until(lambda: all_are(ours, "PAUSED"))
                await write(theirs, 20, "not mirrored")
                await theirs.alter_group_offsets("late", {T0: 15})
                await theirs.alter_group_offsets("idle", {T0: 2})
                await theirs.alter_group_offsets("busy", {T0: 2})
                await until(lambda: all_have(ours, {"late": 10, "idle": 2}))
                assert await all_have(ours, {"busy": 4})
                assert not (await ours.describe_links(["paris"]))["paris"].trouble

    asyncio.run(scenario())


async def all_have(admin: Side, wanted: dict[str, int]) -> bool:
    """Whether groups have these offsets of the first partition."""
    found = {group: (await admin.list_group_offsets(group)).get(T0) for group in wanted}
    return {group: getattr(offset, "offset", None) for group, offset in found.items()} == wanted


def test_a_paused_mirror_continues_where_it_was() -> None:
    async def scenario() -> None:
        async with two_clusters() as (theirs, ours):
            await theirs.create_topics([NewTopic("orders", 2, 1)])
            await ours.create_link(Link("paris", theirs.servers, topics=("orders",), settings=QUICK))
            await until(lambda: caught_up(ours, 0))
            await ours.alter_mirrors("paris", MirrorAction.PAUSE)
            await until(lambda: all_are(ours, "PAUSED"))
            await write(theirs, 20, "while paused")
            await ours.alter_mirrors("paris", MirrorAction.RECOVER)
            await until(lambda: caught_up(ours, 20))
            await theirs.create_partitions({"orders": 3})
            await until(lambda: has_partitions(ours, 3))

    asyncio.run(scenario())


async def all_are(admin: Side, state: str) -> bool:
    mirrors = (await admin.describe_links())["paris"].mirrors
    return len(mirrors) == 2 and all(mirror.state == state for mirror in mirrors)


async def has_partitions(admin: Side, count: int) -> bool:
    statuses = await admin.describe_mirrors()
    return len(statuses) == count and all(status.state == "MIRRORING" for status in statuses)


@pytest.mark.parametrize("count", [6, 40])
def test_another_topic_of_the_name_is_not_mirrored_into_the_old_one(count: int) -> None:
    """The new topic of the source is shorter, or longer, than the mirror of the old one."""

    async def scenario() -> None:
        async with two_clusters() as (theirs, ours):
            await theirs.create_topics([NewTopic("orders", 2, 1)])
            await write(theirs, 20, "old")
            await ours.create_link(Link("paris", theirs.servers, topics=("orders",), settings=QUICK))
            await until(lambda: caught_up(ours, 20))
            (old,) = await theirs.list_topics()
            await theirs.delete_topics(["orders"])
            await theirs.create_topics([NewTopic("orders", 2, 1)])
            await write(theirs, count, "new")
            (new,) = await theirs.list_topics()
            await until(lambda: all_are(ours, "FAILED"))
            for status in await ours.describe_mirrors(["all"]):
                assert f"its id was {old.topic_id} and is {new.topic_id}" in status.reason
            assert await ends(ours, IsolationLevel.READ_UNCOMMITTED) == [10, 10]
            await ours.delete_topics(["orders"])
            await until(lambda: caught_up(ours, count))
            found = [one async for one in verify(theirs, ours, [T0, T1])]
            assert [(one.end, one.is_equal, one.missing) for one in found] == [(count // 2, True, 0)] * 2

    asyncio.run(scenario())


def test_a_source_that_is_out_of_reach_or_this_cluster_itself_is_refused() -> None:
    async def scenario() -> None:
        async with AsyncEmbeddedBroker() as broker, Side(broker) as admin:
            with pytest.raises(KafkaError, match="this cluster itself"):
                await admin.create_link(Link("self", admin.servers))
            with pytest.raises(KafkaError, match=r"bootstrap\.servers"):
                await admin.create_link(Link("bad", "nowhere"))
            with pytest.raises(KafkaError, match="not a valid regular expression"):
                await admin.create_link(Link("bad", admin.servers, topics=("(",)))

    asyncio.run(scenario())
