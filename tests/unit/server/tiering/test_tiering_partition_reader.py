"""A log that is read from its start to its end: first the remote segments, then the local ones."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import iter_batches
from barnabas.server.storage.log import Log
from barnabas.server.storage.lookups import CandidateBatch
from barnabas.server.storage.values import AbortedTxn, TimestampOffset
from barnabas.server.tiering.errors import RemoteStorageError
from barnabas.server.tiering.reading.partition_reader import RemotePartitionReader, RemoteRange, RemoteRecords
from tests.unit.server.storage.logs import batch
from tests.unit.server.tiering.house import DISK, run
from tests.unit.server.tiering.segments import DELETING, PARTITION
from tests.unit.server.tiering.test_tiering_reader import ReadingHouse


class LocalHouse(ReadingHouse):
    """A house whose first two segments are only in the object store."""

    def __init__(self, *fill: Callable[[LocalHouse], None]) -> None:
        super().__init__(tiered=True, local_retention_ms=1, retention_ms=-1)
        for each in fill or (lambda house: house.fill(16),):
            each(self)
        self.partitions = RemotePartitionReader(self.topic, self.reader, DISK, remote_fetch_max_wait_ms=500)

    @property
    def log(self) -> Log:
        return self.harness.log

    def go(self, main: Callable[[RemotePartitionReader], Coroutine[Any, Any, None]]) -> None:
        """Copy the segments, delete the first two, and run `main`."""

        async def whole() -> None:
            async with self.reading():
                self.log.highest_copied_offset = self.log.segments.bases[2] - 1
                self.log.flush()
                assert self.log.enforce_retention(10_000_000, self.log.log_end_offset) == 2
                await main(self.partitions)

        run(whole)


def wanted(
    offset: int, max_bytes: int = 200, *, upper_offset: int = 1 << 62, with_aborted: bool = False
) -> RemoteRange:
    return RemoteRange(offset, upper_offset, max_bytes, min_one_batch=True, with_aborted=with_aborted)


async def find(candidate: CandidateBatch) -> tuple[int, int] | None:
    return candidate.find()


def test_all_records_are_read_across_the_local_start() -> None:
    house = LocalHouse()

    async def main(reader: RemotePartitionReader) -> None:
        offset, offsets = 0, []
        while offset < house.log.local_log_start_offset:
            records = await reader.read(PARTITION, house.log, wanted(offset))
            for _, header in iter_batches(records.data):
                offsets.append(header.base_offset)
                offset = header.next_offset
        assert offset == house.log.local_log_start_offset
        assert offsets == list(range(0, offset, 3))

    house.go(main)


def test_a_read_that_ends_in_the_local_log_stops_at_the_high_watermark() -> None:
    """Compaction had removed the last batches of a remote segment, so the records after it are local."""

    def fill(house: LocalHouse) -> None:
        house.fill(16)
        segments = house.log.segments
        segments.floor(segments.bases[1]).truncate_to(segments.bases[2] - 1)

    house = LocalHouse(fill)

    async def main(reader: RemotePartitionReader) -> None:
        start = house.log.local_log_start_offset
        records = await reader.read(PARTITION, house.log, wanted(start - 1, 10_000, upper_offset=start + 3))
        assert [header.base_offset for _, header in iter_batches(records.data)] == [start]

    house.go(main)


def test_aborted_transactions_are_gathered_from_remote_and_local_segments() -> None:
    def fill(house: LocalHouse) -> None:
        for producer_id in (7, 8):
            house.harness.append(
                batch(3, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
            )
        house.fill(4)
        house.harness.marker(8, 0, commit=False)
        house.fill(8)
        house.harness.marker(7, 0, commit=False)
        house.fill(2)

    house = LocalHouse(fill)
    expected = house.log.aborted_transactions(0, 3)
    assert [txn.producer_id for txn in expected] == [7]

    async def main(reader: RemotePartitionReader) -> None:
        records = await reader.read(PARTITION, house.log, wanted(0, 1, with_aborted=True))
        assert records.aborted == expected
        assert isinstance(expected[0], AbortedTxn)

    house.go(main)


def test_a_slow_store_gives_no_records_first_and_all_of_them_later() -> None:
    house = LocalHouse()

    async def main(reader: RemotePartitionReader) -> None:
        house.objects.faults.delay_ms = 2_000
        assert await reader.read(PARTITION, house.log, wanted(0, with_aborted=True)) == RemoteRecords(b"", [])
        for _ in range(40):
            records = await reader.read(PARTITION, house.log, wanted(0))
            if records.data:
                break
        assert next(header for _, header in iter_batches(records.data)).base_offset == 0

    house.go(main)


def test_an_offset_whose_segment_is_gone_is_repeated_until_the_log_start_is_above() -> None:
    house = LocalHouse()

    async def main(reader: RemotePartitionReader) -> None:
        first, second, *_ = house.remote.readable_segments()
        await house.topic.write(first.update(DELETING, 1, 0))
        with pytest.raises(RemoteStorageError, match="No readable remote segment has offset 1"):
            await reader.read(PARTITION, house.log, wanted(1))
        house.log.advance_log_start(second.start_offset)
        with pytest.raises(KafkaError) as error:
            await reader.read(PARTITION, house.log, wanted(1))
        assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    house.go(main)


def test_offsets_of_timestamps_and_the_latest_tiered_offset() -> None:
    house = LocalHouse()

    async def main(reader: RemotePartitionReader) -> None:
        assert await reader.find_timestamp(PARTITION, house.log, 1_004, find) == TimestampOffset(1_004, 4, 0)
        assert await reader.find_timestamp(PARTITION, house.log, 9_999, find) is None
        last = house.remote.readable_segments()[-1].end_offset
        assert reader.highest_copied(PARTITION, house.log) == TimestampOffset(-1, last, 0)

    house.go(main)
