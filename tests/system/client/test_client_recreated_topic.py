"""A topic that is deleted and created again under a consumer: every record of the new topic is read.

So far a consumer whose position was beyond the new topic's end continued at that end.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from barnabas import AsyncAdmin, AsyncConsumer, AsyncProducer
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from tests.progress import Standstill


async def create(admin: AsyncAdmin, topic: str) -> bool:
    """Create the topic; False while the name is still taken."""
    try:
        await admin.create_topic(topic, 1, 1)
    except KafkaError:
        return False
    return True


@pytest.mark.parametrize("mode", ["classic", "consumer", "assign", "arrow"])
async def test_every_record_of_the_new_topic_is_read(servers: str, mode: str) -> None:
    topic, group = f"again-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
    settings: dict[str, Any] = {
        "bootstrap_servers": servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 50,
        "metadata_max_age_ms": 1_000,
        "group_protocol": "consumer" if mode == "consumer" else "classic",
    }
    seen: list[bytes] = []
    async with (
        AsyncAdmin(bootstrap_servers=servers) as admin,
        AsyncProducer(bootstrap_servers=servers, linger_ms=0) as producer,
        AsyncConsumer(**settings) as consumer,
    ):

        async def write(name: str, count: int) -> list[bytes]:
            values = [b"%s %d" % (name.encode(), number) for number in range(count)]
            for value in values:
                await producer.send_and_wait(topic, value)
            return values

        async def read(wanted: list[bytes]) -> None:
            standstill = Standstill(f"{len(wanted)} records are read")
            while len(seen) < len(wanted):
                standstill.check(len(seen))
                if mode == "arrow":
                    table = await consumer.poll_arrow(100, columns=["value"])
                    seen.extend([] if table is None else table.column("value").to_pylist())
                else:
                    seen.extend(record.value for record in await consumer.poll(100))
            assert seen == wanted
            seen.clear()

        await admin.create_topic(topic, 1, 1)
        if mode in ("assign", "arrow"):
            consumer.assign([TopicPartition(topic, 0)])
        else:
            consumer.subscribe([topic])
        await read(await write("old", 20))
        for count in (7, 30):  # fewer records than the topic before had, and more
            await admin.delete_topics([topic])
            while not await create(admin, topic):
                await consumer.poll(10)
            await read(await write(f"new {count}", count))
            await consumer.commit()
            committed = await consumer.committed([TopicPartition(topic, 0)])
            assert [commit and commit.offset for commit in committed.values()] == [count]
            assert [commit and commit.metadata for commit in committed.values()] == [""]
        await admin.delete_topics([topic])
