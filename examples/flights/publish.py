"""Publishing: topics are created, and the feeds written to them column by column."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pyarrow as pa
from examples.flights.dataset import Feed

from barnabas.client.admin import AsyncAdmin
from barnabas.client.producer import AsyncProducer
from barnabas.client.values import NewTopic
from barnabas.core.errors import KafkaError

ROWS_AT_ONCE = 5_000
KEEP_FOR_EVER = {"retention.ms": "-1"}
"""The events carry their own times, of 2013: by the default of seven days they would be too old to keep."""

TOPICS = (
    NewTopic("flights", 4, 1, KEEP_FOR_EVER),
    NewTopic("weather", 1, 1, KEEP_FOR_EVER),
    NewTopic("delays", 2, 1, {"cleanup.policy": "compact"}),
)


async def create_topics(servers: str) -> None:
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        for result in (await admin.create_topics(TOPICS)).values():
            if isinstance(result, KafkaError):
                raise result


async def publish(servers: str, feed: Feed, on_progress: Callable[[int], object]) -> int:
    """Writes a feed in event-time order; returns how many bytes its values have."""
    table = feed.to_arrow()
    async with AsyncProducer(bootstrap_servers=servers, compression_type="lz4") as producer:
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            part: pa.Table = table.slice(start, ROWS_AT_ONCE)
            await producer.send_arrow(feed.topic, part, key="key", timestamp="timestamp")
            on_progress(part.num_rows)
    return int(table["value"].nbytes)


def run(servers: str, feed: Feed, on_progress: Callable[[int], object]) -> int:
    """`publish` for callers without an event loop."""
    return asyncio.run(publish(servers, feed, on_progress))
