"""Shell: saves the records that a failback, or an unclean leader election on the source, cuts off.

    <log dir>/00000000000000000007.mirror-tail-<topic>-<partition>-<end>.log

The file has the batches from offset 7 on, as they were in the log. Kafka's tools read it (kafka-dump-log takes the
offset from the first part of the name), and Kafka leaves files in a log directory alone. Nothing deletes the file. The
same offsets can be cut off twice, with other records; the name of the second file then ends with the leader epoch of
its first batch: `<end>-<epoch>.log`.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.batch import HEADER_SIZE, iter_batches, last_batch, read_header
from barnabas.server.storage.fs import Access, File, FileSystem
from barnabas.server.storage.log import Log
from barnabas.server.storage.reading import LogReadPlan

log = get_logger("barnabas.server.replication")

_CHUNK: Final = 1 << 20


def tail_path(target: Log, offset: int) -> str:
    """Where the records of `target` from `offset` on are saved."""
    name = target.topic_partition
    directory = target.path.rpartition("/")[0]
    return f"{directory}/{offset:020d}.mirror-tail-{name.topic}-{name.partition}-{target.log_end_offset}.log"


async def save_tail(target: Log, offset: int, disk: Executor) -> str:
    """Save the records from `offset` on, and sync them. Nothing may be appended meanwhile. Returns the path.

    A file that exists is complete: it was renamed after the sync. Raises StorageError.
    """
    path, fs, loop = tail_path(target, offset), target.fs, asyncio.get_running_loop()
    begin, end = max(offset, target.log_start_offset), target.log_end_offset
    if fs.exists(path):
        other = await loop.run_in_executor(disk, _other_epoch, target.plan_read(begin, 1), fs, path)
        if other is not None:
            path = f"{path.removesuffix('.log')}-{other}.log"
        if other is None or fs.exists(path):
            return path
    file = await loop.run_in_executor(disk, fs.open, path + ".tmp", Access.REPLACE)
    try:
        position = 0
        while begin < end:
            plan = target.plan_read(begin, _CHUNK)
            data = await loop.run_in_executor(disk, _copy, plan, file, position)
            batch = last_batch(data)
            if batch is None:
                break  # compaction has removed the last batches
            begin, position = batch.next_offset, position + len(data)
        await loop.run_in_executor(disk, _finish, file, fs, path)
    finally:
        file.close()
    log.warning("the records that a mirror cuts off are saved", partition=str(target.topic_partition), file=path)
    return path


def _other_epoch(plan: LogReadPlan, fs: FileSystem, path: str) -> int | None:
    """The leader epoch of the first batch of the tail; None if that is also the epoch of the first batch of the file,
    which then has the same records: a leader epoch has one batch at an offset."""
    data = plan.run().data
    if not len(data):
        return None
    file = fs.open(path, Access.READ)
    try:
        head = file.read_at(0, HEADER_SIZE)
    finally:
        file.close()
    epoch = read_header(data).partition_leader_epoch
    return None if len(head) == HEADER_SIZE and read_header(head).partition_leader_epoch == epoch else epoch


def _copy(plan: LogReadPlan, file: File, position: int) -> Buffer:
    """Copy whole batches."""
    data = plan.run().data
    end = 0
    for begin, header in iter_batches(data):
        end = begin + header.size
    whole = memoryview(data)[:end]
    file.write_at(position, (whole,))
    return whole


def _finish(file: File, fs: FileSystem, path: str) -> None:
    file.sync()
    fs.rename(path + ".tmp", path)
    fs.sync_dir(path.rpartition("/")[0])
