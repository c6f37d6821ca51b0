"""A range as a table: the newest record of each key, with the columns and the schema that Spark expects."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest

from barnabas.client.values import FetchedBatches
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.spark.errors import OptionError
from barnabas.spark.options import QueryMode
from barnabas.spark.schema import TABLE_DDL, arrow_schema
from barnabas.spark.source import table as reading
from barnabas.spark.source.fetched import FetchedRange
from barnabas.spark.source.options import columns_of, parse_source_options
from barnabas.spark.source.planner import PartitionRange
from barnabas.spark.source.positions import EARLIEST, AtEdge

T0 = TopicPartition("t", 0)
GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "readAs": "table"}
ALL = tuple(TABLE_DDL)

Pair = tuple[bytes | None, bytes | None]


def read(
    monkeypatch: pytest.MonkeyPatch, pairs: list[Pair], wanted: reading.TableRead, bounds: tuple[int, int]
) -> list[pa.RecordBatch]:
    """The rows of a range of a log with one record for each pair, in batches of three."""
    left = PartitionRange(T0, *bounds)

    def fetch_range(*_: object) -> Iterator[FetchedRange]:
        for at in range(0, len(pairs), 3):
            records = [SimpleRecord(key, value, 1000 + at) for key, value in pairs[at : at + 3]]
            buffer = bytes(build_batch(records, base_offset=at))
            yield FetchedRange(left, FetchedBatches(T0, at, buffer, 1_000, 1_000, 0), True)

    monkeypatch.setattr(reading, "fetch_range", fetch_range)
    options = parse_source_options(GIVEN, QueryMode.BATCH)
    return list(reading.read_table(options, wanted, left))


PAIRS: list[Pair] = [
    (b"a", b"1"), (b"b", b"2"), (None, b"no key"), (b"a", b"3"), (b"c", b"4"), (b"b", None), (b"c", b"5"), (b"d", b"6"),
]  # fmt: skip


def test_table_has_the_newest_value_of_each_key(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = reading.TableRead(("key", "value", "offset"), tombstones=False)
    with caplog.at_level(logging.WARNING):
        rows = pa.Table.from_batches(read(monkeypatch, PAIRS, wanted, (0, 7)))
    assert rows.to_pylist() == [
        {"key": b"a", "value": b"3", "offset": 3},
        {"key": b"c", "value": b"5", "offset": 6},  # the range ends before the record of d
    ]
    assert "1 records of t-0 have no key" in caplog.text


def test_changes_name_upserts_and_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = read(monkeypatch, PAIRS, reading.TableRead(ALL, tombstones=True), (1, 8))
    assert all(part.schema.equals(arrow_schema(ALL)) for part in parts)
    rows = pa.Table.from_batches(parts).select(["key", "value", "offset", "changeType"])
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        (b"a", b"3", 3, "upsert"),
        (b"b", None, 5, "delete"),
        (b"c", b"5", 6, "upsert"),
        (b"d", b"6", 7, "upsert"),
    ]


def test_change_type_needs_no_value_column(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = read(monkeypatch, PAIRS, reading.TableRead(("changeType", "key"), tombstones=True), (4, 6))
    assert pa.Table.from_batches(parts).to_pylist() == [
        {"changeType": "upsert", "key": b"c"},
        {"changeType": "delete", "key": b"b"},
    ]


def test_columns_of_a_table() -> None:
    assert columns_of(GIVEN)[-2:] == ("timestampType", "changeType")
    assert columns_of({**GIVEN, "includeHeaders": "true"})[-2:] == ("headers", "changeType")
    assert columns_of({**GIVEN, "columns": "key,CHANGETYPE"}) == ("key", "changeType")
    with pytest.raises(OptionError, match="exists only with readAs=table"):
        columns_of({**GIVEN, "readAs": "log", "columns": "key,changeType"})


def test_table_begins_at_the_beginning() -> None:
    for mode in QueryMode:
        assert parse_source_options(GIVEN, mode).starting == AtEdge(EARLIEST)
        assert parse_source_options({**GIVEN, "startingOffsets": "earliest"}, mode).starting == AtEdge(EARLIEST)
    with pytest.raises(OptionError, match="startingTimestamp is not valid with readAs=table in a batch"):
        parse_source_options({**GIVEN, "startingTimestamp": "5"}, QueryMode.BATCH)
    with pytest.raises(OptionError, match="readAs must be one of log, table, got 'tabel'"):
        parse_source_options({**GIVEN, "readAs": "tabel"}, QueryMode.BATCH)
