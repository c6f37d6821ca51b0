"""Shell: backups of embedded brokers for tests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from barnabas.backup.restoring.plan import Method
from barnabas.backup.restoring.restore import Restore, RestoreOptions, RestoreReport
from barnabas.backup.store import BackupStore
from barnabas.backup.taking import BackupOptions, BackupRun
from barnabas.backup.values import RunManifest
from barnabas.backup.verifying import compare_with_cluster
from barnabas.client import AsyncConsumer, AsyncProducer
from barnabas.client.admin import AsyncAdmin
from barnabas.core.clock import SystemClock
from barnabas.core.ids import TopicPartition
from barnabas.core.rng import system_rng
from barnabas.server.storage.fs import OsFileSystem
from barnabas.server.tiering.store.files import FileObjectStore

SMALL = BackupOptions(object_bytes=200)
"""Objects of a few batches, so that a partition has several."""


def store_in(folder: Path) -> BackupStore:
    return BackupStore(FileObjectStore(OsFileSystem(), str(folder), ThreadPoolExecutor(2)), "", str(folder))


async def back_up(admin: AsyncAdmin, store: BackupStore, options: BackupOptions = SMALL) -> RunManifest:
    return await BackupRun(admin, store, options, SystemClock(), system_rng()).run()


async def restore(
    admin: AsyncAdmin, store: BackupStore, at: str | None = None, method: Method | None = None
) -> RestoreReport:
    return await Restore(admin, store, await store.choose(at), RestoreOptions(method=method)).run()


async def is_equal(admin: AsyncAdmin, store: BackupStore, at: str | None = None) -> bool:
    """Whether a cluster has all bytes of a run."""
    found = [one async for one in compare_with_cluster(store, await store.choose(at), admin)]
    assert found
    return all(one.is_equal and not one.missing for one in found)


async def write(admin: AsyncAdmin, topic: str, count: int, text: str, partitions: int = 2) -> None:
    servers = ",".join(f"{host}:{port}" for host, port in admin.cluster.options.bootstrap_servers)
    async with AsyncProducer(bootstrap_servers=servers, compression_type="zstd", batch_size=2000) as producer:
        for number in range(count):
            await producer.send(topic, value=f"{text}-{number}".encode() * 5, partition=number % partitions)


async def committed_values(servers: str, *partitions: TopicPartition) -> list[list[bytes]]:
    """What a read_committed consumer gets of each partition."""
    found = []
    for partition in partitions:
        async with AsyncConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            end = (await consumer.end_offsets([partition]))[partition]
            values: list[bytes] = []
            while await consumer.position(partition) < end:
                values += [record.value or b"" for record in await consumer.poll(500)]
            found.append(values)
    return found
