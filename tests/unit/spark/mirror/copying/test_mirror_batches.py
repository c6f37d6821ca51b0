"""Fetched batches become batches of the target: the same records in the same order, whole where that is possible."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import Record, TimestampType, iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch, rebuild_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.spark.mirror.copying.batches import (
    MERGED_BELOW_BYTES,
    CopiedBatch,
    FetchedPart,
    consecutive,
    copy_batches,
)
from barnabas.spark.mirror.copying.values import Provenance

Plain = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


def records_of(copied: Sequence[CopiedBatch]) -> list[Record]:
    """The records with their upstream offsets."""
    found = []
    for batch in copied:
        offsets = [first + i for first, count in batch.upstream for i in range(count)]
        ((pos, header),) = iter_batches(batch.data)
        assert (header.base_offset, header.last_offset_delta + 1) == (0, batch.records)
        records = list(iter_records(batch.data, pos, header))
        assert [record.offset for record in records] == list(range(batch.records))
        found += [record._replace(offset=offset) for record, offset in zip(records, offsets, strict=True)]
    return found


def source(
    *batches: Sequence[Plain], start: int = 0, codec: CompressionType = CompressionType.NONE
) -> tuple[bytes, list[Record]]:
    data, records, offset = b"", [], start
    for batch in batches:
        data += build_batch([SimpleRecord(k, v, t, h) for k, v, t, h in batch], base_offset=offset, codec=codec)
        records += [Record(offset + i, t, k, v, h) for i, (k, v, t, h) in enumerate(batch)]
        offset += len(batch)
    return data, records


small = st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | small), max_size=3).map(tuple)
plain = st.tuples(st.none() | small, st.none() | small, st.integers(0, 1 << 45), headers)
batches = st.lists(st.lists(plain, min_size=1, max_size=5), min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(batches, st.sampled_from(list(CompressionType)), st.sampled_from([None, *CompressionType]), st.integers(0, 8))
def test_records_keep_everything_whatever_the_codecs_and_the_position(
    wanted: list[list[Plain]], codec: CompressionType, target: CompressionType | None, skipped: int
) -> None:
    data, records = source(*wanted, start=100, codec=codec)
    copied = list(copy_batches(FetchedPart(data, 100 + skipped), target))
    assert records_of(copied) == [record for record in records if record.offset >= 100 + skipped]
    for batch in copied:
        ((_, header),) = iter_batches(batch.data)
        assert header.codec is (codec if target is None else target)


def test_a_large_batch_is_copied_whole_and_small_ones_are_written_together() -> None:
    large: list[Plain] = [(b"k", b"v" * MERGED_BELOW_BYTES, 5, ())]
    little: list[Plain] = [(b"a", b"b", 6, ())]
    data, records = source(large, little, little, large)
    copied = list(copy_batches(FetchedPart(data, 0)))
    assert [batch.records for batch in copied] == [1, 2, 1]
    assert records_of(copied) == records


def test_one_small_batch_alone_is_copied_whole() -> None:
    data, _ = source([(None, b"v", 7, ())], start=3)
    (batch,) = copy_batches(FetchedPart(data, 3))
    assert isinstance(batch.data, bytearray), "its bytes were copied, not encoded"
    assert batch.upstream == ((3, 1),)


def test_timestamps_of_the_broker_become_those_of_the_records() -> None:
    data = build_batch(
        [SimpleRecord(None, b"v", 1)], timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=9_000
    )
    (batch,) = copy_batches(FetchedPart(data, 0))
    ((_, header),) = iter_batches(batch.data)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.CREATE_TIME, 9_000)
    assert [record.timestamp for record in records_of([batch])] == [9_000]


def test_gaps_of_compaction_are_closed() -> None:
    data, records = source([(b"k%d" % i, b"v", i, ()) for i in range(5)])
    ((pos, header),) = iter_batches(data)
    kept = [record for record in iter_records(data, pos, header) if record.offset not in (0, 3)]
    compacted = rebuild_batch(header, kept)
    copied = list(copy_batches(FetchedPart(compacted, 0)))
    assert [batch.upstream for batch in copied] == [[(1, 2), (4, 1)]]
    assert records_of(copied) == [records[1], records[2], records[4]]


def transaction(producer_id: int, offset: int, value: bytes) -> bytes:
    return build_batch(
        [SimpleRecord(None, value, 1)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def test_aborted_records_and_markers_are_left_out() -> None:
    log = [
        transaction(1, 0, b"committed"),
        transaction(2, 1, b"aborted"),
        marker(2, 2, commit=False),
        transaction(2, 3, b"committed later"),
        marker(1, 4, commit=True),
    ]
    copied = list(copy_batches(FetchedPart(b"".join(log), 0, aborted=[(2, 1)])))
    assert [(record.offset, record.value) for record in records_of(copied)] == [
        (0, b"committed"),
        (3, b"committed later"),
    ]
    everything = records_of(list(copy_batches(FetchedPart(b"".join(log), 0))))
    assert [record.offset for record in everything] == [0, 1, 3]


def marker(producer_id: int, offset: int, *, commit: bool) -> bytes:
    return build_end_txn_marker(
        EndTxn(commit, 0), producer_id=producer_id, producer_epoch=0, timestamp=1, base_offset=offset
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(plain, min_size=1, max_size=6), st.sampled_from(list(CompressionType)))
def test_the_header_of_provenance_is_added_once_and_own_records_do_not_come_back(
    wanted: list[Plain], codec: CompressionType
) -> None:
    name = "origin"
    given_headers = [(("x", b"1"),), ((name, b"A"),), ((name, b"B"),), ((name, None),), ()]
    mixed = [(k, v, t, (*h, *given_headers[i % 5])) for i, (k, v, t, h) in enumerate(wanted)]
    data, records = source(mixed, codec=codec)
    copied = records_of(list(copy_batches(FetchedPart(data, 0), None, Provenance(name, "A", "B"))))
    expected = []
    for record in records:
        names = dict(record.headers)
        if (name, b"B") in record.headers:
            continue
        expected.append(record if name in names else record._replace(headers=(*record.headers, (name, b"A"))))
    assert copied == expected


def test_runs_of_offsets() -> None:
    import numpy as np

    assert consecutive(np.array([], np.int64)) == []
    assert consecutive(np.array([4, 5, 6, 9, 11, 12], np.int64)) == [(4, 3), (9, 1), (11, 2)]
