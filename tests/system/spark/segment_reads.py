"""A topic with closed segments of every kind of record, and its rows read in both ways: by files, and by the broker.

The rows are read by the reader that Spark runs, in this process and without a Spark session.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from barnabas.client.partition_reader import OffsetRange
from barnabas.client.values import FetchedBatches
from barnabas.spark.connection import LogClient
from barnabas.spark.options import QueryMode
from barnabas.spark.schema import DDL, TABLE_DDL
from barnabas.spark.source.options import parse_source_options
from barnabas.spark.source.reader import BatchReader
from tests.system.spark.broker import Record, Topics

Options = dict[str, str]
COMMITTED = {"kafka.isolation.level": "read_committed"}


def fill(topics: Topics, topic: str) -> None:
    """Several segments of a megabyte: all codecs, nulls, headers, committed and aborted transactions."""
    topics.create(topic, 2, segment_bytes="1048576")
    value = bytes(range(256)) * 40

    def records(start: int, count: int) -> list[Record]:
        return [
            Record(
                None if i % 11 == 0 else b"%d:" % i + value[: 1000 + i % 9000],
                b"k%d" % (i % 200),
                i % 2,
                1_700_000_000_000 + i,
                (("h", b"%d" % i), ("n", None)) if i % 3 == 0 else (),
            )
            for i in range(start, start + count)
        ]

    for number, codec in enumerate(["none", "lz4", "zstd", "gzip", "snappy"]):
        topics.produce(topic, records(number * 1000, 500), compression_type=codec)
        topics.transaction(topic, records(number * 1000 + 500, 200), commit=number % 2 == 0)
    topics.produce(topic, records(9000, 800))


def read(options: Options, **more: str) -> pa.Table:
    """The rows of a batch read."""
    columns = tuple(TABLE_DDL) if more.get("readAs") == "table" else tuple(DDL)
    reader = BatchReader(parse_source_options({**options, **more}, QueryMode.BATCH), columns)
    parts = [part for task in reader.partitions() for part in reader.read(task)]
    return pa.Table.from_batches(parts)


def record_fetches(monkeypatch: pytest.MonkeyPatch) -> list[OffsetRange]:
    """The ranges that readers in this process fetch from brokers from now on."""
    ranges: list[OffsetRange] = []
    fetch = LogClient.fetch

    def recording(self: LogClient, wanted: OffsetRange, *, stall_timeout_ms: float) -> Iterator[FetchedBatches]:
        ranges.append(wanted)
        return fetch(self, wanted, stall_timeout_ms=stall_timeout_ms)

    monkeypatch.setattr(LogClient, "fetch", recording)
    return ranges


def check_both_ways(options: Options, fetched: list[OffsetRange]) -> pa.Table:
    """Compare the rows of a topic that `fill` has filled, read from segments and through the broker; returns the
    committed ones. `fetched` has the ranges that are fetched from the broker.
    """
    expected = pa.table({})
    for isolation in ({"kafka.isolation.level": "read_uncommitted"}, COMMITTED):
        fetched.clear()
        expected = read(options, **isolation)
        assert expected.num_rows > 3_000
        offsets = sum(wanted.end - wanted.start for wanted in fetched)
        fetched.clear()
        assert read(options, **isolation, readFrom="segments").equals(expected)
        assert sum(wanted.end - wanted.start for wanted in fetched) < 0.6 * offsets, "closed segments were fetched"
        assert read(options, **isolation, readFrom="segments", maxRecordsPerPartition="300").equals(expected)
    table = read(options, readAs="table", **COMMITTED)
    assert 100 < table.num_rows <= 200
    assert read(options, readAs="table", readFrom="segments", **COMMITTED).equals(table)
    return expected
