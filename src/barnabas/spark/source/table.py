"""Shell: runs in a worker: reads one range of a partition as a table, the newest record of each key (`readAs=table`).

All records of a key must be in one partition, which every producer with Kafka's partitioner ensures. One task therefore
reads a whole partition, and sees every record of its keys. The task yields its rows after the last record was read. A
table of a batch query has no row for a key whose newest record is a tombstone, a record with a null value. The table of
a micro-batch has these rows, and the column `changeType` names them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from barnabas.protocol.records.columnar import DecodeOptions, NewestByKey, table_to_arrow
from barnabas.protocol.records.columnar.segments import RecordTable, Selection, iter_tables
from barnabas.spark.schema import CHANGE_TYPE, DELETE, UPSERT, arrow_schema
from barnabas.spark.source.fetched import FetchedRange
from barnabas.spark.source.options import SourceOptions
from barnabas.spark.source.planner import PartitionRange
from barnabas.spark.source.ranges import BYTES_PER_BATCH, ROWS_PER_BATCH, fetch_range
from barnabas.spark.source.segment_plan import NO_SEGMENTS, SegmentSources

log = logging.getLogger("barnabas.spark")


@dataclass(frozen=True, slots=True)
class TableRead:
    """What the rows of a table have: their columns, and whether there are rows for deleted keys."""

    columns: tuple[str, ...]
    tombstones: bool


def read_table(
    options: SourceOptions, wanted: TableRead, bounds: PartitionRange, sources: SegmentSources = NO_SEGMENTS
) -> Iterator[pa.RecordBatch]:
    """The newest record of each key in a range, in the order of their offsets. Raises DataLossError if the range is
    not in the log any more and `failOnDataLoss` is true.
    """
    secret = int.from_bytes(os.urandom(8), "big"), int.from_bytes(os.urandom(8), "big")
    newest = NewestByKey(secret, tombstones=wanted.tombstones)
    for fetched in fetch_range(options, bounds, sources):
        for table in record_tables(fetched):
            newest.add(table)
    if newest.keyless:
        log.warning(
            "readAs=table: %d records of %s have no key and are left out; read them with readAs=log",
            newest.keyless,
            bounds.tp,
        )
    for table in newest.tables():
        yield from to_arrow(table, bounds, wanted.columns)


def record_tables(fetched: FetchedRange) -> Iterator[RecordTable]:
    """The records of a fetch, without transaction markers and records of aborted transactions."""
    bounds, batches = fetched.bounds, fetched.batches
    selection = Selection(bounds.start, bounds.end, batches.aborted, fetched.check_crcs)
    return iter_tables([batches.buffer], selection)


def to_arrow(table: RecordTable, bounds: PartitionRange, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The rows of a table as Arrow batches with these columns."""
    stored = tuple(name for name in columns if name != CHANGE_TYPE)
    options = DecodeOptions(
        bounds.tp.topic,
        bounds.tp.partition,
        stored,
        rows_max=ROWS_PER_BATCH,
        bytes_max=BYTES_PER_BATCH,
    )
    first = 0
    for batch in table_to_arrow(table, options):
        rows = slice(first, first + batch.num_rows)
        first = rows.stop
        if len(stored) == len(columns):
            yield batch
            continue
        arrays = dict(zip(stored, batch.columns, strict=True))
        arrays[CHANGE_TYPE] = change_types(table.value_len[rows])
        yield pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=arrow_schema(columns))


def change_types(value_lengths: Any) -> pa.Array:
    """The column `changeType` of records with values of these lengths; -1 is a null value."""
    deleted = np.asarray(value_lengths) < 0
    if not deleted.any():
        return pa.repeat(pa.scalar(UPSERT), len(deleted))
    names = pa.DictionaryArray.from_arrays(pa.array(deleted.astype(np.int8)), pa.array([UPSERT, DELETE]))
    return names.cast(pa.string())
