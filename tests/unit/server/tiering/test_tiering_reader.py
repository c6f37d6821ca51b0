"""Remote segments give what the local log gives: records, records by timestamp, aborted transactions, producers.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.protocol.records.batch import iter_batches
from barnabas.protocol.records.log_files import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX
from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.storage.values import EMPTY_READ
from barnabas.server.tiering.errors import (
    DamagedObjectError,
    ObjectMissingError,
    RemoteStorageError,
    StoreUnavailableError,
)
from barnabas.server.tiering.reading.chunks import ChunkLimits, ChunkReader
from barnabas.server.tiering.reading.index_cache import IndexCache, IndexCacheConfig
from barnabas.server.tiering.reading.reader import RemoteReader
from barnabas.server.tiering.sources import closed_segments, source_of
from barnabas.server.tiering.store.names import object_name
from barnabas.testing.sim.disk import MemoryDisk
from tests.unit.server.storage.logs import batch
from tests.unit.server.tiering.house import DISK, House, LoopClock, run
from tests.unit.server.tiering.segments import PARTITION

LIMITS = ChunkLimits(
    remote_log_reader_threads=2, remote_log_reader_max_pending_tasks=10, cache_bytes_max=2_000, chunk_bytes=150
)
CACHE = IndexCacheConfig(
    remote_log_index_file_cache_total_size_bytes=1 << 20, remote_log_index_file_cache_ttl_ms=900_000
)


class ReadingHouse(House):
    """A house whose segments are copied and read."""

    def __init__(
        self, seed: int = 1, limits: ChunkLimits = LIMITS, cache: IndexCacheConfig = CACHE, **config: Any
    ) -> None:
        super().__init__(seed, **config)
        self.cache_disk = MemoryDisk()
        self.chunks = ChunkReader(self.store, limits)
        self.indexes = IndexCache(self.store, self.cache_disk, "/cache", DISK, LoopClock(), cache)
        self.reader = RemoteReader(self.store, self.chunks, self.indexes)

    async def copy_all(self) -> None:
        log = self.harness.log
        for closed in closed_segments(log):
            source = source_of(log, closed)
            assert source is not None
            await self.copier.copy(PARTITION, source)

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[RemoteReader]:
        self.indexes.prepare()
        running = asyncio.ensure_future(self.chunks.run())
        await asyncio.sleep(0)
        await self.copy_all()
        self.objects.calls.clear()
        try:
            yield self.reader
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def calls(self, suffix: str) -> list[str]:
        return [method for method, name in self.objects.calls if name.endswith(suffix)]

    def run(self, main: Callable[[RemoteReader], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            async with self.reading() as reader:
                await main(reader)

        run(whole)


def full_house(**options: Any) -> ReadingHouse:
    house = ReadingHouse(**options)
    house.fill(12)
    return house


def test_every_offset_gives_the_bytes_of_the_local_log() -> None:
    house = full_house()

    async def main(reader: RemoteReader) -> None:
        for segment in house.remote.readable_segments():
            for offset in range(segment.start_offset, segment.end_offset + 1):
                for max_bytes in (1, 120, 300, 10_000):
                    for min_one_batch in (True, False):
                        local = house.harness.log.read(offset, max_bytes, min_one_batch=min_one_batch)
                        remote = await reader.read(segment, offset, max_bytes, min_one_batch=min_one_batch)
                        assert (bytes(remote.data), remote.first_offset) == (bytes(local.data), local.first_offset)

    house.run(main)


def test_an_offset_above_the_segment_is_not_in_it() -> None:
    house = full_house()

    async def main(reader: RemoteReader) -> None:
        segment = house.remote.readable_segments()[0]
        assert await reader.read(segment, segment.end_offset + 1, 100) == EMPTY_READ

    house.run(main)


def test_a_reader_that_goes_on_needs_one_request_for_each_chunk() -> None:
    house = full_house()

    async def main(reader: RemoteReader) -> None:
        segment = house.remote.readable_segments()[0]
        offset = segment.start_offset
        while offset <= segment.end_offset:
            data = (await reader.read(segment, offset, 1)).data
            offset = next(header for _, header in iter_batches(data)).next_offset
        assert len(house.calls(LOG)) == -(-segment.size_bytes // LIMITS.chunk_bytes)
        assert house.calls(OFFSET_INDEX) == ["read"]
        assert house.chunks.kept_bytes <= LIMITS.cache_bytes_max

    house.run(main)


def test_many_readers_of_a_segment_share_the_requests() -> None:
    house = full_house()
    house.objects.faults.delay_ms = 50

    async def main(reader: RemoteReader) -> None:
        segment = house.remote.readable_segments()[0]
        results = await asyncio.gather(*(reader.read(segment, 0, 200) for _ in range(50)))
        assert len({bytes(result.data) for result in results}) == 1
        assert len(house.calls(LOG)) == 3 and len(house.calls(OFFSET_INDEX)) == 1

    house.run(main)


def test_reads_beyond_the_limit_are_refused() -> None:
    house = full_house(limits=replace(LIMITS, remote_log_reader_threads=1, remote_log_reader_max_pending_tasks=1))
    house.objects.faults.delay_ms = 50

    async def main(reader: RemoteReader) -> None:
        segments = house.remote.readable_segments()
        results = await asyncio.gather(
            *(reader.read(segment, segment.start_offset, 1) for segment in segments), return_exceptions=True
        )
        refused = [result for result in results if isinstance(result, BaseException)]
        assert 0 < len(refused) < len(segments)
        assert all("remote.log.reader.max.pending.tasks" in str(error) for error in refused)

    house.run(main)


def test_a_read_that_is_given_up_does_not_disturb_the_others() -> None:
    house = full_house()
    house.objects.faults.delay_ms = 200

    async def main(reader: RemoteReader) -> None:
        segment = house.remote.readable_segments()[0]
        patient = asyncio.ensure_future(reader.read(segment, 0, 100))
        impatient = asyncio.ensure_future(reader.read(segment, 0, 100))
        while not house.calls(LOG):
            await asyncio.sleep(0.001)
        impatient.cancel()
        assert (await patient).first_offset == 0
        assert len(house.calls(LOG)) == 3  # the chunks of the segment

    house.run(main)


def test_the_kept_chunks_stay_below_their_limit() -> None:
    house = full_house(limits=replace(LIMITS, cache_bytes_max=160))

    async def main(reader: RemoteReader) -> None:
        for segment in house.remote.readable_segments():
            await reader.read(segment, segment.start_offset, 10_000)
            assert house.chunks.kept_bytes <= 160

    house.run(main)


def test_kept_indexes_stay_below_their_limit_and_expire() -> None:
    house = full_house(cache=replace(CACHE, remote_log_index_file_cache_total_size_bytes=20))

    async def main(reader: RemoteReader) -> None:
        for segment in house.remote.readable_segments():
            await reader.read(segment, segment.start_offset, 1)
            assert house.indexes.size_bytes <= 20
        assert sum(map(len, house.cache_disk.files("/cache").values())) == house.indexes.size_bytes

    house.run(main)


def test_the_size_of_the_kept_indexes_is_right_after_a_store_that_failed() -> None:
    """Readers that wait for an index that could not be read fetch it again, perhaps at the same time."""
    house = full_house()

    async def main(reader: RemoteReader) -> None:
        segment = house.remote.readable_segments()[0]
        house.objects.faults.cut_off = True
        house.objects.faults.delay_ms = 10
        first = [asyncio.ensure_future(house.indexes.get(segment)) for _ in range(2)]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        house.objects.faults.cut_off = False
        second = [asyncio.ensure_future(house.indexes.get(segment)) for _ in range(2)]
        await asyncio.gather(*first, *second, return_exceptions=True)
        assert house.indexes.size_bytes == sum(map(len, house.cache_disk.files("/cache").values()))

    house.run(main)


def test_readers_get_an_error_when_the_broker_stops() -> None:
    house = full_house()

    async def main(reader: RemoteReader) -> None:
        segment = house.remote.readable_segments()[0]
        house.objects.faults.hangs = 1.0
        chunks = ChunkReader(house.store, LIMITS)
        running = asyncio.ensure_future(chunks.run())
        await asyncio.sleep(0)
        reading = asyncio.ensure_future(chunks.read(object_name(segment, LOG), segment.size_bytes, 0, 1))
        while not house.calls(LOG):
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(StoreUnavailableError, match="The broker is stopping"):
            async with asyncio.timeout(60):
                await reading

    house.run(main)


def test_unused_indexes_are_deleted_after_their_time() -> None:
    house = full_house()

    async def main(reader: RemoteReader) -> None:
        first, second, *_ = house.remote.readable_segments()
        await reader.read(first, first.start_offset, 1)
        await asyncio.sleep(901)
        await reader.read(second, second.start_offset, 1)
        assert len(house.cache_disk.files("/cache")) == 1

    house.run(main)


def test_a_local_disk_that_fails_costs_only_the_kept_index() -> None:
    house = full_house()

    async def main(reader: RemoteReader) -> None:
        segment = house.remote.readable_segments()[0]
        house.indexes.prepare()
        await reader.read(segment, 0, 1)
        for name in house.cache_disk.listdir("/cache"):
            house.cache_disk.unlink(f"/cache/{name}")
        assert (await reader.read(segment, 0, 1)).first_offset == 0
        assert house.calls(OFFSET_INDEX) == ["read", "read"]

    house.run(main)


@pytest.mark.parametrize("timestamp", [0, 1_000, 1_004, 1_016, 1_030, 9_999])
def test_records_are_found_by_their_timestamp(timestamp: int) -> None:
    house = full_house()
    segments_end = closed_segments(house.harness.log)[-1].next_offset

    async def main(reader: RemoteReader) -> None:
        for least_offset in (0, 7):
            found = None
            segments = house.remote.readable_segments()
            async for candidate in reader.candidates(segments, timestamp, least_offset, 1_000_000):
                found = candidate.find()
                if found is not None:
                    break
            expected = max(timestamp - 1_000, least_offset)
            assert found == ((1_000 + expected, expected) if expected < segments_end else None)

    house.run(main)


def test_aborted_transactions_are_found_in_later_segments() -> None:
    house = ReadingHouse()
    for producer_id in (7, 8):
        house.harness.append(batch(3, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True))
    house.fill(6)
    house.harness.marker(8, 0, commit=False)
    house.fill(3)
    house.harness.marker(7, 0, commit=False)
    house.fill(6)
    log = house.harness.log

    async def main(reader: RemoteReader) -> None:
        segments = house.remote.readable_segments()
        end = segments[-1].end_offset + 1
        for start in range(0, end, 2):
            for stop in range(start + 1, end):
                found, complete = await reader.aborted_transactions(segments, start, stop)
                assert found == log.aborted_transactions(start, stop)
                assert not complete or found
        assert house.calls(TXN_INDEX) == ["read", "read"]  # once for each segment with an abort marker

    house.run(main)


def test_the_producers_and_the_leader_epochs_are_those_of_the_segments_end() -> None:
    house = ReadingHouse()
    house.harness.append(batch(3, producer_id=7, producer_epoch=1, base_sequence=5))
    house.fill(4)

    async def main(reader: RemoteReader) -> None:
        segment = house.remote.readable_segments()[0]
        (producer,) = await reader.producers(segment)
        assert (producer.producer_id, producer.epoch, producer.batches[-1].last_sequence) == (7, 1, 7)
        assert await reader.leader_epochs(segment) == (EpochEntry(0, 0),)

    house.run(main)


@pytest.mark.parametrize(
    ("suffix", "data"),
    [(LOG, b""), (LOG, b"\xff" * 381), (TIME_INDEX, b"\1"), (TXN_INDEX, b"\1"), (SNAPSHOT, b"damaged")],
)
def test_a_damaged_object_is_reported(suffix: str, data: bytes) -> None:
    house = full_house()

    async def main(reader: RemoteReader) -> None:
        segment = replace(house.remote.readable_segments()[0], txn_index_empty=False)
        house.objects.objects[object_name(segment, suffix)] = data
        with pytest.raises(DamagedObjectError, match=suffix):
            match suffix:
                case ".log":
                    await reader.read(segment, 0, 100)
                case ".timeindex":
                    async for _ in reader.candidates([segment], 1_000, 0, 1_000_000):
                        pass
                case ".txnindex":
                    await reader.aborted_transactions([segment], 0, 5)
                case _:
                    await reader.producers(segment)

    house.run(main)


def test_a_missing_object_is_reported() -> None:
    house = full_house()

    async def main(reader: RemoteReader) -> None:
        segment = house.remote.readable_segments()[0]
        house.objects.objects.clear()
        with pytest.raises(ObjectMissingError):
            await reader.read(segment, 0, 100)

    house.run(main)


@pytest.mark.parametrize("seed", range(10))
def test_a_store_that_fails_gives_errors_or_the_right_bytes(seed: int) -> None:
    house = full_house(seed=seed)

    async def main(reader: RemoteReader) -> None:
        house.objects.faults.fails, house.objects.faults.hangs, house.objects.faults.delay_ms = 0.3, 0.05, 30
        read = 0
        for segment in house.remote.readable_segments():
            for offset in range(segment.start_offset, segment.end_offset + 1):
                try:
                    remote = await reader.read(segment, offset, 300)
                except RemoteStorageError:
                    continue
                read += 1
                assert bytes(remote.data) == bytes(house.harness.log.read(offset, 300).data)
        assert read > 10

    house.run(main)
