"""Machine: the rows of one micro-batch for one table -> one change for each key.

The changes of a key are applied in their order: a row replaces the columns that it has received, and keeps the others;
a deleted row is gone with all of its columns, also if a later row inserts the key again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.connectors.lake.columns import fit
from barnabas.spark.connectors.lake.errors import LakeError
from barnabas.spark.connectors.lake.ports import Changes
from barnabas.spark.connectors.sinking.presence import is_new_without, keeps_null

log = logging.getLogger("barnabas.spark")

ORDER = "__barnabas_order"
DELETED = "__barnabas_deleted"


class KeyedRows(msgspec.Struct, frozen=True):
    """Rows with the same columns: an Arrow table with the received columns and no others, whether each row deletes its
    key, and a number that is larger for a later change of the same key (Arrow bool and int64). `unavailable` names the
    columns whose values the source of the rows did not send.
    """

    rows: Any
    deleted: Any
    order: Any
    unavailable: tuple[str, ...] = ()


def to_staged(part: KeyedRows) -> Any:
    """The table that is staged as a Parquet file."""
    return part.rows.append_column(ORDER, part.order).append_column(DELETED, part.deleted)


def from_staged(table: Any, unavailable: tuple[str, ...] = ()) -> KeyedRows:
    return KeyedRows(table.drop_columns([ORDER, DELETED]), table[DELETED], table[ORDER], unavailable)


def fold(parts: Sequence[KeyedRows], keys: tuple[str, ...], schema: Any, inserts: bool = True) -> Changes:
    """One change for each key. `schema` is the table's, which has all columns of the rows. Raises LakeError for a key
    that is deleted and comes back without a value that its source did not send.
    """
    for key in keys:
        if pa.types.is_nested(schema.field(key).type) or pa.types.is_floating(schema.field(key).type):
            raise LakeError(f"the column {key} of the key is a {schema.field(key).type}, which is no key; cast it")
    names = [name for name in schema.names if any(name in part.rows.column_names for part in parts)]
    columns = pa.schema([schema.field(name) for name in names])
    rows = pa.concat_tables([fit(part.rows, columns) for part in parts])
    in_order = np.argsort(_numpy([part.order for part in parts]), kind="stable")
    rows = rows.take(pa.array(in_order))
    deleted = _numpy([part.deleted for part in parts])[in_order]
    has = {name: _received(parts, name)[in_order] for name in names}
    group, count = _groups(rows, keys)
    index = np.arange(len(group))
    # A fancy assignment keeps the last value for an index that occurs more than once: the latest row of each key.
    last = np.full(count, -1)
    last[group] = index
    last_delete = np.full(count, -1)
    last_delete[group[deleted]] = index[deleted]
    alive = index > last_delete[group]
    stays = last != last_delete
    inserted_again = last_delete[stays] >= 0
    if inserted_again.any():  # these rows have no values of the table's other columns any more
        columns = schema
    arrays = []
    received = {}
    for name in columns.names:
        if name not in names:
            arrays.append(pa.nulls(int(stays.sum()), schema.field(name).type))
            received[name] = pa.array(inserted_again)
            continue
        counts = alive & has[name]
        newest = np.full(count, -1)
        newest[group[counts]] = index[counts]
        newest = newest[stays] if name not in keys else last[stays]
        arrays.append(rows[name].combine_chunks().take(pa.array(newest, mask=newest < 0)))
        given = (newest >= 0) | inserted_again
        if not given.all():
            received[name] = pa.array(given)
    deletes = rows.select(list(keys)).take(pa.array(last[~stays]))
    upserts = pa.Table.from_arrays(arrays, schema=columns)
    required = {}
    for name in dict.fromkeys(name for part in parts for name in part.unavailable):
        unsent = np.concatenate([np.full(part.rows.num_rows, name in part.unavailable) for part in parts])[in_order]
        lacks = np.zeros(count, dtype=bool)
        lacks[group[alive & unsent]] = True
        if name in has:
            lacks[group[alive & has[name]]] = False
        needed = lacks[stays]
        if inserts and (needed & inserted_again).any():
            row = int(np.flatnonzero(needed & inserted_again)[0])
            raise new_without(upserts.select(list(keys)), row, (name,))
        if inserts and needed.any():
            required[name] = pa.array(needed)
    return Changes(keys, upserts, deletes, received, inserts, required)


def new_without(keys: Any, row: int, names: Sequence[str]) -> LakeError:
    """The error for a row whose key the table does not have, and which lacks values that its source did not send."""
    shown = ", ".join(f"{name}={keys[name][row].as_py()!r}" for name in keys.column_names)
    return LakeError(f"the row with {shown} {is_new_without(names)}")


def lacking_keys(changes: Changes) -> Any:
    """The keys of the upserts that lack a value which their source did not send, with the numbers of their rows."""
    lacking = np.zeros(changes.upserts.num_rows, dtype=bool)
    for mask in changes.required.values():
        lacking |= mask.to_numpy(zero_copy_only=False)
    return _numbered(changes.upserts.select(list(changes.keys))).filter(lacking)


def check_required(changes: Changes, rows: Any, table: str) -> None:
    """Raise LakeError if a row lacks a value that its source did not send, and the table does not have the row; log a
    warning if the table has NULL there. `rows` has those rows of the table whose keys the upserts may have: the key,
    and for each column of `changes.required` whether it is null.
    """
    if not changes.required:
        return
    names, wanted = list(changes.keys), lacking_keys(changes)
    keys = rows.select(names)
    new = wanted.join(keys.cast(wanted.select(names).schema), names, join_type="left anti")[ORDER].to_pylist()
    if new:
        row = min(new)
        raise new_without(
            changes.upserts.select(names), row, [name for name, mask in changes.required.items() if mask[row].as_py()]
        )
    for name, mask in changes.required.items():
        needed = changes.upserts.select(names).filter(mask)
        nulls = rows.filter(rows[name]).select(names).cast(needed.schema)
        count = needed.join(nulls, names, join_type="left semi").num_rows
        if count:
            log.warning("%s", keeps_null(count, table, [name]))


def nulls_of(rows: Any, changes: Changes) -> Any:
    """What `check_required` needs of rows of the table, a table or a record batch."""
    names, columns = [*changes.keys, *changes.required], [rows[key] for key in changes.keys]
    return pa.table([*columns, *(rows[name].is_null() for name in changes.required)], names=names)


def _received(parts: Sequence[KeyedRows], name: str) -> Any:
    return np.concatenate([np.full(part.rows.num_rows, name in part.rows.column_names) for part in parts])


def _numpy(arrays: Sequence[Any]) -> Any:
    """Arrow arrays, one after another, as one NumPy array."""
    chunks = [array.chunks if isinstance(array, pa.ChunkedArray) else [array] for array in arrays]
    return np.concatenate([chunk.to_numpy(zero_copy_only=False) for each in chunks for chunk in each])


def _groups(rows: Any, keys: Sequence[str]) -> tuple[Any, int]:
    """The number of each row's key, and how many keys there are."""
    numbered = _numbered(rows.select(list(keys)))
    lists = numbered.group_by(list(keys)).aggregate([(ORDER, "list")])[f"{ORDER}_list"].combine_chunks()
    group = np.empty(rows.num_rows, dtype=np.int64)
    group[lists.flatten().to_numpy()] = pc.list_parent_indices(lists).to_numpy()
    return group, len(lists)


def _numbered(rows: Any) -> Any:
    return rows.append_column(ORDER, pa.array(np.arange(rows.num_rows)))
