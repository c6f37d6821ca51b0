"""Any records, through any codec: built, read, validated, decoded and encoded again they are the same."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.hashing import murmur2
from barnabas.protocol.records import columnar
from barnabas.protocol.records.batch import Record, check_crc, iter_records, read_header
from barnabas.protocol.records.build import BatchBuilder, SimpleRecord, build_batch, rebuild_batch
from barnabas.protocol.records.compression import CompressionType, compress, decompress
from barnabas.protocol.records.scan import check_chain, scan_records
from barnabas.protocol.records.validate import RecordCheck, ValidationRules, validate_and_assign

payloads = st.none() | st.binary(max_size=40) | st.integers(0, 9000).map(lambda n: b"x" * n)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
timestamps = st.integers(0, 2**45) | st.integers(1_700_000_000_000, 1_700_000_000_100)
records = st.builds(SimpleRecord, payloads, payloads, timestamps, headers)
batches = st.lists(records, min_size=1, max_size=70)
codecs = st.sampled_from(CompressionType)
offsets = st.integers(0, 2**62)


def opened(data: bytes) -> list[Record]:
    header = read_header(data)
    check_crc(data, 0, header)
    return list(iter_records(data, 0, header))


def expected(batch: list[SimpleRecord], base: int) -> list[Record]:
    return [Record(base + i, r.timestamp, r.key, r.value, tuple(r.headers)) for i, r in enumerate(batch)]  # type: ignore[arg-type]


@given(batches, codecs, offsets)
def test_built_and_read(batch: list[SimpleRecord], codec: CompressionType, base: int) -> None:
    data = build_batch(batch, codec=codec, base_offset=base)
    assert opened(data) == expected(batch, base)
    assert rebuild_batch(read_header(data), opened(data)) == data


@given(batches, codecs)
def test_the_accumulator_builds_the_same(batch: list[SimpleRecord], codec: CompressionType) -> None:
    builder = BatchBuilder(1 << 30, codec=codec)
    for record in batch:
        assert builder.try_append(record.key, record.value, record.timestamp, record.headers) is not None
    assert builder.build() == build_batch(batch, codec=codec)


@given(batches, codecs, st.none() | codecs, st.sampled_from(RecordCheck))
def test_validated(
    batch: list[SimpleRecord], codec: CompressionType, target: CompressionType | None, check: RecordCheck
) -> None:
    rules = ValidationRules(
        "t", compression_type=target, record_check=check, timestamp_after_max_ms=2**60, max_message_bytes=1 << 30
    )
    validated = validate_and_assign(
        build_batch(batch, codec=codec), rules, first_offset=9, leader_epoch=2, now_ms=2**40
    )
    stored = b"".join(validated.parts)
    assert opened(stored) == expected(batch, 9)
    assert read_header(stored) == validated.batches[0]
    assert validated.max_timestamp == max(r.timestamp for r in batch)


@given(batches)
def test_both_depths_of_checking_agree(batch: list[SimpleRecord]) -> None:
    payload = build_batch(batch)[61:]
    start = check_chain(payload, len(batch))
    found = scan_records(payload, len(batch), 0)
    base = batch[0].timestamp
    times = [r.timestamp - base for r in batch]
    assert (found.min_timestamp, found.max_timestamp) == (min(times), max(times))
    assert found.keyless == sum(r.key is None for r in batch)
    assert start <= len(payload)


@given(st.binary(max_size=20_000) | st.integers(0, 200_000).map(bytes), codecs, st.none() | st.integers(1, 12))
def test_compressed_and_inflated(data: bytes, codec: CompressionType, level: int | None) -> None:
    assert (
        decompress(
            codec, compress(codec, data, min(level, 9) if level and codec is CompressionType.GZIP else level), len(data)
        )
        == data
    )


@settings(deadline=None)
@given(st.lists(batches, min_size=1, max_size=4), st.lists(codecs, min_size=4, max_size=4))
def test_columns_and_back(several: list[list[SimpleRecord]], codec_of: list[CompressionType]) -> None:
    base, data, flat = 0, [], []
    for batch, codec in zip(several, codec_of, strict=False):
        data.append(build_batch(batch, base_offset=base, codec=codec))
        flat += batch
        base += len(batch)
    table = columnar.decode_to_arrow([b"".join(data)], columnar.DecodeOptions("t", 0, rows_max=13))
    table.validate(full=True)
    assert table["offset"].to_pylist() == list(range(base))
    assert table["key"].to_pylist() == [r.key for r in flat]
    assert table["value"].to_pylist() == [r.value for r in flat]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [r.timestamp * 1000 for r in flat]
    encoded = columnar.encode_from_arrow(
        key=table["key"],
        value=table["value"],
        timestamp=table["timestamp"],
        headers=table["headers"],
        options=columnar.EncodeOptions(batch_bytes_max=3000),
    )
    for batch_bytes, first, count in encoded:
        assert bytes(batch_bytes) == build_batch(flat[first : first + count])
    partitions = columnar.partitions_for_keys(table["key"], 11)
    assert partitions.tolist() == [-1 if r.key is None else (murmur2(r.key) & 0x7FFFFFFF) % 11 for r in flat]
