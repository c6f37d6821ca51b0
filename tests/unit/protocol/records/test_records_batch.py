"""Reading headers and records: what is there, and every way in which it can be wrong."""

from __future__ import annotations

import pytest
from record_crafting import MALFORMED, SOME, batch, damaged, record

from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    Record,
    TimestampType,
    check_crc,
    iter_batches,
    iter_records,
    read_header,
)
from barnabas.protocol.records.build import SimpleRecord, build_batch, varint
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.errors import CorruptBatchError, DecompressionLimitError


def opened(data: bytes) -> list[Record]:
    return list(iter_records(data, 0, read_header(data)))


def test_the_header_says_what_was_built() -> None:
    data = build_batch(
        SOME, base_offset=100, producer_id=7, producer_epoch=2, base_sequence=40, transactional=True, leader_epoch=3
    )
    header = read_header(data)
    assert (header.size, header.base_offset, header.last_offset, header.next_offset) == (len(data), 100, 104, 105)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1004)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 2, 40, 44)
    assert (header.codec, header.timestamp_type) == (CompressionType.NONE, TimestampType.CREATE_TIME)
    assert (header.is_transactional, header.is_control, header.delete_horizon_ms) == (True, False, None)
    assert header.partition_leader_epoch == 3
    assert header.pack() == data[:HEADER_SIZE]


def test_sequences_wrap_to_zero() -> None:
    header = read_header(build_batch(SOME, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 2
    assert read_header(build_batch(SOME)).last_sequence == -1


def test_batches_follow_one_another_and_a_partial_tail_is_left_out() -> None:
    one, two = build_batch(SOME), build_batch(SOME, base_offset=5)
    for cut in range(len(two)):
        assert [(pos, h.base_offset) for pos, h in iter_batches(one + two[:cut])] == [(0, 0)]
    assert [(pos, h.base_offset) for pos, h in iter_batches(one + two)] == [(0, 0), (len(one), 5)]
    assert list(iter_batches(b"")) == []


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_other_magics_are_refused(magic: int) -> None:
    data = bytearray(build_batch(SOME))
    data[16] = magic
    with pytest.raises(CorruptBatchError, match="magic"):
        read_header(data)
    with pytest.raises(CorruptBatchError, match="magic"):
        list(iter_batches(data))


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_impossible_lengths_are_refused(length: int) -> None:
    data = bytearray(build_batch(SOME))
    data[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatchError, match="length"):
        read_header(data)
    with pytest.raises(CorruptBatchError, match="length"):
        list(iter_batches(data))


def test_a_header_needs_61_bytes() -> None:
    data = build_batch(SOME)
    with pytest.raises(CorruptBatchError, match="61 bytes"):
        read_header(data[:60])
    with pytest.raises(CorruptBatchError, match="61 bytes"):
        read_header(data, -1)
    assert read_header(data[:61]).size == len(data)


def test_every_flipped_bit_under_the_crc_is_noticed() -> None:
    data = build_batch(SOME[:2])
    header = read_header(data)
    check_crc(data, 0, header)
    for position in range(21, len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 0x10
        with pytest.raises(CorruptBatchError, match="CRC"):
            check_crc(flipped, 0, read_header(flipped))
    with pytest.raises(CorruptBatchError, match="are left"):
        check_crc(data[:-1], 0, header)


def test_offset_and_leader_epoch_lie_outside_the_crc() -> None:
    data = bytearray(build_batch(SOME))
    data[0:8] = (12345).to_bytes(8, "big")
    data[12:16] = (9).to_bytes(4, "big")
    header = read_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (12345, 9)
    assert check_crc(data, 0, header) is None


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("name", list(MALFORMED))
def test_malformed_records_are_refused(name: str, codec: CompressionType) -> None:
    payload, count = MALFORMED[name]
    with pytest.raises(CorruptBatchError):
        opened(batch(payload, count, codec))


def test_negative_counts_are_refused() -> None:
    with pytest.raises(CorruptBatchError):
        opened(damaged(build_batch(SOME), record_count=-1))


def test_an_emptied_batch_has_no_records() -> None:
    assert opened(batch(b"", 0, last_offset_delta=9)) == []


def test_compaction_leaves_gaps() -> None:
    data = batch(record(1, 5) + record(6, 7, key=None, value=None), 2, last_offset_delta=9, base_offset=10)
    assert opened(data) == [Record(11, 1005, b"k", b"v"), Record(16, 1007, None, None)]


def test_header_keys_that_are_not_utf8_are_replaced() -> None:
    tail = varint(1) + varint(2) + b"\xff\xfe" + varint(-1)
    assert opened(batch(record(0, tail=tail), 1))[0].headers == (("��", None),)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    data = damaged(build_batch(SOME), attributes=codec)
    with pytest.raises(CorruptBatchError, match="codec"):
        opened(data)


@pytest.mark.parametrize(
    "codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
)
def test_records_inflate_only_up_to_the_cap(codec: CompressionType) -> None:
    data = build_batch([SimpleRecord(None, bytes(100_000))], codec=codec)
    header = read_header(data)
    assert len(next(iter_records(data, 0, header, limit_bytes=101_000)).value or b"") == 100_000
    with pytest.raises(DecompressionLimitError):
        next(iter_records(data, 0, header, limit_bytes=100_000))


def test_a_batch_cut_short_is_refused() -> None:
    data = build_batch(SOME)
    with pytest.raises(CorruptBatchError, match="are left"):
        list(iter_records(data[:-1], 0, read_header(data)))
