"""Codec: shared parts of the columns of all formats: reading schema ids in bulk, grouping rows by id, recording errors.

    frames -> ids (one pass of numpy) -> rows of each id -> the format's decoder -> one column, in the order of the rows

A batch may have rows of several schemas; the column has one type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from barnabas.client.columns.byte_column import ByteColumn, from_arrow, np, pa
from barnabas.client.columns.formats import DecodedColumn
from barnabas.client.errors import SerializationError
from barnabas.registry.client import RegistryClient
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.serde.base import SchemaReader
from barnabas.registry.serde.wire_format import HEADER, MAGIC

OnError = Literal["raise", "null"]
NULL_ID: Final = -1
BROKEN_ID: Final = -2


@dataclass(slots=True)
class RowErrors:
    """The errors of rows that could not be read. With `on_error="raise"`, the first error is raised."""

    topic: str
    on_error: OnError
    found: dict[int, str] = field(default_factory=dict)

    def add(self, row: int, problem: object) -> None:
        if self.on_error == "raise":
            raise SerializationError(
                f"Row {row} of a batch of {self.topic!r} cannot be read: {problem} "
                '(on_error="null" makes such rows null and records the error)'
            )
        self.found[row] = str(problem)

    def column(self, rows: int) -> Any:
        """The errors as a column; None with `on_error="raise"`."""
        if self.on_error == "raise":
            return None
        if not self.found:
            return pa.nulls(rows, pa.string())
        return pa.array([self.found.get(row) for row in range(rows)], pa.string())


class RegistryColumns(SchemaReader):
    """Decodes rows of any number of schemas into one column. Subclasses decode the rows of one schema.

    `failures` counts the rows that could not be read so far (with `on_error="null"`).
    """

    def __init__(self, registry: RegistryClient, *, is_key: bool = False, on_error: OnError = "raise") -> None:
        if on_error not in ("raise", "null"):
            raise ValueError(f'on_error must be "raise" or "null", not {on_error!r}')
        super().__init__(registry, is_key=is_key)
        self._on_error: OnError = on_error
        self.failures = 0

    def decode(self, column: pa.Array, topic: str = "") -> DecodedColumn:
        """Decode a binary column. Raises SerializationError and the errors of the registry client."""
        errors = RowErrors(topic, self._on_error)
        framed = from_arrow(column)
        ids = schema_ids(framed)
        for row in np.flatnonzero(ids == BROKEN_ID).tolist():
            errors.add(row, _why_broken(framed, row))
        decoded = self._decode(framed, ids, topic, errors)
        self.failures += len(errors.found)
        return DecodedColumn(decoded, errors.column(len(framed)))

    def _decode(self, framed: ByteColumn, ids: Any, topic: str, errors: RowErrors) -> Any:
        """The typed column for these frames and their schema ids (NULL_ID and BROKEN_ID: no value)."""
        raise NotImplementedError

    def _try_for_id(self, schema_id: int, topic: str, rows: Any, errors: RowErrors) -> Any:
        """The parsed form of a schema, or None if no row of this schema can be read (the rows' errors are recorded)."""
        try:
            return self._for_id(schema_id, topic)
        except RegistryError as error:
            if error.code != Code.SCHEMA_NOT_FOUND:
                raise
            problem = f"the registry has no schema with the id {schema_id}"
        except ValueError as error:  # a schema of another type
            problem = str(error)
        for row in rows.tolist():
            errors.add(row, problem)
        return None


def schema_ids(framed: ByteColumn) -> Any:
    """The schema id of every row as int64; NULL_ID for nulls, BROKEN_ID for values without a valid frame."""
    ids = np.full(len(framed), NULL_ID, np.int64)
    length = framed.length
    ids[length >= 0] = BROKEN_ID
    whole = np.flatnonzero(length >= HEADER.size)
    at, data = framed.at[whole], framed.data
    found = np.zeros(len(whole), np.int64)
    for offset in range(1, HEADER.size):
        found = found << 8 | data[at + offset]
    good = (data[at] == MAGIC) & (found < 1 << 31)
    ids[whole[good]] = found[good]
    return ids


def rows_of_ids(ids: Any) -> list[tuple[int, Any]]:
    """(id, its rows in ascending order), sorted by id."""
    if len(ids) and ids[0] >= 0 and bool((ids == ids[0]).all()):
        return [(int(ids[0]), np.arange(len(ids)))]
    return [(int(one), np.flatnonzero(ids == one)) for one in np.unique(ids).tolist() if one >= 0]


def assemble(parts: list[tuple[Any, Any]], rows: int, kind: Any) -> Any:
    """Combine pairs of (rows, their values) into one column of `rows` rows; rows without a value are null."""
    if len(parts) == 1 and len(parts[0][0]) == rows:
        return parts[0][1]
    index = np.full(rows, -1, np.int64)
    start = 0
    for where, _ in parts:
        index[where] = np.arange(start, start + len(where))
        start += len(where)
    if not start:
        return pa.nulls(rows, kind)
    values = pa.concat_arrays([values for _, values in parts])
    return values.take(pa.array(index, mask=index < 0))


def payloads(framed: ByteColumn, rows: Any) -> list[bytes]:
    """The bytes after the frame header, row by row, for decoders that need Python's bytes."""
    data, at, length = framed.data, framed.at[rows].tolist(), framed.length[rows].tolist()
    view = memoryview(data)
    return [bytes(view[start + HEADER.size : start + size]) for start, size in zip(at, length, strict=True)]


def read_each(framed: ByteColumn, rows: Any, errors: RowErrors, read: Callable[[bytes], Any]) -> list[Any]:
    """Decode one payload after the other; None for payloads that cannot be read."""
    values: list[Any] = []
    for row, payload in zip(rows.tolist(), payloads(framed, rows), strict=True):
        try:
            values.append(read(payload))
        except Exception as error:  # noqa: BLE001 - the libraries raise errors of many types for malformed bytes
            errors.add(row, f"{type(error).__name__}: {error}")
            values.append(None)
    return values


def to_array(values: list[Any], kind: Any, rows: Any, errors: RowErrors) -> Any:
    """The values as an array of type `kind`; values that do not fit are null."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return _array_of_good(values, kind, rows, errors)


def _array_of_good(values: list[Any], kind: Any, rows: Any, errors: RowErrors) -> Any:
    """As `to_array`, for values of which at least one does not fit; finds and records which."""
    for index, row in enumerate(rows.tolist()):
        try:
            pa.array([values[index]], kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            errors.add(row, error)
            values[index] = None
    return pa.array(values, kind)


def _why_broken(framed: ByteColumn, row: int) -> str:
    if framed.length[row] < HEADER.size:
        return f"{framed.length[row]} bytes are too short for a schema id"
    first = framed.data[framed.at[row]]
    return f"the value begins with byte {first}, not 0: it was not written by a schema registry serializer"
