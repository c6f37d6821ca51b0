"""Two brokers and mirrors between them, for the tests of this folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from barnabas.client import AsyncAdmin, AsyncConsumer, AsyncProducer
from barnabas.client.offsets import offsets_at
from barnabas.client.values import LATEST, ConsumerRecord
from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.config.parsing import parse_mirror_config
from barnabas.spark.mirror.ports import RecordCopier
from barnabas.spark.mirror.running.service import MirrorService
from tests.system.mirror.plain_copier import PlainCopier

_PATIENCE_S = 60.0
FIRST_MS = time.time_ns() // 1_000_000 - 60_000
"""The timestamp of the first record that a test writes. Much older records would fall to the retention."""
QUICK = {
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "sync.topic.acls.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "admin.timeout.ms": "10000",
}
"""Short intervals, so that a test waits for seconds."""


def properties(a: str, b: str, given: dict[str, str]) -> dict[str, str]:
    return {"clusters": "A,B", "A.bootstrap.servers": a, "B.bootstrap.servers": b, **QUICK, **given}


@asynccontextmanager
async def mirroring(
    a: str,
    b: str,
    given: dict[str, str],
    targets: Sequence[str] = (),
    new_copier: Callable[[], RecordCopier] = PlainCopier,
) -> AsyncIterator[MirrorService]:
    """A running mirror, which is stopped in order at the end. Raises what has ended it."""
    service = MirrorService(parse_mirror_config(properties(a, b, given)), targets, lambda _: new_copier())
    running = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        service.stop()
        await running


async def until(condition: Callable[[], Awaitable[bool]], what: str, running: MirrorService | None = None) -> None:
    """Wait until the condition is true; `what` completes the sentence "waiting until ..."."""
    deadline = time.monotonic() + _PATIENCE_S
    while not await condition():
        assert time.monotonic() < deadline, f"waiting until {what}; {running.status() if running else ''}"
        await asyncio.sleep(0.05)  # the clusters cannot notify the test


async def produce(
    servers: str, topic: str, values: Sequence[str], partition: int = 0, first_ms: int = FIRST_MS
) -> None:
    """Records with timestamps `first_ms`, `first_ms` + 10, ..."""
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        for number, value in enumerate(values):
            await producer.send(
                topic,
                value.encode(),
                key=f"k{number}".encode(),
                partition=partition,
                timestamp=first_ms + 10 * number,
                headers=[("h", value.encode()), ("empty", None)],
            )
        await producer.flush()


async def read(servers: str, topic: str, partition: int = 0) -> list[ConsumerRecord[bytes, bytes]]:
    """The committed records of a partition, up to its end now."""
    tp = TopicPartition(topic, partition)
    found: list[ConsumerRecord[bytes, bytes]] = []
    async with AsyncConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        while await consumer.position(tp) < end:
            found += await consumer.poll(timeout_ms=1_000)
    return found


async def end_of(servers: str, topic: str, partition: int = 0) -> int:
    """The end of a partition; -1 if it does not exist."""
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        names = {listing.name: listing.partition_count for listing in await admin.list_topics()}
        if names.get(topic, 0) <= partition:
            return -1
        tp = TopicPartition(topic, partition)
        return (await offsets_at(admin.cluster, {tp: LATEST}))[tp]


def values(records: Sequence[ConsumerRecord[bytes, bytes]]) -> list[str]:
    return [record.value.decode() for record in records]
