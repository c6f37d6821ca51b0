"""Links from Apache Kafka and from Barnabas: every kind of topic arrives byte for byte, at the same offsets.

One source has all of them: each codec, headers and null keys, transactions (committed, aborted, open at the cut-over),
a compacted log with holes and tombstones, LogAppendTime. The link begins late; partitions are added, the source gets a
new leader epoch, and a topic is created again. Then the mirrors are cut over, and `kafka-dump-log` reads them.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Where

from barnabas.client import AsyncAdmin
from barnabas.client.admin.links import Link
from barnabas.client.admin.share_groups import ShareOffset, alter_share_group_offsets, list_share_group_offsets
from barnabas.client.links import cutover
from barnabas.client.links.verifying import verify
from barnabas.client.values import NewTopic
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.testing.process import BrokerProcess
from tests.interop.apache_kafka import ApacheKafka, ZooKeeperKafka
from tests.interop.jars import FIRST_KRAFT_VERSION, KAFKA_VERSION, OLDER_VERSION, OLDEST_VERSION, kafka_classpath
from tests.interop.test_interop_dump_log import complaints

pytestmark = pytest.mark.interop

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
OFTEN: Final = {"mirror.metadata.refresh.interval.ms": "300", "mirror.fetch.wait.max.ms": "300"}
CLEANING: Final = ("log.cleaner.backoff.ms=100", "log.initial.task.delay.ms=100", "log.cleaner.min.compaction.lag.ms=0")
TOPICS: Final[dict[str, dict[str, str]]] = {
    **{f"plain-{codec}": {} for codec in CODECS},
    "transactions": {},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "growing": {},
    "again": {},
}
NOW_MS: Final = int(time.time() * 1000)
PATIENCE_S: Final = 120.0


class Source(Protocol):
    bootstrap: str

    def start(self) -> None: ...

    def stop(self) -> object: ...


class OurSource:
    """A broker of ours, as a source."""

    def __init__(self, folder: Path) -> None:
        self._process = BrokerProcess(folder / "source", settings=CLEANING)

    @property
    def bootstrap(self) -> str:
        return self._process.bootstrap_servers

    def start(self) -> None:
        self._process.start()

    def stop(self) -> object:
        return self._process.stop()

    close = stop


@pytest.fixture(
    params=[
        "barnabas",
        KAFKA_VERSION,
        *(pytest.param(old, marks=pytest.mark.slow) for old in (OLDER_VERSION, FIRST_KRAFT_VERSION, OLDEST_VERSION)),
    ],
    ids=lambda name: name if name == "barnabas" else f"kafka-{name}",
)
def version(request: pytest.FixtureRequest) -> str:
    """The version of Apache Kafka that is the source, or our name."""
    return str(request.param)


@pytest.fixture
def source(version: str, tmp_path: Path) -> Iterator[Source]:
    found: Any
    if version == "barnabas":
        found = OurSource(tmp_path)
    elif version == OLDEST_VERSION:
        found = ZooKeeperKafka(tmp_path, CLEANING, version=version)
    else:
        found = ApacheKafka(tmp_path, CLEANING, version=version)
    found.start()
    try:
        yield found
    finally:
        found.close()


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await condition():
        assert time.monotonic() < deadline, f"waiting until {what}"
        await asyncio.sleep(0.1)  # the clusters cannot notify the test


# -- what is written --------------------------------------------------------------------------------------------------


def write(servers: str, topic: str, count: int, *, partition: int = 0, codec: str = "none", keys: int = 0) -> None:
    """Records with headers; every third key, header value and seventh value is null."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": True})
    for number in range(count):
        key = f"k{number % keys}" if keys else None if number % 3 == 0 else f"k{number}"
        producer.produce(
            topic,
            None if number % 7 == 6 else f"{topic} {number} " + "x" * (number % 90),
            key,
            partition=partition,
            timestamp=int(time.time() * 1000) if keys else NOW_MS - 60_000 + number,  # segments roll by timestamps
            headers=[("h", str(number)), ("null", None if number % 3 else b"v")],
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert not failures


def transact(servers: str, name: str, count: int, *, commits: bool | None) -> Producer:
    """Write in a transaction, which stays open if `commits` is None."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": 120_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(count):
        producer.produce("transactions", f"{name} {number}", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    if commits is not None:
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    return producer


def write_all(servers: str) -> None:
    for codec in CODECS:
        write(servers, f"plain-{codec}", 200, codec=codec)
    write(servers, "append-time", 50, codec="lz4")
    write(servers, "growing", 20)
    write(servers, "again", 5)
    transact(servers, "first", 10, commits=True)
    transact(servers, "second", 10, commits=False)
    transact(servers, "third", 10, commits=True)
    for _ in range(5):
        write(servers, "compacted", 100, keys=10)
        time.sleep(0.15)  # longer than segment.ms, so that the log rolls and its cleaner has work


def values(servers: str, topic: str, isolation: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
    """The offsets and values of a partition, up to its end now."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.metrics.push": False,
        }
    )
    consumer.assign([Where(topic, partition, 0)])
    found: list[tuple[int, bytes | None]] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(500, 1.0):
                if message.error() is not None:
                    return found  # the end
                found.append((message.offset() or 0, message.value()))
    finally:
        consumer.close()
    raise TimeoutError(f"the end of {topic} was not reached")


# -- the test ---------------------------------------------------------------------------------------------------------


class Mirroring:
    def __init__(self, source: Source, mirror: str, ours: AsyncAdmin, theirs: AsyncAdmin) -> None:
        self.source, self.mirror, self.ours, self.theirs = source, mirror, ours, theirs
        self.ends: dict[TopicPartition, int] = {}

    async def run(self, *, has_shares: bool, has_ids: bool) -> None:
        """`has_shares` and `has_ids`: whether the source has share groups and ids of topics."""
        created = await self.theirs.create_topics([NewTopic(name, 1, 1, configs=c) for name, c in TOPICS.items()])
        assert not any(isinstance(topic, KafkaError) for topic in created.values())
        await asyncio.to_thread(write_all, self.source.bootstrap)
        await until(self._is_compacted, "the source has compacted a log")
        await self.theirs.alter_group_offsets("billing", {TopicPartition("plain-none", 0): 120})
        if has_shares:
            await self._move_share_group(50)
        link = Link("all", self.source.bootstrap, topics=(".*",), groups=("billing", "sharers"), settings=OFTEN)
        await self.ours.create_link(link)
        await self._equal(len(TOPICS), "the late mirrors")
        await self._grow_and_restart()
        if has_ids:
            await self._recreate()
        await until(lambda: self._has_groups(has_shares=has_shares), "the groups' offsets are copied")
        await self._cut_over()

    async def _is_compacted(self) -> bool:
        return len(await asyncio.to_thread(values, self.source.bootstrap, "compacted", "read_uncommitted")) < 400

    async def _move_share_group(self, offset: int) -> None:
        deadline = asyncio.get_running_loop().time() + 60
        where = {TopicPartition("plain-none", 0): offset}
        found = await alter_share_group_offsets(self.theirs.cluster, "sharers", where, deadline=deadline)
        assert set(found.values()) == {None}

    async def _has_groups(self, *, has_shares: bool) -> bool:
        tp = TopicPartition("plain-none", 0)
        found = (await self.ours.list_group_offsets("billing")).get(tp)
        if getattr(found, "offset", None) != 120 or not has_shares:
            return getattr(found, "offset", None) == 120
        try:
            deadline = asyncio.get_running_loop().time() + 60
            shared = await list_share_group_offsets(self.ours.cluster, "sharers", deadline=deadline)
        except KafkaError:
            return False
        start = shared.get(tp)
        return isinstance(start, ShareOffset) and start.start_offset == 50

    async def _equal(self, partitions: int, what: str) -> None:
        """Wait until the mirrors have everything, and compare both sides byte for byte."""

        async def is_level() -> bool:
            statuses = await self.ours.describe_mirrors(["all"])
            return len(statuses) == partitions and all(s.state == "MIRRORING" and s.lag == 0 for s in statuses)

        async def is_equal() -> bool:
            tps = sorted(status.partition for status in await self.ours.describe_mirrors(["all"]))
            compared = [one async for one in verify(self.theirs, self.ours, tps)]
            assert all(not one.error for one in compared), compared
            # a log that the source compacts meanwhile has other batches, with the same records
            differ = [one.partition for one in compared if not one.is_equal]
            assert all(tp.topic == "compacted" for tp in differ), compared
            return all(one.missing == 0 for one in compared)

        await until(is_level, f"{what} have everything")
        await until(is_equal, f"{what} are equal")

    async def _grow_and_restart(self) -> None:
        await self.theirs.create_partitions({"growing": 3})
        await asyncio.to_thread(self.source.stop)
        await asyncio.to_thread(self.source.start)  # its partitions have a later leader epoch now
        for partition in range(3):
            await asyncio.to_thread(write, self.source.bootstrap, "growing", 30, partition=partition)
        await asyncio.to_thread(write, self.source.bootstrap, "plain-zstd", 30, codec="zstd")
        await self._equal(len(TOPICS) + 2, "grown mirrors of a restarted source")

    async def _recreate(self) -> None:
        await self.theirs.delete_topics(["again"])

        async def is_created() -> bool:
            created = await self.theirs.create_topics([NewTopic("again", 1, 1)])
            return not isinstance(created["again"], KafkaError)

        await until(is_created, "a topic is created again")
        await asyncio.to_thread(write, self.source.bootstrap, "again", 9)

        async def is_noticed() -> bool:
            found = [s for s in await self.ours.describe_mirrors(["all"]) if s.partition.topic == "again"]
            return [(s.state, "created again" in s.reason) for s in found] == [("FAILED", True)]

        await until(is_noticed, "the link notices that a topic was created again")
        assert len(await asyncio.to_thread(values, self.mirror, "again", "read_uncommitted")) == 5

    async def _cut_over(self) -> None:
        """One transaction is open on the source."""
        source, mirror = self.source.bootstrap, self.mirror
        opened = await asyncio.to_thread(transact, source, "fourth", 10, commits=None)
        there = {
            name: await asyncio.to_thread(values, source, name, "read_committed") for name in TOPICS if name != "again"
        }
        total = await asyncio.to_thread(values, source, "transactions", "read_uncommitted")

        async def has_all() -> bool:
            return len(await asyncio.to_thread(values, mirror, "transactions", "read_uncommitted")) == len(total)

        await until(has_all, "the open transaction is mirrored")
        await cutover.failover(self.ours, "all", (), timeout_s=60)
        await asyncio.to_thread(write, mirror, "transactions", 3)  # read_committed goes on behind the open transaction
        for name, expected in there.items():
            found = await asyncio.to_thread(values, mirror, name, "read_committed")
            if name == "transactions":
                assert len(found) == len(expected) + 3
                found = found[:-3]
            if name == "compacted":  # the source may have cleaned more of it since
                found, expected = [], [] if {*expected} <= {*found} else expected
            assert found == expected, name
        await asyncio.to_thread(opened.abort_transaction, 30)


@pytest.mark.timeout(600)
def test_every_kind_of_topic_is_mirrored_and_cut_over(source: Source, version: str, tmp_path: Path) -> None:
    async def scenario(mirror: str) -> None:
        async with (
            AsyncAdmin(bootstrap_servers=mirror) as ours,
            AsyncAdmin(bootstrap_servers=source.bootstrap) as theirs,
        ):
            mirroring = Mirroring(source, mirror, ours, theirs)
            await mirroring.run(has_shares=version in ("barnabas", KAFKA_VERSION), has_ids=version != OLDEST_VERSION)

    data = tmp_path / "mirror"
    with BrokerProcess(data) as mirror:
        asyncio.run(scenario(mirror.bootstrap_servers))
    files = sorted(str(path) for name in TOPICS for path in data.glob(f"{name}-[0-9]/*.log"))
    assert len(files) >= len(TOPICS)
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", kafka_classpath(), "org.apache.kafka.tools.DumpLogSegments"]
    done = subprocess.run(
        [*command, "--deep-iteration", "--files", ",".join(files)],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    assert complaints(done.stdout) == []
    assert done.stdout.count("endTxnMarker: ABORT") == 2, "of the aborted transaction, and of the one that was open"
    assert done.stdout.count("endTxnMarker: COMMIT") == 2
    assert {name for name in CODECS if f"compresscodec: {name}" in done.stdout} == set(CODECS)
    assert "isvalid: false" not in done.stdout
