"""Creates the topics, and writes the weather to one of them, column by column."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from examples.flights.results import PARTITIONS

from barnabas.client.admin import AsyncAdmin
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import NewTopic
from barnabas.core.errors import KafkaError

ROWS_AT_ONCE = 5_000
KEEP_FOR_EVER = {"retention.ms": "-1"}
"""The events have timestamps of 2013, so the default retention of seven days would delete them at once."""

TOPICS = tuple(NewTopic(name, partitions, 1, KEEP_FOR_EVER) for name, partitions in PARTITIONS.items())


async def create_topics(servers: str) -> None:
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        for result in (await admin.create_topics(TOPICS)).values():
            if isinstance(result, KafkaError):
                raise result


async def publish(servers: str, topic: str, records: pa.Table, on_progress: Callable[[int], object]) -> None:
    """Write the columns key, value and timestamp as records, in order."""
    async with AsyncProducer(bootstrap_servers=servers, compression_type="lz4") as producer:
        for start in range(0, records.num_rows, ROWS_AT_ONCE):
            part = records.slice(start, ROWS_AT_ONCE)
            await producer.send_arrow(topic, part, key="key", timestamp="timestamp")
            on_progress(part.num_rows)
