"""Machine: values that an update did not change, and that the database therefore did not send, read from its tables.

A target has no row with a new key, so that the create that follows from a changed key needs all values. They are read
from the table as it is now. A value that was changed again meanwhile is in a later change, too, so that a target has it
at the end in either case. A row that has moved on to another key is looked for under that key, as far as the changes at
hand say so. Is the row gone, then its value is: `unavailable.value.handling.mode` decides.

                            the value is read from the table for       the row is gone
    fail, list              creates                                    the query stops; the column is named
    null                    creates                                    null
    reselect                creates and updates                        null; of an update, the value stays missing

`fail` and `null` stop or send null for the values of updates (`rows_output.py`, `records_output.py`).
Source: as to the creates, io.debezium.processors.reselect.ReselectColumnsPostProcessor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import structs

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.capture.errors import not_sent, row_is_gone
from barnabas.spark.connectors.capture.options import UnavailableValues
from barnabas.spark.connectors.capture.ports import GONE, TableChange
from barnabas.spark.connectors.events.changes import CREATE, DELETE, ChangeBatch

log = logging.getLogger("barnabas.spark")

Key = tuple[Any, ...]
LookUp = Callable[[ChangeBatch, tuple[int, ...], Sequence[Key]], Mapping[Key, tuple[Any, ...]]]
"""(changes, indexes of columns, keys) -> key -> its values in these columns of the table as it is now, and at least as
the changes left it, or GONE. Keys without a row are left out."""


def complete(change: TableChange, mode: UnavailableValues, look_up: LookUp | None) -> TableChange:
    """The change with the values that can be had; none if `look_up` is None. Raises CaptureError."""
    changes = change.changes
    wanted = _wanted(changes, mode)
    columns = tuple(at for at, mask in sorted(changes.unavailable.items()) if (mask & wanted).any())
    if not columns:
        return change
    lacking = np.zeros(len(changes), np.bool_)
    for at in columns:
        lacking |= changes.unavailable[at] & wanted
    rows = np.flatnonzero(lacking).tolist()
    if look_up is None:
        if mode is UnavailableValues.FAIL:
            raise not_sent(changes.table.id, [changes.table.columns[at].name for at in columns], "")
        look_up = _find_nothing
    keys = _keys_now(changes, rows)
    found = look_up(changes, columns, sorted({key for key in keys if key is not None}, key=repr))
    values = [None if key is None else found.get(key) for key in keys]
    arrays = [changes.after.field(at) for at in range(changes.after.type.num_fields)]
    unavailable = dict(changes.unavailable)
    for place, at in enumerate(columns):
        cells = [None if one is None or one[place] is GONE else (one[place],) for one in values]
        arrays[at], unavailable[at] = _filled(changes, at, dict(zip(rows, cells, strict=True)), mode)
    fields = list(changes.after.type)
    after = pa.StructArray.from_arrays(
        arrays, fields=fields, mask=changes.after.is_null() if changes.after.null_count else None
    )
    left = {at: mask for at, mask in unavailable.items() if mask.any()}
    return structs.replace(change, changes=structs.replace(changes, after=after, unavailable=left))


def _find_nothing(changes: ChangeBatch, columns: tuple[int, ...], keys: Sequence[Key]) -> Mapping[Key, tuple[Any, ...]]:
    return {}


def _wanted(changes: ChangeBatch, mode: UnavailableValues) -> Any:
    """The changes (numpy, bool) whose missing values are read from the table."""
    if mode is UnavailableValues.RESELECT:
        return np.ones(len(changes), np.bool_)
    return _creates(changes)


def _creates(changes: ChangeBatch) -> Any:
    """The changes after which there is a row with a new key. An insert lacks values if an update has made its row one
    that a row filter publishes.
    """
    moved = np.zeros(len(changes), np.bool_) if changes.key_changed is None else changes.key_changed
    return moved | (changes.op == CREATE)


def _keys_now(changes: ChangeBatch, rows: Sequence[int]) -> list[Key | None]:
    """The key that the row of each change has after the later changes at hand; None if one of them removes the row."""
    columns = changes.table.key
    if not columns:
        return [None] * len(rows)
    new = _keys(changes.after, columns)
    old = new if changes.before is None else _keys(changes.before, columns)
    moved = np.zeros(len(changes), np.bool_) if changes.key_changed is None else changes.key_changed
    ends: dict[Key, list[int]] = {}
    for row in np.flatnonzero(moved | (changes.op == DELETE)).tolist():
        ends.setdefault(old[row], []).append(row)
    result: list[Key | None] = []
    for row in rows:
        at, key = row, new[row]
        while (end := next((one for one in ends.get(key, ()) if one > at), None)) is not None:
            if not moved[end]:
                break
            at, key = end, new[end]
        result.append(key if end is None else None)
    return result


def _keys(side: Any, columns: tuple[int, ...]) -> list[Key]:
    return list(zip(*(side.field(at).to_pylist() for at in columns), strict=True))


def _filled(
    changes: ChangeBatch, at: int, cells: Mapping[int, tuple[Any] | None], mode: UnavailableValues
) -> tuple[Any, Any]:
    """(a column of the new rows with the values, which of its values are still missing). `cells` has for a row its
    value, in a tuple, or None if the row or the column is gone. Raises CaptureError.
    """
    array, missing = changes.after.field(at), changes.unavailable[at].copy()
    creates = _creates(changes)
    places, found, gone = [], [], []
    for row, cell in cells.items():
        if not missing[row]:
            continue
        if cell is not None:
            places.append(row)
            found.append(cell[0])
        elif creates[row]:
            gone.append(row)
    table, name = changes.table, changes.table.columns[at].name
    if gone and mode is UnavailableValues.FAIL:
        key = _keys(changes.after, table.key)[gone[0]] if table.key else ()
        raise row_is_gone(table.id, name, dict(zip((table.columns[one].name for one in table.key), key, strict=True)))
    if gone:
        log.warning(
            "%d rows of %s have changed their keys, and their unchanged values of %s are gone since, with the rows or"
            " with the column: null is sent for these, until the changes are read that remove the rows",
            len(gone),
            table.id,
            name,
        )
    if mode is not UnavailableValues.LIST:
        missing[gone] = False
    if places:
        missing[places] = False
        index = np.arange(len(changes))
        index[places] = len(changes) + np.arange(len(places))
        # Not replace_with_mask, which nested types do not have.
        array = pa.concat_arrays([array, pa.array(found, array.type)]).take(pa.array(index))
    return array, missing
