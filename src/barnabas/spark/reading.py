"""Shell: what runs in a worker: one range of a partition, as the Arrow batches that Spark takes over unchanged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.client.errors import OffsetOutOfRangeError
from barnabas.client.fetching import next_position
from barnabas.client.partition_reader import OffsetRange
from barnabas.spark.connection import connect
from barnabas.spark.options import SourceOptions
from barnabas.spark.planner import Range

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("barnabas.spark")

ROWS_PER_BATCH = 10_000
BYTES_PER_BATCH = 1024 * 1024
"""Spark works best on batches of about so many rows or bytes: smaller ones cost calls, larger ones miss its caches."""


def read_range(options: SourceOptions, columns: tuple[str, ...], wanted: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range. Raises DataLossError when it is not in the log any more and `failOnDataLoss` is true."""
    client = connect(options.client)
    position = wanted.start
    while position < wanted.end:
        bounds = OffsetRange(wanted.tp, position, wanted.end)
        try:
            for batches in client.fetch(bounds, stall_timeout_ms=options.stall_timeout_ms):
                yield from slices(decode(client, batches, bounds, columns))
                position = next_position(batches.buffer, position)
            return
        except OffsetOutOfRangeError as error:
            position = skip_lost(error, Range(wanted.tp, position, wanted.end), options.on_data_loss)


def slices(table: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cuts a batch into pieces of a size that suits Spark."""
    rows = table.num_rows
    if rows == 0:
        return
    step = max(1, min(ROWS_PER_BATCH, BYTES_PER_BATCH * rows // max(1, table.nbytes)))
    for start in range(0, rows, step):
        yield table.slice(start, step)
