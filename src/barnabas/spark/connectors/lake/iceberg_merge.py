"""Machine: the rows of a data file and the changes of a micro-batch -> the rows that stay, and the rows that are new.

pyiceberg writes no equality deletes, so a data file with a changed row is replaced (copy on write).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.connectors.lake.columns import fit
from barnabas.spark.connectors.lake.ports import Changes

_ROW: Final = "__barnabas_row"
_OLD: Final = "__barnabas_old"


def kept_rows(rows: Any, keys: Any) -> tuple[Any, Any]:
    """The rows of a file whose keys do not change, in their order, and the others. `keys` are the changed keys."""
    names = keys.column_names
    numbered = _numbered(rows.select(names), _ROW)
    found = numbered.join(keys, names, join_type="left semi")[_ROW].to_numpy()
    changes = np.zeros(rows.num_rows, dtype=bool)
    changes[found] = True
    return rows.filter(pa.array(~changes)), rows.filter(pa.array(changes))


def upserted_rows(changes: Changes, old: Any, schema: Any) -> Any:
    """The new rows with all columns of the table. `old` has the rows of the table that change. A column that a row has
    not received is that of the old row, and null if there is none.
    """
    upserts = changes.upserts
    names = list(changes.keys)
    numbered = _numbered(upserts.select(names), _ROW)
    joined = numbered.join(_numbered(old.select(names), _OLD), names, join_type="left outer").sort_by(_ROW)
    if not changes.inserts:
        joined = joined.filter(pc.is_valid(joined[_OLD]))
    upserts = upserts.take(joined[_ROW].combine_chunks())
    columns = []
    for field in schema:
        if field.name in upserts.column_names and field.name not in changes.received:
            columns.append(upserts[field.name])
            continue
        before = old[field.name].take(joined[_OLD].combine_chunks())
        if field.name in changes.received:
            received = changes.received[field.name].take(joined[_ROW].combine_chunks())
            columns.append(_chosen(received, upserts[field.name], before))
        else:
            columns.append(before)
    return fit(pa.Table.from_arrays(columns, names=schema.names), schema)


def _chosen(received: Any, new: Any, old: Any) -> Any:
    """`new` where `received`, otherwise `old`. Works for nested types, which if_else does not support."""
    both = pa.concat_tables([pa.table({"c": new}), pa.table({"c": old})]).column("c").combine_chunks()
    count = len(new)
    index = np.arange(count) + np.where(received.to_numpy(zero_copy_only=False), 0, count)
    return both.take(pa.array(index))


def _numbered(rows: Any, name: str) -> Any:
    return rows.append_column(name, pa.array(np.arange(rows.num_rows)))
