"""Codec: the decoded images of rows as Arrow structs with the captured columns of their table."""

from __future__ import annotations

from typing import Any

import pyarrow.compute
from msgspec import Struct

from barnabas.protocol.records.columnar._jit import np, pa
from barnabas.spark.connectors.events.changes import TableSchema
from barnabas.spark.connectors.mysql.binlog.codes import ChangeKind
from barnabas.spark.connectors.mysql.binlog.rows import DecodedRows

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time


class RowImages(Struct, frozen=True):
    """Rows before and after their change, as Arrow struct arrays; None where the kind of change has none.

    `key_changed` (numpy, bool) says for each row whether an update changed its key. `unavailable` has the indexes of
    the columns whose new values the server did not write.
    """

    before: Any
    after: Any
    key_changed: Any
    unavailable: frozenset[int]


def struct_type(schema: TableSchema) -> Any:
    """The Arrow type of the rows of a table."""
    return pa.struct([pa.field(column.name, column.type, column.nullable) for column in schema.columns])


def build_images(rows: DecodedRows, schema: TableSchema, indexes: tuple[int, ...]) -> RowImages:
    """The images of a run of rows. `indexes` says which columns of the table the columns of `schema` are.

    A server with binlog_row_image=MINIMAL leaves out columns. A column that an update does not have in the new row is
    unchanged, so its value is that of the old row if the old row has it.
    """
    before = None if rows.before is None else _columns(rows.before, schema)
    after = None if rows.after is None else _columns(rows.after, schema)
    unavailable = set()
    if after is not None:
        for i, array in enumerate(after):
            if array is None and before is not None and before[i] is not None:
                after[i] = before[i]
            elif array is None:
                unavailable.add(i)
    changed = np.zeros(rows.count, bool)
    if rows.kind is ChangeKind.UPDATE:
        assert before is not None and after is not None
        for i in schema.key:
            if before[i] is not None and after[i] is not None:
                changed |= _differs(before[i], after[i])
    return RowImages(
        _structs(before, schema, rows.count), _structs(after, schema, rows.count), changed, frozenset(unavailable)
    )


def _columns(batch: Any, schema: TableSchema) -> list[Any]:
    """The columns of a table that an image has, None for the others."""
    places = {name: i for i, name in enumerate(batch.schema.names)}
    return [batch.column(places[column.name]) if column.name in places else None for column in schema.columns]


def _structs(columns: list[Any] | None, schema: TableSchema, count: int) -> Any:
    if columns is None:
        return None
    kind = struct_type(schema)
    arrays = [
        pa.nulls(count, field.type) if array is None else array for array, field in zip(columns, kind, strict=True)
    ]
    if not arrays:
        return pa.array([{}] * count, kind)
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _differs(old: Any, new: Any) -> Any:
    """Which cells differ; two nulls do not."""
    same = _pc.fill_null(_pc.equal(old, new), False)
    both_null = _pc.and_(_pc.is_null(old), _pc.is_null(new))
    return ~np.asarray(_pc.or_(same, both_null).to_numpy(zero_copy_only=False), bool)
