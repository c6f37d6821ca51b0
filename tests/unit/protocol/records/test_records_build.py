"""Building batches: sizes, limits, the producer's accumulator, rebuilding with fewer records."""

from __future__ import annotations

import pytest
from record_crafting import SOME

from barnabas.protocol.records.batch import Record, check_crc, iter_records, read_header
from barnabas.protocol.records.build import BatchBuilder, SimpleRecord, build_batch, rebuild_batch, varint
from barnabas.protocol.records.compression import CompressionType


def opened(data: bytes) -> list[Record]:
    header = read_header(data)
    check_crc(data, 0, header)
    return list(iter_records(data, 0, header))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varints(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])
    with pytest.raises(ValueError, match="at least one"):
        BatchBuilder(1000).build()


def test_the_builder_makes_the_same_batch_and_knows_its_size() -> None:
    builder = BatchBuilder(100_000)
    headers = (("a", b"1"), ("b", None))
    records = [SimpleRecord(b"k", b"v" * 90, 1000 - i, headers) for i in range(100)]
    for delta, (key, value, timestamp, headers_) in enumerate(records):
        assert builder.try_append(key, value, timestamp, headers_) == delta
    data = builder.build(producer_id=5, producer_epoch=1, base_sequence=9, transactional=True)
    assert data == build_batch(records, producer_id=5, producer_epoch=1, base_sequence=9, transactional=True)
    assert (builder.size, builder.record_count) == (len(data), 100)


def test_the_builder_stops_at_its_limit_but_takes_a_large_first_record() -> None:
    builder = BatchBuilder(1000)
    added = 0
    while builder.try_append(b"key", b"v" * 50, 1) is not None:
        added += 1
    assert added == builder.record_count
    assert len(builder.build()) <= 1000 < len(builder.build()) + 60
    large = BatchBuilder(1000)
    assert large.try_append(None, bytes(5000), 1) == 0
    assert large.is_full
    assert large.try_append(None, b"", 1) is None


def test_a_good_compression_ratio_lets_more_in() -> None:
    builder = BatchBuilder(1000, codec=CompressionType.ZSTD, compression_ratio=0.1)
    while builder.try_append(None, b"abcdefghij" * 5, 1) is not None:
        pass
    assert builder.bytes > 9000
    assert builder.size <= 1000
    assert len(builder.build()) < 1000


def test_rebuilding_with_all_records_changes_nothing() -> None:
    for codec in CompressionType:
        data = build_batch(SOME, base_offset=50, producer_id=3, producer_epoch=0, base_sequence=0, codec=codec)
        assert rebuild_batch(read_header(data), opened(data)) == data


def test_rebuilding_keeps_the_offset_range_and_the_sequence() -> None:
    data = build_batch(SOME, base_offset=50, producer_id=3, producer_epoch=0, base_sequence=20)
    kept = [record for record in opened(data) if record.offset in (51, 53)]
    rebuilt = rebuild_batch(read_header(data), kept, codec=CompressionType.LZ4)
    header = read_header(rebuilt)
    assert opened(rebuilt) == kept
    assert (header.base_offset, header.last_offset, header.last_sequence) == (50, 54, 24)
    assert (header.record_count, header.max_timestamp, header.codec) == (2, 1003, CompressionType.LZ4)


def test_a_batch_may_lose_all_its_records() -> None:
    data = build_batch(
        SOME, base_offset=50, producer_id=3, producer_epoch=0, base_sequence=20, codec=CompressionType.ZSTD
    )
    rebuilt = rebuild_batch(read_header(data), [])
    header = read_header(rebuilt)
    assert (len(rebuilt), header.last_offset, header.last_sequence, header.record_count) == (61, 54, 24, 0)
    assert opened(rebuilt) == []
