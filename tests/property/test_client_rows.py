"""`read_rows` (the consumer's way) and `iter_records` (the general way) agree: on good batches and on broken ones."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.values import ConsumerRecord
from barnabas.records.batch import iter_batches, iter_records
from barnabas.records.build import SimpleRecord, build_batch
from barnabas.records.compression import Codec
from barnabas.records.errors import CorruptBatchError
from barnabas.records.rows import read_rows

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


@given(st.lists(RECORDS, min_size=1, max_size=80), st.sampled_from([Codec.NONE, Codec.GZIP]), st.integers(0, 1 << 40))
@settings(deadline=None)
def test_good_batches(records: list[SimpleRecord], codec: Codec, base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset, leader_epoch=7)
    rows = unrolled(batch)
    assert rows == general(batch)
    assert [(row.key, row.value) for row in rows] == [(r.key, r.value) for r in records]
    assert all(type(row) is ConsumerRecord for row in rows)


@given(st.lists(RECORDS, min_size=1, max_size=5), st.data())
@settings(deadline=None, max_examples=300)
def test_broken_batches(records: list[SimpleRecord], data: st.DataObject) -> None:
    """Any byte changed: both give the same records, or both refuse."""
    batch = bytearray(build_batch(records))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(61, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    assert unrolled(bytes(batch)) == general(bytes(batch))
