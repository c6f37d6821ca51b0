"""Machine: leaves changes of some kinds out (skipped.operations), with all columns that describe them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import structs

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.capture.options import Operation
from barnabas.spark.connectors.capture.ports import TableChange


def without_operations(change: TableChange, skipped: Collection[Operation]) -> TableChange:
    """The changes of other kinds. Rows of a snapshot always stay. An update that changes the key is an update here."""
    letters = np.frombuffer("".join(one.value for one in sorted(skipped)).encode(), np.uint8)
    keep = ~np.isin(change.changes.op, letters)
    return change if keep.all() else select_rows(change, keep)


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
