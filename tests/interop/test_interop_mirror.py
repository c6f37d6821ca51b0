"""Kafka's own classes of MirrorMaker 2 beside ours: bytes, translation, and RemoteClusterUtils on our topics."""

from __future__ import annotations

import asyncio
import random
import subprocess
from pathlib import Path

import pytest

from barnabas.client import AsyncAdmin
from barnabas.client.values import ConfigResource, OffsetAndMetadata
from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.config.parsing import parse_mirror_config
from barnabas.spark.mirror.offsets.sync_store import OffsetSyncStore
from barnabas.spark.mirror.records import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
    encode_checkpoint,
    encode_heartbeat,
    encode_offset_sync,
)
from barnabas.spark.mirror.running.group_jobs import group_offsets
from barnabas.spark.mirror.running.translating import read_checkpoints
from barnabas.testing.embedded import EmbeddedBroker
from tests.interop.apache_kafka import ApacheKafka
from tests.interop.jars import mirror_classpath
from tests.system.mirror.mirrors import end_of, mirroring, produce, properties, read, until, values

pytestmark = pytest.mark.interop

_SOURCE = Path(__file__).parent / "java" / "Mirrors.java"


def _java(*arguments: str, given: str = "") -> list[str]:
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", mirror_classpath(), str(_SOURCE), *arguments]
    done = subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return done.stdout.splitlines()


def test_records_have_the_bytes_of_kafkas_classes() -> None:
    ours = {
        "Heartbeat": encode_heartbeat(Heartbeat("us-west", "eu", 1_700_000_000_000)),
        "Checkpoint": encode_checkpoint(Checkpoint("gö", TopicPartition("A.t", 3), 100, 42, "m")),
        "OffsetSync": encode_offset_sync(OffsetSync(TopicPartition("tö", 7), 2**40, -1)),
    }
    assert _java("records") == [f"{name} {key.hex()} {value.hex()}" for name, (key, value) in ours.items()]


def test_translation_equals_kafkas_store_after_the_same_syncs() -> None:
    rng = random.Random(16)
    for only_newest in (True, False):
        store, lines, expected = OffsetSyncStore(), [f"only-newest {str(only_newest).lower()}"], []
        store.begin(only_newest=only_newest)
        upstream = downstream = 0
        for number in range(3_000):
            step = rng.choice((1, 2, 100, rng.randrange(1, 1 << rng.randrange(1, 40))))
            upstream, downstream = upstream + step, downstream + rng.randrange(1, step + 1)
            if rng.random() < 0.002:
                upstream //= 2
            lines.append(f"sync {upstream} {downstream}")
            store.add(OffsetSync(TopicPartition("t", 0), upstream, downstream))
            if number == 500:
                lines.append("loaded")
                store.loaded()
            for asked in (upstream, upstream + 5, rng.randrange(upstream + 10)):
                lines.append(f"ask {asked}")
                found = store.downstream(TopicPartition("t", 0), asked)
                expected.append("-" if found is None else str(found))
        assert _java("store", given="\n".join(lines)) == expected


def test_remote_cluster_utils_translates_offsets_on_our_topics() -> None:
    async def scenario(a: str, b: str) -> None:
        given = {
            "A->B.enabled": "true",
            "B->A.emit.heartbeats.enabled": "true",
            "topics": "orders",
            "groups": "billing",
        }
        async with AsyncAdmin(bootstrap_servers=a) as admin:
            await admin.create_topic("orders", 1, 1)
            await produce(a, "orders", [f"v{n}" for n in range(30)])
            await admin.delete_records({TopicPartition("orders", 0): 10})
            await admin.alter_group_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(17, "mark")})
        pair = parse_mirror_config(properties(a, b, given)).pair("A", "B")
        assert pair is not None
        async with mirroring(a, b, given) as service:

            async def translated() -> bool:
                ready = await end_of(b, "A.heartbeats") > 0 and await end_of(b, pair.checkpoints_topic) > 0
                return ready and [c.downstream for c in await read_checkpoints(pair, "billing")] == [7]

            await until(translated, "the checkpoint is there", service)
        lines = await asyncio.to_thread(_java, "client", b, "A", "billing")
        assert lines == [
            "upstream [A]",
            "hops 1",
            "heartbeats [A.heartbeats, heartbeats]",
            "checkpoints [A.checkpoints.internal]",
            "offsets {A.orders-0=7 mark}",
        ]

    with EmbeddedBroker() as first, EmbeddedBroker() as second:
        asyncio.run(scenario(first.bootstrap_servers, second.bootstrap_servers))


@pytest.mark.timeout(300)
def test_kafka_and_we_mirror_one_another(tmp_path: Path) -> None:
    async def scenario(a: str, b: str) -> None:
        given = {
            "A->B.enabled": "true",
            "B->A.enabled": "true",
            "sync.group.offsets.enabled": "true",
            "topics": ".*orders",
            "groups": "billing-.*",
        }
        sides = ((a, "A", b), (b, "B", a))
        for servers, alias, _ in sides:
            async with AsyncAdmin(bootstrap_servers=servers) as admin:
                await admin.create_topic("orders", 2, 1, {"retention.bytes": "123456789"})
                await produce(servers, "orders", [f"{alias}{n}" for n in range(40)])
                offsets = {TopicPartition("orders", 0): OffsetAndMetadata(25)}
                await admin.alter_group_offsets(f"billing-{alias}", offsets)
        async with mirroring(a, b, given) as service:

            async def arrived() -> bool:
                found = []
                for _, alias, other in sides:
                    async with AsyncAdmin(bootstrap_servers=other) as admin:
                        committed = await group_offsets(admin, f"billing-{alias}")
                    found.append({str(tp): offset.offset for tp, offset in committed.items()})
                return found == [{"A.orders-0": 25}, {"B.orders-0": 25}]

            await until(arrived, "the groups have arrived on the other side", service)
        for _, alias, other in sides:
            assert values(await read(other, f"{alias}.orders")) == [f"{alias}{n}" for n in range(40)]
            async with AsyncAdmin(bootstrap_servers=other) as admin:
                resource = ConfigResource.topic(f"{alias}.orders")
                configs = (await admin.describe_configs([resource]))[resource]
                assert isinstance(configs, dict)
                assert configs["retention.bytes"].value == "123456789"
                assert f"{alias}.A.orders" not in {topic.name for topic in await admin.list_topics()}

    with ApacheKafka(tmp_path).running() as kafka, EmbeddedBroker() as ours:
        asyncio.run(scenario(kafka.bootstrap, ours.bootstrap_servers))
