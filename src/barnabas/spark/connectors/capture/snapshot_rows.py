"""Machine: the rows of a staged file of a snapshot as changes with op `r`, as the events of a snapshot have them.

Debezium's words in `source.snapshot`: `first` for the first row of the snapshot, `first_in_data_collection` and
`last_in_data_collection` for those of a table, `last` for the last row of the snapshot, `true` for all others.
"""

from __future__ import annotations

from typing import Any

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.capture.manifest import Manifest, StagedFile
from barnabas.spark.connectors.capture.ports import RowPositions, TableChange
from barnabas.spark.connectors.events.changes import READ, ChangeBatch, TableSchema


def snapshot_change(
    table: TableSchema, batch: Any, words: Any, taken_us: int, positions: RowPositions, place: str
) -> TableChange:
    """Rows of a record batch with the table's columns. `words` are those of `snapshot_words` for these rows."""
    rows = batch.num_rows
    fields = [pa.field(column.name, column.type) for column in table.columns]
    changes = ChangeBatch(
        table,
        np.full(rows, READ, np.uint8),
        None,
        pa.StructArray.from_arrays(batch.columns, fields=fields),
        np.arange(rows, dtype=np.int64),
        np.full(rows, taken_us, np.int64),
        positions,
        snapshot=words,
    )
    return TableChange(changes, pa.array([place]).take(pa.array(np.zeros(rows, np.int64))))


def snapshot_words(manifest: Manifest, index: int, first: int, rows: int) -> Any:
    """The words of the rows from `first` on of a file, as an Arrow string array."""
    file: StagedFile = manifest.files[index]
    words = np.full(rows, "true", object)
    if first == 0 and file.rows_before == 0 and rows:
        words[0] = "first" if index == 0 else "first_in_data_collection"
    if file.is_last and first + rows == file.rows and rows:
        words[-1] = "last" if index == len(manifest.files) - 1 else "last_in_data_collection"
    return pa.array(words.tolist(), pa.string())
