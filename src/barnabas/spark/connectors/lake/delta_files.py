"""Codec: rows divided by partition values, and the partition values and statistics of a Delta data file.

The Delta protocol stores partition values as text, not in the file (its section "Partition Value Serialization"), and
the statistics of a file as JSON: numRecords, and minValues, maxValues and nullCount of columns.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from barnabas.spark.connectors.lake.errors import LakeError

STATISTICS_COLUMNS: Final = 32
"""Statistics are kept of the first columns only, as in the protocol's reference implementation."""
READ_BYTES: Final = 1 << 20
"""Bytes of a column that are read of a file at once."""
TEXT_BYTES_MAX: Final = 64
"""A longer text has no minimum and maximum, so that a commit stays small."""
_NULL_DIRECTORY: Final = "__HIVE_DEFAULT_PARTITION__"


def partition_slices(rows: Any, partitions: Sequence[str]) -> Iterator[tuple[dict[str, str | None], Any]]:
    """The rows of each combination of partition values, without the partition columns."""
    if not rows.num_rows:
        return
    if not partitions:
        yield {}, rows
        return
    ordered = rows.sort_by([(name, "ascending") for name in partitions])
    groups = (
        ordered.select(list(partitions)).group_by(list(partitions), use_threads=False).aggregate([([], "count_all")])
    )
    shown = ordered.drop_columns(list(partitions))
    start = 0
    for group in groups.to_pylist():
        count = group.pop("count_all")
        yield {name: partition_text(name, group[name]) for name in partitions}, shown.slice(start, count)
        start += count


def partition_text(name: str, value: Any) -> str | None:
    """A partition value as the protocol writes it. Raises LakeError for types that are no partition value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        return (
            value.astimezone(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            if (value.tzinfo)
            else value.isoformat(" ", timespec="microseconds")
        )
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, (int, str, Decimal)):
        return str(value)
    raise LakeError(f"the column {name} has values of the type {type(value).__name__}, which cannot divide a table")


def partition_directory(values: Mapping[str, str | None]) -> str:
    """`region=eu/day=2026-11-23/`. Characters that are no letters or digits are percent-encoded, as Hive does it."""
    return "".join(
        f"{quote(name, safe='')}={_NULL_DIRECTORY if not value else quote(value, safe=' ')}/"
        for name, value in values.items()
    )


def column_statistics(metadata: Any, schema: Any) -> dict[str, Any]:
    """The statistics of a Parquet file from its footer (`pyarrow.parquet.FileMetaData`), as the object that the JSON
    shows.
    """
    names = [field.name for field in schema if not pa.types.is_nested(field.type)][:STATISTICS_COLUMNS]
    nulls: dict[str, int] = {}
    bounds: dict[str, tuple[Any, Any] | None] = {}
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            name = column.path_in_schema
            if name not in names or column.statistics is None:
                continue
            found = column.statistics
            if found.has_null_count:
                nulls[name] = nulls.get(name, 0) + found.null_count
            if not found.has_min_max:
                if found.null_count != column.num_values:  # a row group of nulls has no bounds, and limits none
                    bounds[name] = None
                continue
            low, high = _json_value(found.min), _json_value(found.max)
            before = bounds.get(name, (low, high))
            known = before is not None and low is not None and high is not None
            bounds[name] = (min(before[0], low), max(before[1], high)) if known and before is not None else None
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: pair[0] for name, pair in bounds.items() if pair is not None},
        "maxValues": {name: pair[1] for name, pair in bounds.items() if pair is not None},
        "nullCount": nulls,
    }


def _json_value(value: Any) -> Any:
    """A bound as the protocol writes it; None if the bound is left out."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime.datetime):
        # strftime("%Y") writes years before 1000 with less than four digits
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value.encode()) <= TEXT_BYTES_MAX else None
    return value if isinstance(value, int) else None


def file_batches(fragment: Any, schema: Any, columns: Sequence[str], rows_max: int) -> Iterator[Any]:
    """Columns of a data file, a fragment of deltalake's dataset with this schema, by at most `rows_max` rows. PyArrow's
    scanner would have all rows of a row group in memory. A column that is younger than the file is null.
    """
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    outside = ds.get_partition_keys(fragment.partition_expression)
    with fragment.open() as source, pq.ParquetFile(source, buffer_size=READ_BYTES, pre_buffer=False) as file:
        inside = [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(rows_max, columns=inside):
            arrays = [
                batch[name].cast(schema.field(name).type)
                if name in inside
                else pa.repeat(pa.scalar(outside.get(name), schema.field(name).type), batch.num_rows)
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, list(columns))
