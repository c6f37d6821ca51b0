"""Producers and consumers that keep account of what they have done, and move from one cluster to another."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from examples.mirroring.clusters import PARTITIONS, SESSION_MS, Record, group_offsets

from barnabas.client import AsyncConsumer, AsyncProducer
from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.testing.process import BrokerProcess

PAUSE_S = 0.01
"""Between two records of a writer: 100 a second."""
CLOSE_MS = 500


@dataclass(frozen=True)
class Acknowledged:
    """A record that a cluster has acknowledged."""

    value: str
    partition: int
    offset: int


class Writer:
    """Writes numbered orders, with acks=all, into a topic of one cluster, or later of another one."""

    def __init__(self, name: str, topic: str) -> None:
        self.name = name
        self.topic = topic
        self.acknowledged: list[Acknowledged] = []
        self.unknown: list[str] = []
        """Records without an acknowledgement: the cluster may or may not have them."""
        self._number = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, broker: BrokerProcess) -> None:
        assert self._task is None
        self._task = asyncio.create_task(self._run(broker.bootstrap_servers), name=f"writer {self.name}")

    async def stop(self) -> None:
        """Stop, whether or not the cluster still answers."""
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None

    async def _run(self, servers: str) -> None:
        pending: dict[str, int] = {}
        producer = AsyncProducer(bootstrap_servers=servers, acks="all", linger_ms=0)

        def note(value: str, partition: int, offset: int) -> None:
            del pending[value]
            self.acknowledged.append(Acknowledged(value, partition, offset))

        try:
            while True:
                value, partition = f"{self.name}-{self._number:06}", self._number % PARTITIONS
                self._number += 1
                pending[value] = partition
                await producer.send(
                    self.topic,
                    value.encode(),
                    partition=partition,
                    on_delivery=lambda sent, error, value=value: (  # type: ignore[misc]
                        note(value, sent.partition, sent.offset) if sent is not None and error is None else None
                    ),
                )
                await asyncio.sleep(PAUSE_S)  # the rate of the load
        finally:
            await producer.shut(CLOSE_MS)
            self.unknown += pending


class Reader:
    """A consumer of a group: processes the records whose values begin with `prefix`, and commits what it has processed.
    It goes on where its group is."""

    def __init__(self, group: str, prefix: str = "") -> None:
        self.group = group
        self.prefix = prefix
        self.processed: list[tuple[str, str, Record]] = []
        """Cluster, value, record, in the order of processing."""
        self.moved_at = 0
        """How many records were processed before the last `start`."""
        self.went_on_at: dict[TopicPartition, int] = {}
        """The group's offsets in the cluster of the last `start`, at that time."""
        self.cluster = ""
        self._task: asyncio.Task[None] | None = None
        self._consumer: AsyncConsumer[bytes, bytes] | None = None

    async def start(self, cluster: str, broker: BrokerProcess, topics: str | re.Pattern[str]) -> None:
        assert self._task is None
        self.cluster, self.moved_at = cluster, len(self.processed)
        self.went_on_at = await group_offsets(broker, self.group)
        consumer = AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id=self.group,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            metadata_max_age_ms=500,
            max_poll_records=20,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
        )
        consumer.subscribe(topics)
        self._consumer = consumer
        self._task = asyncio.create_task(self._run(cluster, consumer), name=f"reader {self.group}")

    async def stop(self) -> None:
        """Stop, whether or not the cluster still answers."""
        assert self._task is not None
        assert self._consumer is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        with suppress(BarnabasError, TimeoutError):
            async with asyncio.timeout(CLOSE_MS / 1000):
                await self._consumer.commit()
        with suppress(BarnabasError, TimeoutError):
            await self._consumer.close(CLOSE_MS)

    async def _run(self, cluster: str, consumer: AsyncConsumer[bytes, bytes]) -> None:
        while True:
            with suppress(BarnabasError):  # the cluster is gone; what is not committed is processed again
                for record in await consumer.poll(timeout_ms=1_000):
                    value = record.value.decode()
                    if value.startswith(self.prefix):
                        self.processed.append((cluster, value, record))
                await consumer.commit()

    def values(self) -> list[str]:
        return [value for _, value, _ in self.processed]

    async def has(self, wanted: Collection[str]) -> bool:
        """Whether all these records were processed."""
        return set(wanted) <= set(self.values())
