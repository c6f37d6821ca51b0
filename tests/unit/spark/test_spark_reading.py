"""Reading one range as Arrow: records outside the range are dropped, and deleted records are losses."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest

from barnabas.client.errors import OffsetOutOfRangeError, TopicReplacedError
from barnabas.client.partition_reader import OffsetRange
from barnabas.client.values import FetchedBatches
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.spark.errors import DataLossError
from barnabas.spark.options import OnDataLoss
from barnabas.spark.schema import DDL, arrow_schema
from barnabas.spark.source import ranges as reading
from barnabas.spark.source.planner import PartitionRange

T0 = TopicPartition("t", 0)


def batch(first: int, count: int, size: int = 1, codec: CompressionType = CompressionType.NONE) -> bytes:
    records = [SimpleRecord(None, b"%d" % i * size, 1000 + i) for i in range(first, first + count)]
    return bytes(build_batch(records, base_offset=first, codec=codec))


def fetched(buffer: bytes, position: int = 0) -> FetchedBatches:
    return FetchedBatches(T0, position, buffer, 1_000_000, 1_000_000, 0)


def test_range_is_read_as_batches_with_sparks_schema() -> None:
    buffer = batch(0, 10) + batch(20, 10, codec=CompressionType.LZ4)  # compaction removed the offsets 10 to 19
    found = list(reading.decode(fetched(buffer), OffsetRange(T0, 5, 25), tuple(DDL)))
    assert all(part.schema.equals(arrow_schema(tuple(DDL))) for part in found)
    table = pa.Table.from_batches(found)
    assert table["offset"].to_pylist() == [*range(5, 10), *range(20, 25)]
    assert table["value"].to_pylist() == [b"%d" % i for i in [*range(5, 10), *range(20, 25)]]


def test_batches_have_about_the_target_size() -> None:
    small = [
        part.num_rows for part in reading.decode(fetched(batch(0, 25_000)), OffsetRange(T0, 0, 25_000), ("value",))
    ]
    assert small == [10_000, 10_000, 5_000]
    large = list(reading.decode(fetched(batch(0, 50, size=50_000)), OffsetRange(T0, 0, 50), ("value",)))
    assert len(large) >= 4
    assert sum(part.num_rows for part in large) == 50


def test_records_deleted_by_retention_are_a_loss() -> None:
    error = OffsetOutOfRangeError(T0, 5, 20, 100)
    with pytest.raises(DataLossError, match="offsets 5 to 19"):
        reading.resume_after_loss(error, PartitionRange(T0, 5, 50), OnDataLoss.FAIL)
    assert reading.resume_after_loss(error, PartitionRange(T0, 5, 50), OnDataLoss.SKIP) == 20
    assert reading.resume_after_loss(error, PartitionRange(T0, 5, 15), OnDataLoss.REPORT) == 15


def test_truncated_log_is_a_loss() -> None:
    error = OffsetOutOfRangeError(T0, 5, 0, 3)
    with pytest.raises(DataLossError, match="the log ends at offset 3"):
        reading.resume_after_loss(error, PartitionRange(T0, 5, 50), OnDataLoss.FAIL)
    assert reading.resume_after_loss(error, PartitionRange(T0, 5, 50), OnDataLoss.SKIP) == 50


def test_a_topic_that_was_replaced_is_a_loss() -> None:
    error = TopicReplacedError(T0, 5, UUID(int=1), UUID(int=2))
    with pytest.raises(
        DataLossError, match=r"was replaced: .*id AAAAAAAAAAAAAAAAAAAAAQ, .*id AAAAAAAAAAAAAAAAAAAAAg now"
    ):
        reading.resume_after_loss(error, PartitionRange(T0, 5, 50), OnDataLoss.FAIL)
    assert reading.resume_after_loss(error, PartitionRange(T0, 5, 50), OnDataLoss.SKIP) == 50


def test_out_of_range_offset_inside_the_log_is_retried() -> None:
    with pytest.raises(OffsetOutOfRangeError):
        reading.resume_after_loss(OffsetOutOfRangeError(T0, 5, 0, 100), PartitionRange(T0, 5, 50), OnDataLoss.SKIP)
