"""Machine: which values of rows exist, but were not sent by their source, so that they must not be written.

    __unavailable             a column of rows: the names of such columns (capture with output=rows)
    __barnabas.unavailable    a header of events (`events/presence.py`): the same
    the placeholder           in events of other programs, such as Debezium, and in rows, which have neither

Debezium's placeholder has the form of its column: a text, its bytes (in JSON without a schema in base64), in an array
the only element, in an array of numbers its bytes, in an hstore key and value.
Source: io.debezium.connector.postgresql.UnchangedToastedReplicationMessageColumn, PostgresValueConverter.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.connectors.events.presence import declared_columns

UNAVAILABLE: Final = "__unavailable"
"""The column of captured rows that names the columns whose values the database did not send."""


def is_new_without(columns: Sequence[str]) -> str:
    """The end of a message about a row whose key the table does not have."""
    return (
        f"is new to the table, and its source did not send its value of {', '.join(columns)}, which did not change."
        " Nothing is written. Let the source send it: capture with unavailable.value.handling.mode=reselect, or"
        " PostgreSQL's REPLICA IDENTITY FULL; and write the row to the table once, for example with a new snapshot"
    )


def has_no_column(columns: Sequence[str]) -> str:
    """The end of a message about a table without a column whose value was not sent, such as one that was renamed."""
    return (
        f"has no column {', '.join(columns)}, and the source of a row did not send its value there, which did not"
        " change. Nothing is written. If the column was added or renamed in the source, let the source send its values:"
        " set them again in all rows (UPDATE t SET c = c || ''), or capture with"
        " unavailable.value.handling.mode=reselect; or leave the column out"
    )


def keeps_null(rows: int, table: str, columns: Sequence[str]) -> str:
    """A warning: a value that was not sent is never NULL in the source, so that the rows of the table lack it."""
    return (
        f"{rows} rows of {table} keep NULL in {' or '.join(columns)}, where their source has a value that it did not"
        " send, since it did not change. The column was added or renamed in the source, or the row was gone when its"
        " key changed. Set the values again in the source (UPDATE t SET c = c || ''), or capture with"
        " unavailable.value.handling.mode=reselect"
    )


def unsent_in_columns(batch: Any, placeholder: str) -> dict[str, Any]:
    """Column -> the rows (Arrow bool) whose value was not sent: by the column UNAVAILABLE, or without one by the
    placeholder.
    """
    if UNAVAILABLE not in batch.schema.names or not pa.types.is_list(batch.schema.field(UNAVAILABLE).type):
        masks = ((name, placeholders_in(batch.column(name), placeholder)) for name in batch.schema.names)
        return {name: pa.array(mask) for name, mask in masks if mask is not None}
    lists = batch.column(UNAVAILABLE)
    rows, names = pc.list_parent_indices(lists).to_numpy(), lists.flatten()
    found = {}
    for name in pc.unique(names).to_pylist():
        mask = np.zeros(batch.num_rows, np.bool_)
        mask[rows[pc.fill_null(pc.equal(names, name), False).to_numpy(zero_copy_only=False)]] = True
        found[name] = pa.array(mask)
    return found


def unsent_in_records(batch: Any, columns: Mapping[str, Any], placeholder: str) -> dict[str, Any]:
    """The same for records, whose values have these columns: by their headers, and by the placeholder in records
    without the header, or whose header names a field that a transform has renamed or removed.
    """
    names = batch.schema.names
    if "headers" in names:
        has, declared = declared_columns(batch.column("headers"))
    else:
        has, declared = np.zeros(batch.num_rows, np.bool_), {}
    known = has.copy()
    for name, mask in declared.items():
        if name not in columns:
            known &= ~mask
    found = {}
    for name, array in columns.items():
        unsent = declared.get(name)
        if not known.all():
            by_value = placeholders_in(array, placeholder)
            if by_value is not None:
                by_value = by_value & ~known
                unsent = by_value if unsent is None else unsent | by_value
        if unsent is not None and unsent.any():
            found[name] = pa.array(unsent)
    return found


def placeholders_in(array: Any, placeholder: str) -> Any:
    """In which rows (numpy, bool) a column has the placeholder; None if in no row."""
    types, kind = pa.types, array.type
    if types.is_dictionary(kind):
        return placeholders_in(array.dictionary_decode(), placeholder)
    if types.is_string(kind) or types.is_large_string(kind):
        return _among(array, _texts(placeholder))
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _among(array, [placeholder.encode()])
    if types.is_map(kind):
        return _equal(array, [(placeholder, placeholder)])
    if not types.is_list(kind):
        return None
    element = kind.value_type
    if types.is_integer(element):
        return _equal(array, list(placeholder.encode()))
    if types.is_string(element) or types.is_binary(element):
        found = placeholders_in(array.flatten(), placeholder)
        if types.is_string(element):
            other = _among(array.flatten(), [_name_uuid(placeholder)])
            found = found if other is None else other if found is None else found | other
        if found is None:
            return None
        lists = pc.fill_null(pc.equal(pc.list_value_length(array), 1), False).to_numpy(zero_copy_only=False)
        marked = np.zeros(len(array), np.bool_)
        marked[pc.list_parent_indices(array).to_numpy()[found]] = True
        marked &= lists
        return marked if marked.any() else None
    return None


def _texts(placeholder: str) -> list[str]:
    """The forms of the placeholder in a column of texts: those of texts, of bytes, and of an hstore as JSON."""
    raw = placeholder.encode()
    pair = msgspec.json.encode({placeholder: placeholder}).decode()
    encoded = (base64.b64encode(raw), base64.urlsafe_b64encode(raw))
    return list(dict.fromkeys((placeholder, *(one.decode() for one in encoded), raw.hex(), pair)))


def _name_uuid(placeholder: str) -> str:
    """Java's UUID.nameUUIDFromBytes, the placeholder in an array of UUIDs."""
    return str(uuid.UUID(bytes=hashlib.md5(placeholder.encode(), usedforsecurity=False).digest(), version=3))


def _among(array: Any, values: list[Any]) -> Any:
    wanted = pa.array(values, array.type)
    lengths = pc.fill_null(pc.binary_length(array), -1).to_numpy(zero_copy_only=False)
    # Few, and a comparison of lengths is all that most columns cost.
    places = np.flatnonzero(np.isin(lengths, pc.binary_length(wanted).to_numpy()))
    mask = np.zeros(len(array), np.bool_)
    mask[places] = pc.is_in(array.take(pa.array(places)), value_set=wanted).to_numpy(zero_copy_only=False)
    return mask if mask.any() else None


def _equal(array: Any, value: list[Any]) -> Any:
    """The lists or maps with exactly this value; only those of its length are compared, one by one."""
    offsets = array.offsets.to_numpy()
    places = np.flatnonzero((np.diff(offsets) == len(value)) & array.is_valid().to_numpy(zero_copy_only=False))
    mask = np.zeros(len(array), np.bool_)
    for place in places.tolist():
        mask[place] = array[place].as_py() == value
    return mask if mask.any() else None
