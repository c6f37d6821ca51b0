"""Machine: row changes as rows of the captured table, for output=rows.

    <the table's columns>   after the change; of a deleted row, those that the database sent of the old row
    __op                    string: c, u, d, or r for a row of the snapshot
    __deleted               boolean: true for d
    __source_ts_ms          bigint: time of the commit, or of the snapshot
    __position              string: grows with later changes of the same row
    __unavailable           array<string>: columns whose value the database did not send (only with `list`)

An update that changes the key is two rows: d with the old key, and c with the new one. The columns are those that the
table had at the start of the query, since Spark fixes them. A change that lacks one of them has null there.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow.compute

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.capture.errors import TableChangedError, not_sent
from barnabas.spark.connectors.capture.options import UnavailableValues
from barnabas.spark.connectors.capture.ports import TableChange
from barnabas.spark.connectors.events.changes import DELETE, ChangeBatch, TableSchema
from barnabas.spark.errors import OptionError
from barnabas.spark.records.types import conform, spark_arrow, spark_ddl

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

_EXTRA: Final = {
    "__op": (pa.string(), "string"),
    "__deleted": (pa.bool_(), "boolean"),
    "__source_ts_ms": (pa.int64(), "bigint"),
    "__position": (pa.string(), "string"),
}
_UNAVAILABLE: Final = "__unavailable"
_NAMES: Final = pa.list_(pa.field("element", pa.string()))


def rows_ddl(table: TableSchema, unavailable: UnavailableValues) -> str:
    """The columns for Spark. Raises OptionError if a column of the table has one of our names."""
    taken = [column.name for column in table.columns if column.name in (*_EXTRA, _UNAVAILABLE)]
    if taken:
        raise OptionError(
            f"the table {table.id} has a column {taken[0]}, a name that output=rows needs: leave the column out with"
            f" column.exclude.list, or use output=records"
        )
    parts = [f"{_quoted(column.name)} {spark_ddl(column.type)}" for column in table.columns]
    parts += [f"`{name}` {ddl}" for name, (_, ddl) in _EXTRA.items()]
    if unavailable is UnavailableValues.LIST:
        parts.append(f"`{_UNAVAILABLE}` array<string>")
    return ", ".join(parts)


def rows_schema(table: TableSchema, unavailable: UnavailableValues) -> Any:
    """The Arrow schema that Spark expects of each batch."""
    fields = [pa.field(column.name, spark_arrow(column.type)) for column in table.columns]
    fields += [pa.field(name, kind) for name, (kind, _) in _EXTRA.items()]
    if unavailable is UnavailableValues.LIST:
        fields.append(pa.field(_UNAVAILABLE, _NAMES))
    return pa.schema(fields)


def rows_of(change: TableChange, schema: Any, unavailable: UnavailableValues) -> Any:
    """The changes as one record batch of this schema, in their order.

    Raises TableChangedError if the table has a column that the schema lacks, or another type, and CaptureError if a
    value was not sent and `unavailable` is FAIL.
    """
    changes = change.changes
    _check_columns(changes.table, schema)
    moved = np.zeros(len(changes), np.bool_) if changes.key_changed is None else changes.key_changed
    index = np.repeat(np.arange(len(changes)), 1 + moved)
    is_old = np.zeros(len(index), np.bool_)
    is_old[1:] = index[1:] == index[:-1]
    is_old = np.append(is_old[1:], False) if len(index) else is_old  # of a pair, the first row has the old key
    deleted = is_old | (changes.op[index] == DELETE)
    places = {column.name: at for at, column in enumerate(changes.table.columns)}
    names = [name for name in schema.names if name not in (*_EXTRA, _UNAVAILABLE)]
    columns = [_column(changes, places.get(name), index, deleted, schema.field(name)) for name in names]
    ops = np.where(is_old, DELETE, np.where(moved[index], ord("c"), changes.op[index])).astype(np.uint8)
    columns.append(pa.array(ops.view("S1"), pa.binary()).cast(pa.string()))
    columns.append(pa.array(deleted))
    columns.append(pa.array(changes.ts_us[index] // 1000, pa.int64()))
    columns.append(change.places.take(pa.array(index)))
    missing = _unavailable(changes, index, deleted, names)
    unpublished = [name for name in names if name in changes.table.unpublished]
    if unpublished and not deleted.all():
        missing |= dict.fromkeys(unpublished, ~deleted)
        if unavailable is not UnavailableValues.LIST:
            raise TableChangedError(
                f"changes of {changes.table.id} do not have the column {unpublished[0]} any more, which the query has:"
                " the publication leaves it out. Publish the column, or restart the query, so that it has the columns"
                " that are published"
            )
    if missing and unavailable is UnavailableValues.FAIL:
        raise not_sent(
            changes.table.id, sorted(missing), f", or with list, whose column {_UNAVAILABLE} names such columns"
        )
    if unavailable is UnavailableValues.LIST:
        columns.append(_name_lists(missing, len(index)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _check_columns(table: TableSchema, schema: Any) -> None:
    new = [column.name for column in table.columns if schema.get_field_index(column.name) < 0]
    if new:
        raise TableChangedError(
            f"the table {table.id} has changes with a column {new[0]}, which the query does not have: restart the"
            " query, so that it has the table's current columns. If the column was dropped or renamed since,"
            f" leave it out with column.exclude.list={table.id}.{new[0]}"
        )


def _column(changes: ChangeBatch, at: int | None, index: Any, deleted: Any, field: Any) -> Any:
    if at is None:
        return pa.nulls(len(index), field.type)
    values = _sides(changes, at, index, deleted)
    try:
        return conform(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableChangedError(
            f"the column {field.name} of {changes.table.id} has values of type {values.type} that the query's type"
            f" {field.type} has no place for ({error}): restart the query, so that it has the current types; or leave"
            " the column out with column.exclude.list"
        ) from error


def _sides(changes: ChangeBatch, at: int, index: Any, deleted: Any) -> Any:
    """A column of the old rows where a row is deleted, and of the new rows elsewhere."""
    taken = pa.array(index)
    if changes.before is None:
        return changes.after.field(at).take(taken)
    if changes.after is None:
        return changes.before.field(at).take(taken)
    return _pc.if_else(pa.array(deleted), changes.before.field(at).take(taken), changes.after.field(at).take(taken))


def _unavailable(changes: ChangeBatch, index: Any, deleted: Any, names: list[str]) -> dict[str, Any]:
    """Column name -> the rows whose new value was not sent; only columns that have such rows."""
    found = {}
    for at, mask in changes.unavailable.items():
        name = changes.table.columns[at].name
        rows = mask[index] & ~deleted
        if name in names and rows.any():
            found[name] = rows
    return found


def _name_lists(missing: dict[str, Any], rows: int) -> Any:
    """For each row the names of its unavailable columns, null if it has none."""
    if not missing:
        return pa.nulls(rows, _NAMES)
    lists = [[name for name, mask in missing.items() if mask[row]] or None for row in range(rows)]
    return pa.array(lists, _NAMES)
