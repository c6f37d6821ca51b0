"""Records out of buffers: the position, markers, and what aborted transactions leave behind."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.record_stream import RecordStream
from barnabas.client.errors import SerializationError
from barnabas.client.serialization import as_decode, json_deserializer
from barnabas.client.values import FetchedBatches, IsolationLevel
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.protocol.records.errors import CorruptBatchError

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def data(offset: int, *values: bytes, producer: int = -1) -> bytes:
    return build_batch(
        [SimpleRecord(None, value, 5, ()) for value in values],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=producer >= 0,
    )


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    return build_end_txn_marker(
        EndTxn(commit, 0), base_offset=offset, producer_id=producer, producer_epoch=0, timestamp=5
    )


def stream(buffer: bytes, isolation: IsolationLevel, position: int = 0, **options: object) -> RecordStream:
    aborted = ((1, 0), (2, 3))
    fetched = FetchedBatches(TopicPartition("t", 0), position, buffer, 99, 99, 0, aborted)
    return RecordStream(fetched, isolation=isolation, check_crcs=True, **options)  # type: ignore[arg-type]


LOG = b"".join(
    [
        data(0, b"aborted by 1", producer=1),
        data(1, b"plain"),
        marker(2, 1, commit=False),
        data(3, b"aborted by 2", producer=2),
        data(4, b"committed by 1", producer=1),
        marker(5, 1, commit=True),
        marker(6, 2, commit=False),
        data(7, b"committed by 2", producer=2),
    ]
)


def test_read_committed_hides_what_was_aborted() -> None:
    records = stream(LOG, COMMITTED).take(100)
    assert [(r.offset, r.value) for r in records] == [(1, b"plain"), (4, b"committed by 1"), (7, b"committed by 2")]


def test_read_uncommitted_hides_only_markers() -> None:
    assert [r.offset for r in stream(LOG, UNCOMMITTED).take(100)] == [0, 1, 3, 4, 7]


def test_records_before_the_position_are_not_given_again() -> None:
    buffer = data(10, b"a", b"b", b"c", b"d")
    reader = stream(buffer, UNCOMMITTED, position=12)
    assert [r.offset for r in reader.take(1)] == [12]
    assert [r.offset for r in reader.take(5)] == [13]
    assert reader.take(5) == []


def test_a_partial_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    buffer = data(0, b"a") + data(1, b"b")[:-3]
    assert [r.offset for r in stream(buffer, UNCOMMITTED).take(10)] == [0]


def test_damage_is_found() -> None:
    damaged = bytearray(data(0, b"abc"))
    damaged[-2] ^= 0xFF
    with pytest.raises(CorruptBatchError, match="CRC"):
        stream(bytes(damaged), UNCOMMITTED).take(1)


def test_deserializers_and_their_failures() -> None:
    good = stream(data(0, b'{"a":1}'), UNCOMMITTED, value=as_decode(json_deserializer, "value"))
    assert good.take(1)[0].value == {"a": 1}
    bad = stream(data(0, b"{"), UNCOMMITTED, value=as_decode(json_deserializer, "value"))
    with pytest.raises(SerializationError, match="value deserializer failed for topic 't'"):
        bad.take(1)
