"""`read_rows` (the consumer's way) and `iter_records` (the general way) agree: on good batches and on broken ones."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.values import ConsumerRecord
from barnabas.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.protocol.records.rows import read_rows

BYTES = st.one_of(st.none(), st.binary(max_size=20), st.integers(60, 300).map(bytes), st.just(bytes(9_000)))
RECORDS = st.builds(
    SimpleRecord,
    BYTES,
    BYTES,
    st.one_of(st.integers(0, 300), st.integers(0, 1 << 50)),
    st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=2).map(tuple),
)


def general(batch: bytes) -> Any:
    pos, header = next(iter_batches(batch))
    kind, epoch = int(header.timestamp_type), header.partition_leader_epoch
    try:
        return [
            ConsumerRecord("t", 3, r.offset, r.timestamp, kind, r.key, r.value, r.headers, epoch)
            for r in iter_records(batch, pos, header)
        ]
    except CorruptBatchError:
        return CorruptBatchError


def unrolled(batch: bytes) -> Any:
    pos, header = next(iter_batches(batch))
    try:
        return read_rows(batch, pos, header, ConsumerRecord, "t", 3)
    except CorruptBatchError:
        return CorruptBatchError


@given(
    st.lists(RECORDS, min_size=1, max_size=80),
    st.sampled_from([CompressionType.NONE, CompressionType.GZIP]),
    st.integers(0, 1 << 40),
)
@settings(deadline=None)
def test_good_batches(records: list[SimpleRecord], codec: CompressionType, base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset, leader_epoch=7)
    rows = unrolled(batch)
    assert rows == general(batch)
    assert [(row.key, row.value) for row in rows] == [(r.key, r.value) for r in records]
    assert all(type(row) is ConsumerRecord for row in rows)


SHAPES = st.tuples(
    st.integers(1, 200),  # how many
    st.sampled_from([None, 0, 1, 8, 70]),  # sizes of key,
    st.sampled_from([None, 0, 3, 60, 100, 1_000]),  # and value
    st.sampled_from([0, 1, 3, 64]),  # ms between timestamps
    st.sampled_from([(), (("h", b"1"),)]),
)


def of_shapes(shapes: list[tuple[Any, ...]]) -> list[SimpleRecord]:
    """Runs of records of one shape, their contents different."""
    records: list[SimpleRecord] = []
    for count, key, value, step, headers in shapes:
        for number in range(count):
            parts = [None if size is None else (b"%d" % number).ljust(size, b".")[:size] for size in (key, value)]
            records.append(SimpleRecord(parts[0], parts[1], 1_000 + step * len(records), headers))
    return records


@given(st.lists(SHAPES, min_size=1, max_size=4), st.booleans())
@settings(deadline=None)
def test_runs_of_equal_records(shapes: list[tuple[Any, ...]], append_time: bool) -> None:
    records = of_shapes(shapes)
    batch = build_batch(records, base_offset=500, leader_epoch=7)
    if append_time:
        raw = bytearray(batch)
        raw[22] |= 0x08
        batch = bytes(raw)
    rows = unrolled(batch)
    assert rows == general(batch)
    assert [(row.key, row.value) for row in rows] == [(r.key, r.value) for r in records]
    assert all(type(row) is ConsumerRecord for row in rows)


def test_a_batch_with_offset_deltas_of_three_bytes() -> None:
    batch = build_batch([SimpleRecord(None, b"value", 5)] * 9_000)
    assert unrolled(batch) == general(batch)


@given(st.lists(SHAPES, min_size=1, max_size=2), st.data())
@settings(deadline=None, max_examples=300)
def test_broken_runs(shapes: list[tuple[Any, ...]], data: st.DataObject) -> None:
    batch = bytearray(build_batch(of_shapes(shapes)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(61, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    assert unrolled(bytes(batch)) == general(bytes(batch))


@given(st.lists(SHAPES, min_size=1, max_size=2), st.data())
@settings(deadline=None)
def test_runs_with_holes_of_compaction(shapes: list[tuple[Any, ...]], data: st.DataObject) -> None:
    """Whole records taken out, the offsets of the others kept."""
    kept = of_shapes(shapes)
    places = data.draw(st.sets(st.integers(0, len(kept) + 20), min_size=len(kept), max_size=len(kept)))
    batch = renumbered(kept, sorted(places))
    assert unrolled(batch) == general(batch)
    assert [row.offset for row in unrolled(batch)] == sorted(places)


def renumbered(records: list[SimpleRecord], deltas: list[int]) -> bytes:
    """A batch of these records at these offset deltas."""
    payload = b"".join(
        encode_record(record, delta, record.timestamp - records[0].timestamp)
        for record, delta in zip(records, deltas, strict=True)
    )
    _, header = next(iter_batches(build_batch(records)))
    header = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload), last_offset_delta=deltas[-1], record_count=len(records)
    )
    return header.pack() + payload


def encode_record(record: SimpleRecord, delta: int, time: int) -> bytes:
    parts = b"".join(varint(-1) if part is None else varint(len(part)) + part for part in (record.key, record.value))
    headers = b"".join(
        varint(len(name)) + name.encode() + varint(len(value or b"")) + (value or b"") for name, value in record.headers
    )
    body = b"\0" + varint(time) + varint(delta) + parts + varint(len(record.headers)) + headers
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 127:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


@given(st.lists(RECORDS, min_size=1, max_size=5), st.data())
@settings(deadline=None, max_examples=300)
def test_broken_batches(records: list[SimpleRecord], data: st.DataObject) -> None:
    """Any byte changed: both give the same records, or both refuse."""
    batch = bytearray(build_batch(records))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(61, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    assert unrolled(bytes(batch)) == general(bytes(batch))
