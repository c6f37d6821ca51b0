"""Codec: the manifest of a staged snapshot, and tables' columns as the schemas of staged Arrow files.

A directory `stagingLocation` has

    started.json     written before the snapshot begins: {"source", "id"}, and "lost" for a new start
    lost.json        written when the changes of a planned micro-batch are lost: {"position", "reason"}
    <id>/<n>.arrow   rows of one table, Arrow IPC with zstd
    manifest.json    written last, by renaming: the snapshot is complete

The rows of each poll of a polling source are in `polls/<id>`, with a manifest of their own.

An Arrow schema has the columns' types and names; what else a `ColumnSchema` says is in the metadata of the field, and
what a `TableSchema` says in the metadata of the schema.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import Struct

from barnabas.spark.connectors.capture.errors import StagingError
from barnabas.spark.connectors.events.changes import ColumnSchema, Meaning, TableSchema

MANIFEST_VERSION: Final = 1
_KEY: Final = b"barnabas"


class Started(Struct, frozen=True):
    """A snapshot that was begun. `source` names the source, so that two queries cannot share a directory. `rows` is
    false if only its position was wanted (snapshot.mode=no_data). `lost` is the position that the query had, if it
    started anew because this position was lost.
    """

    source: str
    id: str
    rows: bool = True
    lost: dict[str, Any] | None = None


class Lost(Struct, frozen=True):
    """The position of a query at the end of a micro-batch whose changes are lost, and why. A later look at the position
    alone may find nothing wrong with it.
    """

    position: dict[str, Any]
    reason: str


class StagedFile(Struct, frozen=True):
    """A file of a snapshot: its path below stagingLocation, its table, and how many rows of the table are before it.

    `bytes` is the size of its rows in memory. `is_last` says that it is the table's last file.
    """

    path: str
    table: str
    rows: int
    bytes: int
    rows_before: int
    is_last: bool


class Manifest(Struct, frozen=True):
    """A complete snapshot. `position` is where changes continue, `taken_us` the time of the snapshot (since 1970)."""

    version: int
    source: str
    id: str
    position: dict[str, Any]
    taken_us: int
    files: tuple[StagedFile, ...]


def encode_manifest(value: Manifest | Started | Lost) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def decode_started(data: bytes) -> Started:
    """Raises StagingError."""
    found: Started = _decode(data, Started, "started.json")
    return found


def decode_lost(data: bytes) -> Lost:
    """Raises StagingError."""
    found: Lost = _decode(data, Lost, "lost.json")
    return found


def decode_manifest(data: bytes) -> Manifest:
    """Raises StagingError."""
    manifest: Manifest = _decode(data, Manifest, "manifest.json")
    if manifest.version != MANIFEST_VERSION:
        raise StagingError(
            f"manifest.json has version {manifest.version}, and this program reads version {MANIFEST_VERSION}: read the"
            " snapshot with the program that wrote it, or start the query over"
        )
    return manifest


def _decode(data: bytes, kind: Any, name: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StagingError(
            f"{name} cannot be read ({error}): start the query over with an empty stagingLocation"
        ) from None


class _ColumnNote(Struct, frozen=True, omit_defaults=True):
    meaning: Meaning = Meaning.PLAIN
    length: int = 0
    digits: int | None = None
    allowed: tuple[str, ...] = ()


class _TableNote(Struct, frozen=True):
    database: str
    schema: str
    table: str
    key: tuple[int, ...]


def arrow_schema_of(table: TableSchema) -> Any:
    """The schema of staged files of a table."""
    fields = []
    for column in table.columns:
        note = _ColumnNote(column.meaning, column.length, column.digits, column.allowed)
        fields.append(pa.field(column.name, column.type, column.nullable, {_KEY: msgspec.json.encode(note)}))
    table_note = _TableNote(table.database, table.schema, table.table, table.key)
    return pa.schema(fields, {_KEY: msgspec.json.encode(table_note)})


def table_schema_of(schema: Any) -> TableSchema:
    """The table of a staged file. Raises StagingError if the file is not a staged one."""
    try:
        note = msgspec.json.decode(schema.metadata[_KEY], type=_TableNote)
        columns = []
        for field in schema:
            of = msgspec.json.decode(field.metadata[_KEY], type=_ColumnNote)
            columns.append(
                ColumnSchema(field.name, field.type, field.nullable, of.meaning, of.length, of.digits, of.allowed)
            )
    except (KeyError, TypeError, msgspec.DecodeError) as error:
        raise StagingError(f"a staged file has no description of its table ({error!r}): start the query over") from None
    return TableSchema(note.database, note.schema, note.table, tuple(columns), note.key)
