"""Codec: the header of an event that names the columns whose values the database did not send.

    __barnabas.unavailable    ["note","file"]    the event has the placeholder, or null, in place of these values
                              []                 the placeholder is the value of a column

An event without the header, of a source of this package, has no placeholder. So a text that a user wrote is never taken
for a value that is missing. Events of Debezium do not have the header: in these, the placeholder itself counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pyarrow.compute

from barnabas.client.columns.byte_column import np, pa

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

UNAVAILABLE_HEADER: Final = "__barnabas.unavailable"


def unavailable_headers(unsent: Mapping[str, Any], noted: Any) -> list[bytes]:
    """The value of the header for each row of `noted` (numpy, indexes of rows). `unsent` has for each field the rows
    (numpy, bool) whose value the database did not send.
    """
    return [msgspec.json.encode([name for name, mask in unsent.items() if mask[row]]) for row in noted]


def declared_columns(headers: Any) -> tuple[Any, dict[str, Any]]:
    """(which records have the header, field -> the records whose value was not sent), as numpy arrays of bool.

    `headers` is a column of lists of key and value; other columns have no header.
    """
    has = np.zeros(len(headers), np.bool_)
    found: dict[str, Any] = {}
    if not pa.types.is_list(headers.type) or not pa.types.is_struct(headers.type.value_type):
        return has, found
    flat = headers.flatten()
    rows = _pc.list_parent_indices(headers).to_numpy()
    places = np.flatnonzero(_pc.fill_null(_pc.equal(flat.field("key"), UNAVAILABLE_HEADER), False).to_numpy(False))
    for row, value in zip(rows[places].tolist(), flat.field("value").take(pa.array(places)).to_pylist(), strict=True):
        has[row] = True
        for name in _names(value):
            found.setdefault(name, np.zeros(len(headers), np.bool_))[row] = True
    return has, found


def _names(value: bytes | None) -> list[str]:
    try:
        return msgspec.json.decode(value or b"[]", type=list[str])
    except msgspec.DecodeError:  # of another program
        return []
