"""Value: what a converter reads from a column of bytes: runs of rows that have one schema, and rows that are bad.

A null row has no schema and belongs to the run around it. A run of null rows only is a JSON column, which is how a
batch of records has values without a schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from msgspec import Struct, field

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.converters.errors import ConverterDataError

FORMAT: bytes = b"barnabas.format"
"""The metadata of a column whose texts are JSON values without a schema: `barnabas.format=json`."""


class Run(Struct):
    """Rows (numpy, ascending) that have one schema: their values in the type of the Arrow field."""

    rows: Any
    field: Any
    values: Any


class BadRows(Struct):
    """The rows that cannot be read, and why. With `raises`, the first of them is raised."""

    part: str
    raises: bool = True
    found: dict[int, str] = field(default_factory=dict)

    def add(self, row: int, problem: object) -> None:
        """Record a row, or raise ConverterDataError."""
        if self.raises:
            raise ConverterDataError(f"the {self.part} of row {row} cannot be read: {problem}")
        self.found[row] = str(problem)

    def good(self, rows: Any) -> Any:
        """Those of the rows (numpy) that are not bad."""
        if not self.found:
            return rows
        bad = np.fromiter(self.found, np.int64, len(self.found))
        return rows[~np.isin(rows, bad)]


class Converter(Protocol):
    """One of Connect's converters, for the keys or the values of records."""

    def encode_column(self, column: Any, field: Any, topics: Any) -> Any:
        """Keys or values as bytes (Arrow binary). `topics` has the topic of each row. Raises ConverterError."""
        ...

    def decode_column(self, column: Any, bad: BadRows) -> list[Run]:
        """Bytes (Arrow binary) as runs of rows of one schema, in order. Bad rows are in no run."""
        ...

    def row_bytes(self, field: Any) -> int:
        """How many bytes each encoded row has beside its values, such as an embedded schema."""
        ...


def json_field(name: str, kind: Any = None, *, nullable: bool = True) -> Any:
    """The field of a column whose texts are JSON values without a schema."""
    return pa.field(name, pa.string() if kind is None else kind, nullable, {FORMAT: b"json"})


def is_json(field: Any) -> bool:
    """Whether the texts of a column are JSON values without a schema."""
    return bool((field.metadata or {}).get(FORMAT) == b"json")


def null_run(rows: Any, name: str) -> Run:
    """The run of rows that are all null."""
    return Run(rows, json_field(name), pa.nulls(len(rows), pa.string()))


def split_runs(schemas: Any, good: Any) -> Iterable[tuple[int, Any]]:
    """(schema, its rows) of each run, in order. `schemas` (numpy) has a number for the schema of each row, or -1 for a
    null; `good` has the rows that are read, ascending. All rows are null: the schema is -1.
    """
    numbers = schemas[good]
    known = np.flatnonzero(numbers >= 0)
    if not len(known):
        if len(good):
            yield -1, good
        return
    filled = numbers.copy()
    last = np.maximum.accumulate(np.where(numbers >= 0, np.arange(len(numbers)), -1))
    filled = np.where(last >= 0, numbers[last], numbers[known[0]])
    starts = np.concatenate(([0], np.flatnonzero(np.diff(filled)) + 1, [len(filled)]))
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        yield int(filled[start]), good[start:stop]
