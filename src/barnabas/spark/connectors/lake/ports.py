"""Port: what the sink needs of a table format, and the files that it keeps beside the table's own.

    <table>/_barnabas/<query id>/<batch id>/<attempt>               a marker file: this attempt writes data files
    <table>/_barnabas/<query id>/<batch id>/<attempt>-<n>.parquet   rows that the driver merges into the table

An attempt has a name of its own, which the name of each of its data files contains. A data file belongs to the table
from the commit on that adds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from barnabas.spark.connectors.sinking.ports import BatchId
from barnabas.spark.delivery.identity import LedgerEntry
from barnabas.spark.identities import Marks


class Changes(msgspec.Struct, frozen=True):
    """One change for each key, as Arrow tables: rows to write, and keys to delete.

    `received` has, for each column that only some of the rows have, an Arrow array of booleans: a row keeps the table's
    value of a column that it has not received. `inserts` is false if only rows that exist may change. `required` has,
    for each column that the source of some rows did not send, an Arrow array of booleans: the table must have the row.
    """

    keys: tuple[str, ...]
    upserts: Any
    deletes: Any
    received: Mapping[str, Any] = {}
    inserts: bool = True
    required: Mapping[str, Any] = {}


class Commit(msgspec.Struct, frozen=True):
    """What a commit says of itself. `batch` is None for a `df.write`, which Spark does not repeat."""

    batch: BatchId | None
    attempts: tuple[str, ...]


class TableStorage(Protocol):
    """Files below the table's location, by relative paths."""

    def write(self, path: str, content: bytes) -> None: ...

    def write_parquet(self, path: str, rows: Any) -> Any: ...

    def read_parquet(self, path: str) -> Any: ...

    def list(self, directory: str) -> list[str]:
        """All files below a directory, at any depth, as paths relative to the table; none if it does not exist."""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; those that do not exist are left out."""

    def delete_directory(self, directory: str) -> None:
        """Delete a directory with its files, if it exists."""


class LakeTable(Protocol):
    """A table that exists."""

    @property
    def name(self) -> str:
        """The table in messages, and in what a repair decides."""

    @property
    def marks(self) -> Marks:
        """What tells the table from another one of its name."""

    @property
    def storage(self) -> TableStorage: ...

    def schema(self) -> Any:
        """The columns as an Arrow schema."""

    def add_columns(self, columns: Sequence[Any]) -> None:
        """Add Arrow fields as nullable columns, except those that another process has added meanwhile."""

    def write(self, rows: Any, attempt: str) -> list[str]:
        """Write rows, which have the table's columns, as data files, which no reader sees before `append`. Returns a
        text for each file, from which `append` can add it."""

    def remove(self, files: Sequence[str]) -> None:
        """Delete data files that `write` returned and that were not committed."""

    def committed_batch(self, query_id: str) -> LedgerEntry | None:
        """The last micro-batch of the query in the table."""

    def committed_attempts(self, batch: BatchId) -> frozenset[str] | None:
        """The attempts whose files the commits of micro-batches with this number added (several, if a repair has
        written a number again); None if that is not known any more."""

    def append(self, files: Sequence[str], commit: Commit) -> bool:
        """Commit data files. False if the table has the micro-batch already; then nothing is committed."""

    def merge(self, changes: Changes, commit: Commit) -> bool:
        """Commit changes. False if the table has the micro-batch already; then nothing is committed."""


def is_own_commit(table: LakeTable, commit: Commit) -> bool:
    """Whether the table has this very commit, whose answer was lost, and not that of another driver of the query."""
    if commit.batch is None:
        return False
    counted = table.committed_attempts(commit.batch)
    return counted is not None and counted >= frozenset(commit.attempts)
