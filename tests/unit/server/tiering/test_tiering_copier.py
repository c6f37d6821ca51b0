"""Segments are copied byte for byte, and a store that fails costs no record and leaves nothing behind.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.protocol.records.log_files import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX, offset_file
from barnabas.protocol.records.validate import Origin
from barnabas.server.storage.epochs import EpochEntry, LeaderEpochs
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.fs import read_file
from barnabas.server.storage.producers.snapshots import decode_snapshot
from barnabas.server.tiering.errors import DamagedObjectError, RemoteStorageError, StoreUnavailableError
from barnabas.server.tiering.sources import closed_segments, source_of
from barnabas.server.tiering.store.names import LEADER_EPOCHS
from barnabas.server.tiering.values import RemoteSegmentState
from tests.unit.server.storage.logs import batch
from tests.unit.server.tiering.house import House, run
from tests.unit.server.tiering.segments import DELETED, DELETING, FINISHED, PARTITION


async def copy_all(house: House) -> None:
    log = house.harness.log
    for closed in closed_segments(log):
        source = source_of(log, closed)
        assert source is not None
        await house.copier.copy(PARTITION, source)


def local(house: House, offset: int, suffix: str) -> bytes:
    log = house.harness.log
    return read_file(log.fs, f"{log.path}/{offset_file(offset, suffix)}")


def test_the_objects_have_the_bytes_of_the_local_files() -> None:
    house = House()
    house.fill(12)

    run(lambda: copy_all(house))

    closed = closed_segments(house.harness.log)
    assert len(closed) > 2
    for suffix in (LOG, OFFSET_INDEX, TIME_INDEX):
        assert house.stored(suffix) == {s.base_offset: local(house, s.base_offset, suffix) for s in closed}
    assert house.stored(SNAPSHOT) == {s.base_offset: local(house, s.next_offset, SNAPSHOT) for s in closed}
    assert house.stored(TXN_INDEX) == {}
    segments = house.remote.readable_segments()
    assert [(s.start_offset, s.end_offset, s.size_bytes) for s in segments] == [
        (s.base_offset, s.next_offset - 1, s.size_bytes) for s in closed
    ]
    assert all(s.txn_index_empty and s.max_timestamp == 1_000 + s.end_offset for s in segments)
    assert house.topic.replayed().segments() == house.remote.segments()


def test_the_leader_epochs_of_a_segment_and_of_the_log_before_it_are_copied() -> None:
    house = House()
    log = house.harness.log
    for epoch in (3, 5):
        log.assign_epoch(epoch, log.log_end_offset)
        for _ in range(4):
            house.harness.append(batch(3), epoch=epoch)

    run(lambda: copy_all(house))

    segments = house.remote.readable_segments()
    assert segments[0].leader_epochs == (EpochEntry(3, 0),)
    assert segments[1].leader_epochs == (EpochEntry(3, segments[1].start_offset), EpochEntry(5, 12))
    stored = house.stored(LEADER_EPOCHS)[segments[1].start_offset]
    assert LeaderEpochs.decode(stored, "object").entries == (EpochEntry(3, 0), EpochEntry(5, 12))


def test_a_transaction_index_is_copied_if_there_is_one() -> None:
    house = House()
    house.harness.append(batch(3, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    house.harness.marker(7, 0, commit=False)
    house.fill(6)

    run(lambda: copy_all(house))

    assert house.stored(TXN_INDEX) == {0: local(house, 0, TXN_INDEX)}
    assert [s.txn_index_empty for s in house.remote.readable_segments()][:2] == [False, True]


def test_missing_index_files_and_snapshots_are_rebuilt_for_the_copy() -> None:
    house = House()
    house.harness.append(batch(3, producer_id=7, producer_epoch=0, base_sequence=0), origin=Origin.CLIENT)
    house.fill(8)
    log = house.harness.log
    first = closed_segments(log)[0]
    expected = {
        suffix: local(house, offset, suffix)
        for suffix, offset in ((OFFSET_INDEX, 0), (TIME_INDEX, 0), (SNAPSHOT, first.next_offset))
    }
    for suffix, offset in ((OFFSET_INDEX, 0), (TIME_INDEX, 0), (SNAPSHOT, first.next_offset)):
        log.fs.unlink(f"{log.path}/{offset_file(offset, suffix)}")

    run(lambda: copy_all(house))

    assert house.stored(OFFSET_INDEX)[0] == expected[OFFSET_INDEX]
    assert house.stored(TIME_INDEX)[0] == expected[TIME_INDEX]
    rebuilt = decode_snapshot(house.stored(SNAPSHOT)[0], "object")
    assert [(e.producer_id, e.batches) for e in rebuilt] == [
        (e.producer_id, e.batches) for e in decode_snapshot(expected[SNAPSHOT], "file")
    ]


def states(house: House) -> list[RemoteSegmentState]:
    return [s.state for s in house.remote.segments()]


def test_a_failed_copy_is_deleted_at_once() -> None:
    house = House()
    house.fill(4)

    async def main() -> None:
        house.objects.faults.loses = 1.0
        with pytest.raises(DamagedObjectError, match="the object store has lost it"):
            await copy_all(house)

    run(main)

    assert states(house) == [] and house.objects.objects == {} and not house.copier.copying
    assert len(house.topic.records) == 3  # copy started, delete started, delete finished


def test_a_copy_that_cannot_be_deleted_either_stays_for_the_leader_to_delete() -> None:
    house = House()
    house.fill(4)

    async def main() -> None:
        house.objects.faults.cut_off = True
        with pytest.raises(StoreUnavailableError):
            await copy_all(house)
        assert states(house) == [DELETING]
        house.objects.faults.cut_off = False
        await house.copier.delete(house.remote.segments()[0])

    run(main)
    assert states(house) == []


def test_nothing_is_uploaded_before_the_copy_is_announced() -> None:
    house = House()
    house.fill(4)
    house.topic.fails = 1
    with pytest.raises(RemoteStorageError, match="no leader"):
        run(lambda: copy_all(house))
    assert house.objects.calls == []


def test_a_leader_that_was_replaced_during_its_copy_deletes_its_objects() -> None:
    house = House()
    house.fill(4)
    house.objects.faults.delay_ms = 100

    async def main() -> None:
        copying = asyncio.ensure_future(copy_all(house))
        while not house.remote.segments():
            await asyncio.sleep(0.01)
        (segment,) = house.remote.segments()
        for state in (DELETING, DELETED):  # the new leader finds a copy that nobody finishes
            assert await house.topic.write(segment.update(state, 2, 0))
        with pytest.raises(RemoteStorageError, match="another leader has deleted it"):
            await copying

    run(main)
    assert house.objects.objects == {} and house.remote.readable_segments() == []


def test_a_store_that_never_answers_ends_the_attempt() -> None:
    house = House()
    house.fill(4)
    house.objects.faults.hangs = 1.0
    with pytest.raises(StoreUnavailableError, match=r"did not respond to storing .* for 5000 ms"):
        run(lambda: copy_all(house))


def test_a_slow_upload_that_makes_progress_is_not_cut_off() -> None:
    house = House()
    house.fill(4)
    house.objects.faults.delay_ms = 2_000
    run(lambda: copy_all(house))
    assert states(house) == [FINISHED]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_store_does_a_readable_segment_is_complete(seed: int) -> None:
    house = House(seed)
    house.fill(12)
    faults = house.objects.faults
    faults.fails, faults.loses, faults.hangs, faults.delay_ms = 0.1, 0.05, 0.03, 50

    async def main() -> None:
        for closed in closed_segments(house.harness.log):
            source = source_of(house.harness.log, closed)
            assert source is not None
            while True:
                try:
                    await house.copier.copy(PARTITION, source)
                    break
                except (RemoteStorageError, StorageError):
                    house.topic.fails = house.rng.randrange(2)
        faults.fails = faults.loses = faults.hangs = 0
        for segment in house.remote.segments():
            if segment.state is not FINISHED:
                await house.copier.delete(segment)

    run(main, seed)

    closed = closed_segments(house.harness.log)
    assert house.stored(LOG) == {s.base_offset: local(house, s.base_offset, LOG) for s in closed}
    assert len(house.objects.objects) == 5 * len(closed)  # without leftovers
    assert states(house) == [FINISHED] * len(closed)
