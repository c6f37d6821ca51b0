"""Reads the topic that the pipeline writes."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.json

from barnabas import AsyncConsumer, TopicPartition

TOPIC = "flights-in-weather"
PARTITIONS = {"flights": 4, "weather": 1, TOPIC: 2}


async def count_records(servers: str, topics: Sequence[str]) -> int:
    """The number of offsets in the topics: of records, and of the markers of transactions."""
    async with AsyncConsumer(bootstrap_servers=servers) as consumer:
        found = 0
        for topic in topics:
            partitions = [TopicPartition(topic, one) for one in range(PARTITIONS[topic])]
            found += sum((await consumer.end_offsets(partitions)).values())
        return found


async def read_flights_in_weather(servers: str, like: pd.DataFrame) -> pd.DataFrame:
    """All committed records of the topic, with the columns of `like`: JSON leaves out what is null."""
    values = []
    settings = {"bootstrap_servers": servers, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with AsyncConsumer(**settings) as consumer:
        partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS[TOPIC])]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while [tp for tp in partitions if await consumer.position(tp) < ends[tp]]:
            batch = await consumer.poll_arrow(timeout_ms=1_000, columns=("value",), raise_problems=True)
            values += [] if batch is None else [batch["value"]]
    lines = b"\n".join(value for column in values for value in column.to_pylist())
    rows = pa.json.read_json(pa.BufferReader(lines)).to_pandas()
    return rows.assign(scheduled=pd.to_datetime(rows["scheduled"])).reindex(columns=like.columns)
