"""Clusters on this machine, each a broker in a process of its own, and the mirror between them."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from barnabas.client import AsyncAdmin, AsyncConsumer
from barnabas.client.offsets import offsets_at
from barnabas.client.values import LATEST, ConsumerRecord, OffsetAndMetadata
from barnabas.core.child_processes import start_child
from barnabas.core.ids import TopicPartition
from barnabas.core.properties import render_properties
from barnabas.testing.process import BrokerProcess

console = Console(soft_wrap=True)
PARTITIONS: Final = 2
SESSION_MS: Final = 2_000
"""When the members of a group that have died are forgotten. The offsets of a group with members are not moved."""
PATIENCE_S: Final = 120.0
"""How long anything may take on a busy machine."""
Record = ConsumerRecord[bytes, bytes]


def fresh(out: Path) -> Path:
    """The directory for everything that an example writes, emptied."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    return out.resolve()


def step(text: str) -> None:
    console.print(f"[bold green]•[/bold green] {text}", highlight=False)


@contextmanager
def clusters(out: Path, *names: str) -> Iterator[dict[str, BrokerProcess]]:
    """Clusters with these names. They start at the same time, and are killed at the end. Meanwhile, clients do not warn
    that a cluster has died.
    """
    logger = logging.getLogger("barnabas.client")
    level = logger.level
    logger.setLevel(logging.ERROR)
    running = {
        name: BrokerProcess(out / name, settings=[f"group.min.session.timeout.ms={SESSION_MS}"]) for name in names
    }
    try:
        for broker in running.values():
            broker.launch()
        for broker in running.values():
            broker.wait_ready()
        step("; ".join(f"cluster {name} at {broker.bootstrap_servers}" for name, broker in running.items()))
        yield running
    finally:
        logger.setLevel(level)
        for broker in running.values():
            if broker.alive:
                broker.kill()


async def create_topic(broker: BrokerProcess, name: str) -> None:
    async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        await admin.create_topic(name, PARTITIONS, 1)


QUICKLY: Final = {
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
}
"""Settings of a mirror whose groups can move at any time: what a failover repeats is what a second has processed."""


@asynccontextmanager
async def mirror(
    out: Path, running: Mapping[str, BrokerProcess], settings: Mapping[str, str], targets: Sequence[str]
) -> AsyncIterator[None]:
    """`barnabas mirror run mm2.properties --clusters TARGET,...` while the block runs."""
    file = out / "mm2.properties"
    addresses = {f"{name}.bootstrap.servers": broker.bootstrap_servers for name, broker in running.items()}
    file.write_text(render_properties({"clusters": ",".join(running), **addresses, **QUICKLY, **settings}))
    command = [sys.executable, "-m", "barnabas", "mirror", "run", str(file), "--clusters", ",".join(targets)]
    step(f"barnabas {' '.join(command[3:])}")
    with (out / "mirror.log").open("ab") as log:
        process = start_child([*command, "--status-interval", "2"], stdout=log, stderr=log, start_new_session=True)
    try:
        yield
        assert process.poll() is None, f"the mirror has ended: see {out / 'mirror.log'}"
    finally:
        await asyncio.to_thread(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until the condition is true; `what` completes the sentence "waiting until ..."."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - a cluster does not notify its observers
            await asyncio.sleep(0.05)
    step(what)


async def ends(broker: BrokerProcess, topic: str) -> dict[int, int]:
    """The end of each partition for read_committed readers; empty if the topic does not exist."""
    async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        counts = {listing.name: listing.partition_count for listing in await admin.list_topics()}
        partitions = {TopicPartition(topic, number): LATEST for number in range(counts.get(topic, 0))}
        if not partitions:
            return {}
        return {tp.partition: offset for tp, offset in (await offsets_at(admin.cluster, partitions)).items()}


async def read(broker: BrokerProcess, topic: str) -> dict[int, list[Record]]:
    """What a read_committed reader finds in a topic now, by partition."""
    found: dict[int, list[Record]] = {number: [] for number in range(PARTITIONS)}
    async with AsyncConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        partitions = [TopicPartition(topic, number) for number in found]
        consumer.assign(partitions)
        limits = await consumer.end_offsets(partitions)
        while True:
            behind = [tp for tp in partitions if await consumer.position(tp) < limits[tp]]
            if not behind:
                return found
            for record in await consumer.poll(timeout_ms=1_000):
                if record.offset < limits[record.topic_partition]:
                    found[record.partition].append(record)


async def group_offsets(broker: BrokerProcess, group: str) -> dict[TopicPartition, int]:
    """The committed offsets of a group."""
    async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = await admin.list_group_offsets(group)
        return {tp: offset.offset for tp, offset in found.items() if isinstance(offset, OffsetAndMetadata)}


def values(records: Sequence[Record]) -> list[str]:
    return [record.value.decode() for record in records]
