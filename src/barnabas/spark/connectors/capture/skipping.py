"""Machine: leaves changes out, with all columns that describe them: those of some kinds (skipped.operations), and
updates that change nothing (skip.messages.without.change).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow.compute
from msgspec import structs

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.capture.options import Operation
from barnabas.spark.connectors.capture.ports import TableChange
from barnabas.spark.connectors.events.changes import UPDATE

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time


def without_operations(change: TableChange, skipped: Collection[Operation]) -> TableChange:
    """The changes of other kinds. Rows of a snapshot always stay. An update that changes the key is an update here."""
    letters = np.frombuffer("".join(one.value for one in sorted(skipped)).encode(), np.uint8)
    keep = ~np.isin(change.changes.op, letters)
    return change if keep.all() else select_rows(change, keep)


def without_unchanged(change: TableChange) -> TableChange:
    """The changes without updates whose old and new row are equal in all columns that are read. An update whose old row
    or a value of whose new row the server did not send stays.
    """
    changes = change.changes
    if changes.before is None or changes.after is None:
        return change
    keep = changes.op != UPDATE
    for side in (changes.before, changes.after):
        keep |= side.is_null().to_numpy(zero_copy_only=False)
    if changes.key_changed is not None:
        keep |= changes.key_changed
    for missing in changes.unavailable.values():
        keep |= missing
    for at in range(changes.after.type.num_fields):
        if keep.all():
            return change
        keep |= _differs(changes.before.field(at), changes.after.field(at))
    return change if keep.all() else select_rows(change, keep)


def _differs(before: Any, after: Any) -> Any:
    """In which rows (numpy, bool) two columns have different values; nulls are equal."""
    try:
        equal = _pc.equal(before, after).fill_null(False).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # lists, maps and other nested types
        pairs = zip(before.to_pylist(), after.to_pylist(), strict=True)
        return np.array([one != other for one, other in pairs], np.bool_)
    nulls = [column.is_null().to_numpy(zero_copy_only=False) for column in (before, after)]
    return ~(equal | (nulls[0] & nulls[1]))


def select_rows(change: TableChange, keep: Any) -> TableChange:
    """The rows (numpy, bool or indexes) of a change."""
    rows = np.flatnonzero(keep) if keep.dtype == np.bool_ else keep
    index = pa.array(rows)

    def taken(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value[rows]
        return value.take(index) if isinstance(value, pa.Array | pa.ChunkedArray) else value

    changes = change.changes
    fields = {name: taken(getattr(changes, name)) for name in changes.__struct_fields__ if name != "table"}
    positions = changes.positions
    fields["positions"] = structs.replace(
        positions, **{name: taken(getattr(positions, name)) for name in positions.__struct_fields__}
    )
    fields["unavailable"] = {at: mask[rows] for at, mask in changes.unavailable.items()}
    return TableChange(structs.replace(changes, **fields), change.places.take(index))
