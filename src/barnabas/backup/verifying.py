"""Shell: compares a backup with its own checksums, and with a cluster byte for byte.

A comparison with a cluster covers the offsets that both have. Where compaction has rewritten the cluster's log since
the run, the bytes differ although no record is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence

from msgspec import Struct

from barnabas.backup.errors import BackupError, DamagedBackupError
from barnabas.backup.serving.batches import RunBatches, parse_object, readable_end
from barnabas.backup.store import BackupStore
from barnabas.backup.values import PartitionBackup, RunManifest, StoredBatches
from barnabas.client.admin import AsyncAdmin
from barnabas.client.links.verifying import Comparison, batches_of, bounds_of, compare
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import check_crc, read_header
from barnabas.protocol.records.errors import CorruptBatchError

_PARALLEL = 4


class DamagedObject(Struct, frozen=True):
    """What is wrong with one object, and the runs that cannot be restored because of it."""

    name: str
    problem: str
    runs: tuple[str, ...]


class BackupCheck(Struct, frozen=True):
    """The result for a whole backup."""

    runs: int
    objects: int
    size: int
    damage: tuple[DamagedObject, ...]
    interrupted: tuple[str, ...]
    """Runs that were killed, or are under way. They harm nothing; the next run goes on where they were."""
    leftovers: int
    """Objects that no run needs: `prune` deletes them."""
    leftover_bytes: int


async def verify_backup(
    store: BackupStore, runs: Sequence[str] | None = None, on_checked: Callable[[int], None] = lambda size: None
) -> BackupCheck:
    """Check the manifests and objects of these runs, or of all. `on_checked` gets the bytes of each checked object."""
    names = await store.run_names()
    chosen = list(names.complete if runs is None else runs)
    damage: list[DamagedObject] = []
    needed: dict[str, tuple[StoredBatches, list[str]]] = {}
    for run_id in chosen:
        try:
            run = await store.load(run_id)
        except BackupError as error:
            damage.append(DamagedObject(f"runs/{run_id}.json", str(error), (run_id,)))
            continue
        for stored in run.objects():
            needed.setdefault(stored.name, (stored, []))[1].append(run_id)
    queue = iter(sorted(needed.values(), key=lambda one: one[0].name))

    async def work(queue: Iterator[tuple[StoredBatches, list[str]]]) -> None:
        for stored, of_runs in queue:
            try:
                await check_object(store, stored)
            except BackupError as error:
                damage.append(DamagedObject(stored.name, str(error), tuple(of_runs)))
            on_checked(stored.size)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_PARALLEL):
                tasks.create_task(work(queue))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    leftovers = [] if runs is not None else [found.size async for found in store.objects() if found.name not in needed]
    return BackupCheck(
        len(chosen),
        len(needed),
        sum(stored.size for stored, _ in needed.values()),
        tuple(sorted(damage, key=lambda one: one.name)),
        names.partial,
        len(leftovers),
        sum(leftovers),
    )


async def check_object(store: BackupStore, stored: StoredBatches) -> None:
    """The object has the bytes that were written, and each batch the CRC that its producer computed. Raises
    DamagedBackupError, KafkaError."""
    data = await store.read(stored)

    def check() -> None:
        loaded = parse_object(data, stored)
        for position in loaded.positions:
            check_crc(data, position, read_header(data, position))

    try:
        await asyncio.to_thread(check)
    except CorruptBatchError as error:
        raise DamagedBackupError(f"{stored.name} is damaged: {error}") from error


async def compare_with_cluster(store: BackupStore, run: RunManifest, admin: AsyncAdmin) -> AsyncIterator[Comparison]:
    """Compare the partitions of a run with those of a cluster, one after the other."""
    batches = RunBatches(store)
    for name, partition in run.partitions():
        try:
            yield await _compare(batches, name, partition, admin)
        except (BackupError, KafkaError) as error:
            yield Comparison(name, -1, -1, 0, 0, -1, error=str(error))


async def _compare(
    batches: RunBatches, name: TopicPartition, partition: PartitionBackup, admin: AsyncAdmin
) -> Comparison:
    there = await bounds_of(admin, name)
    end = readable_end(partition)
    start, stop = max(partition.log_start, there[0]), min(end, there[1])
    missing = max(end - there[1], 0)
    if start >= stop:
        return Comparison(name, start, stop, 0, 0, missing)
    ours = _stored_batches(batches, partition, start, stop)
    return await compare(name, start, stop, missing, ours, batches_of(admin, name, start, stop))


async def _stored_batches(
    batches: RunBatches, partition: PartitionBackup, start: int, end: int
) -> AsyncGenerator[tuple[int, bytes], None]:
    """Each batch that ends in the range: its base offset and its bytes."""
    for stored in partition.objects:
        if stored.end <= start or stored.start >= end:
            continue
        loaded = await batches.load(stored)
        for position in loaded.positions:
            header = read_header(loaded.data, position)
            if start < header.next_offset <= end:
                yield header.base_offset, bytes(loaded.data[position : position + header.size])
