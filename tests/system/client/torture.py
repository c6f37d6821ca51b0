"""Faults of a broker, and client workloads that must not lose or duplicate anything meanwhile.

`Chaos` kills, pauses and restarts a broker in a seeded order. The workloads keep every acknowledgement; the checks at
the end compare these with the log.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from barnabas.client.admin import AsyncAdmin
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.consumer.coordinator import RebalanceListener
from barnabas.client.errors import TransactionAbortedError
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.client.values import LATEST
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.testing.process import BrokerProcess

PARTITIONS = 3


class Chaos:
    """Applies faults to one broker."""

    def __init__(self, broker: BrokerProcess, seed: int, *, pause_s: float = 1.0) -> None:
        self.broker = broker
        self.pause_s = pause_s
        self.rng = random.Random(seed)
        self.done: list[str] = []
        self._acts: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self.kill,
            "pause": self.pause,
            "restart": self.restart,
        }

    async def run(self, acts: int, *, calm_s: tuple[float, float] = (0.3, 1.2)) -> None:
        """Applies `acts` faults: each kind once, if there are enough, and then random kinds."""
        names = sorted(self._acts)
        order = names + [self.rng.choice(names) for _ in range(acts - len(names))]
        self.rng.shuffle(order)
        for name in order[:acts]:
            await asyncio.sleep(self.rng.uniform(*calm_s))  # the clients work without faults for a random time
            await self._acts[name]()
            self.done.append(name)

    async def kill(self) -> None:
        """kill -9, and a start on the same data and port."""
        await asyncio.to_thread(self.broker.kill)
        await asyncio.to_thread(self.broker.start)

    async def pause(self) -> None:
        """SIGSTOP and SIGCONT: connections stay open, and the broker sends no responses in between."""
        assert self.broker.process is not None
        os.kill(self.broker.process.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(self.pause_s)  # the fault lasts so long
        finally:
            os.kill(self.broker.process.pid, signal.SIGCONT)

    async def restart(self) -> None:
        """A clean shutdown, and a start."""
        await asyncio.to_thread(self.broker.stop)
        await asyncio.to_thread(self.broker.start)


@dataclass
class Promises:
    """The acknowledgements of a producer: (partition, offset) -> value, and the order in which values were sent."""

    sent: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    acked: dict[tuple[int, int], bytes] = field(default_factory=dict)
    failed: list[BaseException] = field(default_factory=list)


async def produce_until(stop: asyncio.Event, servers: str, topic: str, promises: Promises, **settings: object) -> None:
    """Sends numbered records to every partition, and keeps every acknowledgement."""
    async with AsyncProducer(bootstrap_servers=servers, **settings) as producer:
        number = 0
        while not stop.is_set():
            for _ in range(20):
                partition = number % PARTITIONS
                value = b"%d" % number
                promises.sent[partition].append(value)
                future = await producer.send(topic, value, partition=partition)

                def settled(_: object, value: bytes = value, future: object = future) -> None:
                    error = future.exception()  # type: ignore[attr-defined]
                    if error is not None:
                        promises.failed.append(error)
                        return
                    metadata = future.result()  # type: ignore[attr-defined]
                    key = (metadata.partition, metadata.offset)
                    assert key not in promises.acked, f"offset {key} was given to two records"
                    promises.acked[key] = value

                future.add_done_callback(settled)
                number += 1
            await asyncio.sleep(0.002)  # at most 500 records a second


class Order(RebalanceListener):
    """Checks that offsets only grow while a member owns a partition."""

    def __init__(self) -> None:
        self.positions: dict[TopicPartition, int] = {}

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.positions.pop(partition, None)

    def check(self, partition: TopicPartition, offset: int) -> None:
        assert offset > self.positions.get(partition, -1), f"{partition}: {offset} after {self.positions[partition]}"
        self.positions[partition] = offset


async def consume_until(
    stop: Callable[[], bool], servers: str, topic: str, group: str, seen: set[bytes], **settings: object
) -> None:
    """One member of a group under default settings (auto-commit): at least once, in order while it owns a partition."""
    order = Order()
    consumer = AsyncConsumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", **settings)
    async with consumer:
        consumer.subscribe([topic], order)
        while not stop():
            for record in await consumer.poll(200):
                order.check(record.topic_partition, record.offset)
                seen.add(record.value)


async def share_until(stop: Callable[[], bool], servers: str, topic: str, group: str, seen: set[bytes]) -> None:
    """One worker of a share group under default settings (implicit acknowledgements): at least once, in any order."""
    async with AsyncShareConsumer(bootstrap_servers=servers, group_id=group) as consumer:
        consumer.subscribe([topic])
        while not stop():
            for record in await consumer.poll(200):
                seen.add(record.value)


async def copy_until(stop: Callable[[], bool], servers: str, source: str, target: str, name: str) -> int:
    """Reads, writes and commits in transactions (exactly once). Returns the number of aborted transactions."""
    aborted = 0
    consumer = AsyncConsumer(
        bootstrap_servers=servers,
        group_id=f"{source}-copier",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_poll_records=200,
    )
    async with consumer, AsyncProducer(bootstrap_servers=servers, transactional_id=name) as producer:
        await producer.init_transactions()
        consumer.subscribe([source])
        while not stop():
            records = await consumer.poll(200)
            if not records:
                continue
            ends = {record.topic_partition: record.offset + 1 for record in records}
            try:
                async with producer.transaction():
                    for record in records:
                        await producer.send(target, record.value, partition=record.partition)
                    await producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            except (TransactionAbortedError, KafkaError):
                aborted += 1
                consumer.seek_to_committed()
    return aborted


async def read_log(servers: str, topic: str, isolation: str = "read_committed") -> dict[int, list[bytes]]:
    """Reads the values of every partition, and checks that each offset is returned once."""
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    consumer = AsyncConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level=isolation)
    found: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
    async with consumer:
        consumer.assign(partitions)
        for partition in partitions:
            end = ends[partition]
            assert not isinstance(end, KafkaError)
            while await consumer.position(partition) < end.offset:
                for record in await consumer.poll(1_000, max_records=10_000):
                    found[record.partition].append(record.value)
    return found


def check_promises(promises: Promises, log: dict[int, list[bytes]]) -> None:
    """Checks that no record is lost, duplicated or reordered, and that every acknowledged offset is correct."""
    assert promises.failed == []
    for partition, sent in sorted(promises.sent.items()):
        assert log[partition] == sent, first_difference(partition, sent, log[partition])
    for (partition, offset), value in promises.acked.items():
        assert log[partition][offset] == value
    assert len(promises.acked) == sum(map(len, promises.sent.values()))


def first_difference(partition: int, wanted: list[bytes], found: list[bytes]) -> str:
    place = next(
        (i for i, (a, b) in enumerate(zip(wanted, found, strict=False)) if a != b), min(len(wanted), len(found))
    )
    end = place + 5
    return (
        f"partition {partition} differs at {place}: wanted {wanted[place:end]}, found {found[place:end]};"
        f" {len(wanted)} wanted, {len(found)} found, {len(found) - len(set(found))} doubled"
    )
