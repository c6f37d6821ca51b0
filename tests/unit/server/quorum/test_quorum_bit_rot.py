"""A flipped bit in the metadata log or in a snapshot prevents the start, and never removes records in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from barnabas.protocol.records.batch import iter_batches
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.quorum.raft_log import RaftLog
from barnabas.server.quorum.snapshot_files import SnapshotDamagedError, name_of
from barnabas.server.quorum.snapshot_store import SnapshotStore
from barnabas.server.raft.machine.events import AdvanceStart, Append, StartLogAt, TruncateFrom
from barnabas.server.raft.machine.values import OffsetAndEpoch, RaftBatch
from barnabas.testing.sim.disk import MemoryDisk
from tests.unit.server.coordination.kit import LoopClock
from tests.unit.server.quorum.kit import LOG, InlineExecutor, run, topics

FILE = f"{LOG}/00000000000000000000.log"


def opened(disk: MemoryDisk, *, clean: bool = False) -> RaftLog:
    fs, executor = disk.mount(), InlineExecutor()
    fs.mkdir(LOG)
    log = RaftLog(fs, LOG, SnapshotStore(fs, LOG, executor), clock=LoopClock(), executor=executor, clean_shutdown=clean)
    log.open()
    return log


def append(log: RaftLog, offset: int, epoch: int = 1) -> None:
    payload = build_batch([SimpleRecord(None, b"x" * 40)], base_offset=offset, leader_epoch=epoch)
    log.apply(Append(RaftBatch(offset, 1, epoch, payload, ())))


async def filled(disk: MemoryDisk, batches: int = 10) -> RaftLog:
    log = opened(disk)
    for offset in range(batches):
        append(log, offset)
    await log.sync()
    await asyncio.sleep(3)  # virtual seconds: the synced offset is stored
    return log


def in_loop(body: Callable[[MemoryDisk], object]) -> None:
    run(lambda: body(MemoryDisk()))  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("batch", [0, 4, 9])
@pytest.mark.parametrize("byte", [5, 10, 14, 30, 80])
def test_flipped_bit_prevents_the_start(batch: int, byte: int, *, clean: bool) -> None:
    async def main(disk: MemoryDisk) -> None:
        log = await filled(disk)
        if clean:
            log.close(clean=True)
        position = [at for at, _ in iter_batches(disk.data(FILE))][batch]
        disk.flip_bit(FILE, position + byte, 3)
        with pytest.raises(MetadataError, match="this node does not start") as raised:
            opened(disk, clean=clean)
        assert FILE in str(raised.value)
        assert "barnabas logs repair" in str(raised.value)

    in_loop(main)


def test_shortened_log_prevents_the_start() -> None:
    async def main(disk: MemoryDisk) -> None:
        await filled(disk)
        size = [at for at, _ in iter_batches(disk.data(FILE))][7]
        del disk.data(FILE)[size:]
        with pytest.raises(MetadataError, match="everything below offset 10 was on the disk"):
            opened(disk)

    in_loop(main)


def test_unsynced_batches_that_a_power_failure_tore_are_cut() -> None:
    async def main(disk: MemoryDisk) -> None:
        log = await filled(disk)
        for offset in range(10, 30):
            append(log, offset)
        positions = [at for at, _ in iter_batches(disk.data(FILE))]
        lost = (positions[12] // 512 + 1) * 512
        disk.data(FILE)[lost : lost + 512] = bytes(512)
        end = next(n for n, at in enumerate(positions) if at >= lost) - 1
        found = opened(disk)
        assert found.end_offset in (end, end + 1)

    in_loop(main)


def test_leader_epochs_that_a_power_failure_tore_are_found_in_the_log() -> None:
    async def main(disk: MemoryDisk) -> None:
        log = opened(disk)
        for offset in range(10):
            append(log, offset, epoch=1 + offset // 3)
        await log.sync()
        await asyncio.sleep(3)  # virtual seconds: the synced offset is stored
        del disk.data(f"{LOG}/leader-epoch-checkpoint")[-2:]
        found = opened(disk)
        assert found.end_offset == 10
        assert [batch.epoch for batch in found.batches_from(0)] == [1 + offset // 3 for offset in range(10)]
        assert found.latest_epoch == 4

    in_loop(main)


def test_truncation_lowers_the_stored_offset_first() -> None:
    async def main(disk: MemoryDisk) -> None:
        log = await filled(disk)
        log.apply(TruncateFrom(4))
        append(log, 4, epoch=2)
        disk.lose_power()
        assert opened(disk).end_offset == 10  # the truncation was not synced: the old batches are there
        log = opened(disk)
        log.apply(TruncateFrom(4))
        append(log, 4, epoch=2)
        await log.sync()
        disk.lose_power()
        assert opened(disk).end_offset == 5

    in_loop(main)


async def with_snapshots(disk: MemoryDisk) -> list[OffsetAndEpoch]:
    log = opened(disk)
    ends = [OffsetAndEpoch(1, 4), OffsetAndEpoch(1, 8)]
    for end in ends:
        for offset in range(end.offset - 4, end.offset):
            append(log, offset)
        await log.sync()
        store = SnapshotStore(disk.mount(), LOG, InlineExecutor())
        await store.store(end, topics("a"), timestamp_ms=1, metadata_version=29, kraft_version=0, voters=None)
        log.apply(AdvanceStart(end))
    return ends


def test_older_snapshot_and_the_log_replace_a_damaged_snapshot() -> None:
    async def main(disk: MemoryDisk) -> None:
        first, second = await with_snapshots(disk)
        disk.flip_bit(f"{LOG}/{name_of(second)}", 100)
        assert opened(disk).open().start == first

    in_loop(main)


def test_damaged_snapshot_whose_records_are_nowhere_else_prevents_the_start() -> None:
    async def main(disk: MemoryDisk) -> None:
        await with_snapshots(disk)
        third = OffsetAndEpoch(2, 20)
        store = SnapshotStore(disk.mount(), LOG, InlineExecutor())
        await store.store(third, topics("b"), timestamp_ms=1, metadata_version=29, kraft_version=0, voters=None)
        opened(disk).apply(StartLogAt(third))
        disk.flip_bit(f"{LOG}/{name_of(third)}", 100)
        with pytest.raises((SnapshotDamagedError, MetadataError), match=r"snapshot"):
            opened(disk)

    in_loop(main)
