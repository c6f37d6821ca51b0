"""Shell: what runs in a worker: one range of a partition, as the Arrow batches that Spark takes over unchanged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.client.errors import OffsetOutOfRangeError
from barnabas.client.fetching import next_position
from barnabas.client.partition_reader import OffsetRange
from barnabas.client.values import FetchedBatches
from barnabas.protocol.records.columnar import DecodeOptions, iter_arrow
from barnabas.protocol.records.columnar.segments import Selection
from barnabas.spark.connection import connect
from barnabas.spark.options import OnDataLoss, SourceOptions
from barnabas.spark.planner import Loss, LossKind, PartitionRange, judge

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("barnabas.spark")

ROWS_PER_BATCH = 10_000
BYTES_PER_BATCH = 1024 * 1024
"""Spark works best on batches of about so many rows or bytes: smaller ones cost calls, larger ones miss its caches."""


def read_range(options: SourceOptions, columns: tuple[str, ...], wanted: PartitionRange) -> Iterator[pa.RecordBatch]:
    """The records of a range. Raises DataLossError when it is not in the log any more and `failOnDataLoss` is true."""
    client = connect(options.client)
    position = wanted.start
    while position < wanted.end:
        bounds = OffsetRange(wanted.tp, position, wanted.end)
        try:
            for batches in client.fetch(bounds, stall_timeout_ms=options.stall_timeout_ms):
                yield from decode(batches, bounds, columns, check_crcs=bool(client.settings["check.crcs"]))
                position = next_position(batches.buffer, position)
            return
        except OffsetOutOfRangeError as error:
            position = step_over(error, PartitionRange(wanted.tp, position, wanted.end), options.on_data_loss)


def decode(
    batches: FetchedBatches, bounds: OffsetRange, columns: tuple[str, ...], *, check_crcs: bool = True
) -> Iterator[pa.RecordBatch]:
    """The records in the range, without markers, and without aborted ones when the fetch was read_committed."""
    tp = bounds.partition
    selection = Selection(bounds.start, bounds.end, batches.aborted, check_crcs)
    wanted = DecodeOptions(tp.topic, tp.partition, columns, selection, ROWS_PER_BATCH, BYTES_PER_BATCH)
    return iter_arrow([batches.buffer], wanted)


def step_over(error: OffsetOutOfRangeError, left: PartitionRange, on_data_loss: OnDataLoss) -> int:
    """Where to read on after records vanished between planning and reading; `left.end` when nothing is left."""
    if error.log_start_offset > left.start:
        found = min(error.log_start_offset, left.end)
        loss = Loss(left.tp, LossKind.AGED_OUT, left.start, found, found - left.start)
    elif error.log_end_offset >= left.start:
        raise error  # the log does hold it: a leader that is still catching up; Spark tries the task again
    else:
        found = left.end
        loss = Loss(left.tp, LossKind.TRUNCATED, left.start, error.log_end_offset, left.size)
    judge([loss], on_data_loss)
    log.warning("data loss: %s", loss)
    return found
