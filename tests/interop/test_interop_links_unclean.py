"""A link from a cluster of Apache Kafka with an unclean leader election: the mirror says so, and follows if it may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from barnabas.client import AsyncAdmin, AsyncProducer
from barnabas.client.admin.links import Link, MirrorStatus
from barnabas.client.links.verifying import verify
from barnabas.client.values import ConfigResource, NewTopic
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.testing.process import BrokerProcess
from tests.interop.jars import KAFKA_VERSION, OLDER_VERSION
from tests.interop.mixed_cluster import MixedCluster

pytestmark = pytest.mark.interop

T: Final = TopicPartition("t", 0)
OFTEN: Final = {"mirror.metadata.refresh.interval.ms": "300", "mirror.request.timeout.ms": "3000"}
UNCLEAN: Final = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
PATIENCE_S: Final = 120.0


class Run:
    """Broker 1 is the controller; the topic is on the brokers 2 and 3."""

    def __init__(self, cluster: MixedCluster, mirror: BrokerProcess, ours: AsyncAdmin, theirs: AsyncAdmin) -> None:
        self.cluster, self.mirror, self.ours, self.theirs = cluster, mirror, ours, theirs

    async def run(self) -> None:
        created = await self.theirs.create_topics([NewTopic("t", replica_assignment={0: [2, 3]}, configs=UNCLEAN)])
        assert not any(isinstance(topic, KafkaError) for topic in created.values())
        await self._write("kept", 50)
        await asyncio.to_thread(self.cluster.wait_in_sync, "t", (2, 3))
        link = Link("paris", self.cluster.bootstrap, topics=("t",), settings=OFTEN)
        await self.ours.create_link(link)
        await self._until(lambda s: s.state == "MIRRORING" and s.source_high_watermark == 50 and s.lag == 0)
        await asyncio.to_thread(self.cluster[3].stop)
        await self._write("lost", 30)
        await self._until(lambda s: s.source_high_watermark == 80 and s.lag == 0)
        await asyncio.to_thread(self.cluster[2].kill)
        await asyncio.to_thread(self.cluster[3].start, "kafka")  # it has never had the last 30 records, and leads
        await self._write("new", 10)
        await self._until(
            lambda s: s.state == "FAILED" and "from offset 50 on by an unclean leader election" in s.reason
        )
        allowed = {ConfigResource.topic("t"): {"mirror.support.unclean.leader.election": "true"}}
        assert not any((await self.ours.alter_configs(allowed)).values())
        await self._until(lambda s: s.state == "MIRRORING" and s.source_high_watermark == 60 and s.lag == 0)
        (compared,) = [one async for one in verify(self.theirs, self.ours, [T])]
        assert (compared.is_equal, compared.end, compared.missing) == (True, 60, 0), compared
        (tail,) = Path(self.mirror.data_dir).rglob("*.mirror-tail-t-0-80.log")
        data = tail.read_bytes()
        saved = [r.value for at, header in iter_batches(data) for r in iter_records(data, at, header)]
        assert saved == [b"lost %d" % number for number in range(30)]

    async def _write(self, text: str, count: int) -> None:
        async with AsyncProducer(bootstrap_servers=self.cluster.bootstrap) as producer:
            for number in range(count):
                await producer.send("t", f"{text} {number}".encode(), partition=0)
            await producer.flush()

    async def _until(self, holds: Callable[[MirrorStatus], bool]) -> None:
        seen: list[MirrorStatus] = []

        async def is_so() -> bool:
            seen[:] = await self.ours.describe_mirrors(["paris"])
            return len(seen) == 1 and holds(seen[0])

        await until(is_so, lambda: str(seen))


async def until(condition: Callable[[], Awaitable[bool]], seen: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await condition():
        assert time.monotonic() < deadline, seen()
        await asyncio.sleep(0.1)  # the cluster cannot notify the test


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", [KAFKA_VERSION, OLDER_VERSION])
def test_a_mirror_follows_an_unclean_election_of_kafka(tmp_path: Path, version: str) -> None:
    async def scenario(cluster: MixedCluster, mirror: BrokerProcess) -> None:
        async with (
            AsyncAdmin(bootstrap_servers=mirror.bootstrap_servers) as ours,
            AsyncAdmin(bootstrap_servers=cluster.bootstrap) as theirs,
        ):
            await Run(cluster, mirror, ours, theirs).run()

    roles = {1: "broker,controller", 2: "broker", 3: "broker"}
    with (
        MixedCluster(tmp_path / "source", roles, version=version) as cluster,
        BrokerProcess(tmp_path / "mirror") as mirror,
    ):
        cluster.start(dict.fromkeys(roles, "kafka"))
        asyncio.run(scenario(cluster, mirror))
