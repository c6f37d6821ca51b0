"""Shell: snapshots in a directory that the driver and the workers share (`manifest.py` draws it).

The rows of a snapshot are copied once, so that a replayed micro-batch reads the same rows. The manifest is written
last, by renaming a temporary file: before that, the snapshot does not exist, and a restart begins a new one.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs, ipc

from barnabas.spark.connectors.capture.errors import StagingError
from barnabas.spark.connectors.capture.manifest import (
    MANIFEST_VERSION,
    Lost,
    Manifest,
    StagedFile,
    Started,
    arrow_schema_of,
    decode_lost,
    decode_manifest,
    decode_started,
    encode_manifest,
    table_schema_of,
)
from barnabas.spark.connectors.capture.options import STAGED_FILE_BYTES_MAX, STAGED_FILE_BYTES_MIN
from barnabas.spark.connectors.events.changes import TableSchema

_MANIFEST: Final = "manifest.json"
_STARTED: Final = "started.json"
_LOST: Final = "lost.json"
_POLLS: Final = "polls"
_FORGOTTEN_AFTER_S: Final = 24 * 3600
"""Files of batch queries are deleted by the next batch query after this time, since no query knows its end."""


def open_staging(location: str) -> Staging:
    """The directory of this path or URI. Raises StagingError if no file system can be found for it."""
    parts = urlsplit(location)
    try:
        if parts.scheme in ("", "file"):
            path = unquote(parts.path) if parts.scheme else str(Path(location).absolute())
            return Staging(fs.LocalFileSystem(), path)
        return Staging(*fs.FileSystem.from_uri(location))
    except (OSError, ValueError) as error:  # PyArrow's errors are OSError and ValueError
        raise StagingError(f"stagingLocation {location} cannot be opened: {error}") from error


class Staging:
    """The directory `stagingLocation` of one query."""

    def __init__(self, system: Any, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")

    # -- the snapshot of a streaming query

    def read_manifest(self, source: str) -> Manifest | None:
        """The complete snapshot, if there is one. Raises StagingError if it is one of another source."""
        data = self._read(_MANIFEST)
        if data is None:
            return None
        manifest = decode_manifest(data)
        self._check_source(manifest.source, source)
        return manifest

    def was_begun(self, source: str, lost: dict[str, Any] | None = None) -> bool:
        """Whether a snapshot of this source, with rows, was begun; with `lost`, that of the new start after the loss of
        this position. Raises StagingError if it was of another source.
        """
        started = self._started(source)
        return started is not None and started.rows and (lost is None or started.lost == lost)

    def staged_after(self, source: str, lost: dict[str, Any]) -> Manifest | None:
        """The complete snapshot of the new start after the loss of a position, unless its rows are deleted already."""
        started, manifest = self._started(source), self.read_manifest(source)
        if started is None or manifest is None or (started.id, started.lost) != (manifest.id, lost):
            return None
        return None if self.is_read(manifest) else manifest

    def note_loss(self, position: dict[str, Any], reason: str) -> None:
        """Remember that the changes of the micro-batch that ends at a position are lost. Raises StagingError if that is
        not possible.
        """
        try:
            self._system.create_dir(self._root, recursive=True)
            self._write(_LOST, encode_manifest(Lost(position, reason)))
        except OSError as error:
            raise StagingError(
                f"{reason}. The query would start anew, and cannot note that in stagingLocation {self._root} ({error}):"
                " let driver and workers write to this directory"
            ) from error

    def find_loss(self, source: str, position: dict[str, Any]) -> str | None:
        """Why the query cannot go on from a position, if an earlier start of it has found that: it has noted a loss, or
        has begun a new snapshot after the loss of the position. Raises StagingError if it was of another source.
        """
        data = self._read(_LOST)
        if data is not None and (noted := decode_lost(data)).position == position:
            return noted.reason
        started = self._started(source)
        if started is None or started.lost != position:
            return None
        return (
            f"the query's position {position} was lost, and an earlier start of the query has begun a new snapshot."
            " Start the query over with a new checkpoint and an empty stagingLocation, or set failOnDataLoss=false: it"
            " goes on with the new snapshot then"
        )

    def _started(self, source: str) -> Started | None:
        data = self._read(_STARTED)
        if data is None:
            return None
        started = decode_started(data)
        self._check_source(started.source, source)
        return started

    def begin(self, source: str, *, rows: bool = True, lost: dict[str, Any] | None = None) -> StagedWriter:
        """Begin a new snapshot, without `rows` only its position, perhaps because the position `lost` was lost. What an
        incomplete one left is deleted.
        """
        data = self._read(_STARTED)
        if data is not None:
            self._delete(decode_started(data).id)
        started = Started(source, uuid.uuid4().hex, rows, lost)
        self._system.create_dir(self._root, recursive=True)
        self._write(_STARTED, encode_manifest(started))
        return self._writer(started)

    def complete(self, manifest: Manifest) -> None:
        """Make a snapshot visible."""
        self._write(_MANIFEST, encode_manifest(manifest))

    def remove_files(self) -> None:
        """Delete the staged rows, because the query has read them. The manifest stays; repeated calls do nothing."""
        data = self._read(_STARTED)
        if data is not None:
            self._delete(decode_started(data).id)

    def is_read(self, manifest: Manifest) -> bool:
        """Whether the rows of the snapshot are deleted."""
        return bool(manifest.files) and self._info(manifest.id).type == fs.FileType.NotFound

    # -- the snapshot of a batch query

    def begin_batch(self, source: str) -> StagedWriter:
        """Begin the snapshot of a batch query, in a directory of its own. Those of a day ago are deleted."""
        self._system.create_dir(f"{self._root}/batch", recursive=True)
        for info in self._system.get_file_info(fs.FileSelector(f"{self._root}/batch")):
            modified = info.mtime.timestamp() if info.mtime is not None else time.time()
            if time.time() - modified > _FORGOTTEN_AFTER_S:
                self._system.delete_dir(info.path)
        return self._writer(Started(source, f"batch/{uuid.uuid4().hex}"))

    # -- the rows of polls

    def begin_poll(self, source: str) -> StagedWriter:
        """Begin the rows of a poll, in a directory of their own."""
        return self._writer(Started(source, f"{_POLLS}/{uuid.uuid4().hex}"))

    def complete_poll(self, manifest: Manifest) -> None:
        """Make the rows of a poll visible."""
        self._write(f"{manifest.id}/{_MANIFEST}", encode_manifest(manifest))

    def read_poll(self, poll: str) -> Manifest:
        """A complete poll. Raises StagingError if it is gone."""
        data = self._read(f"{poll}/{_MANIFEST}")
        if data is None:
            raise StagingError(
                f"the rows of a planned micro-batch ({poll}) are gone from stagingLocation {self._root}: restore the"
                " directory, or start the query over with a new checkpoint. Each query needs a directory of its own,"
                " which nothing else deletes"
            )
        return decode_manifest(data)

    def keep_poll(self, poll: str | None) -> None:
        """Delete the rows of all polls but this one."""
        if self._info(_POLLS).type != fs.FileType.Directory:
            return
        kept = None if poll is None else poll.rpartition("/")[2]
        for info in self._system.get_file_info(fs.FileSelector(f"{self._root}/{_POLLS}")):
            if info.base_name != kept:
                self._system.delete_dir(info.path)

    # -- reading

    def read_file(self, file: StagedFile) -> tuple[TableSchema, Iterator[Any]]:
        """The table and the record batches of a staged file. Raises StagingError if the file is gone or damaged."""
        try:
            stream = self._system.open_input_file(f"{self._root}/{file.path}")
            reader = ipc.open_file(stream)
        except (OSError, pa.ArrowInvalid) as error:
            raise StagingError(
                f"the staged file {file.path} cannot be read from stagingLocation ({error}): driver and workers must"
                " share this directory; if the file was deleted, start the query over"
            ) from error
        return table_schema_of(reader.schema), (reader.get_batch(index) for index in range(reader.num_record_batches))

    # -- internal

    def _writer(self, started: Started) -> StagedWriter:
        self._system.create_dir(f"{self._root}/{started.id}", recursive=True)
        return StagedWriter(self._system, self._root, started)

    def _check_source(self, found: str, wanted: str) -> None:
        if found != wanted:
            raise StagingError(
                f"stagingLocation {self._root} has the snapshot of another source ({found}, not {wanted}): give each"
                " query a directory of its own"
            )

    def _read(self, name: str) -> bytes | None:
        path = f"{self._root}/{name}"
        if self._info(name).type != fs.FileType.File:
            return None
        with self._system.open_input_stream(path) as stream:
            return bytes(stream.read())

    def _write(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        temporary = f"{path}.{uuid.uuid4().hex}"
        with self._system.open_output_stream(temporary) as stream:
            stream.write(data)
        _sync(self._system, temporary)
        self._system.move(temporary, path)
        _sync(self._system, path.rpartition("/")[0])

    def _delete(self, directory: str) -> None:
        if self._info(directory).type == fs.FileType.Directory:
            self._system.delete_dir(f"{self._root}/{directory}")

    def _info(self, name: str) -> Any:
        return self._system.get_file_info(f"{self._root}/{name}")


class StagedWriter:
    """Writes the files of one snapshot; a SnapshotStage (`ports.py`)."""

    def __init__(self, system: Any, root: str, started: Started) -> None:
        self._system = system
        self._root = root
        self._started = started
        self._lock = threading.Lock()
        self._files: list[StagedFile] = []
        self._count = 0

    def write(self, table: TableSchema, batches: Iterable[Any]) -> None:
        """Write the rows of one table into files of STAGED_FILE_BYTES_MIN to STAGED_FILE_BYTES_MAX."""
        schema = arrow_schema_of(table)
        files: list[StagedFile] = []
        output: _OpenFile | None = None
        rows_before = bytes_before = 0
        try:
            for batch in batches:
                if output is None:
                    output = self._open(schema)
                output.write(_with_schema(batch, schema))
                if output.bytes >= min(STAGED_FILE_BYTES_MAX, max(STAGED_FILE_BYTES_MIN, bytes_before // 4)):
                    files.append(output.finish(table.id, rows_before))
                    rows_before += output.rows
                    bytes_before += output.bytes
                    output = None
            if output is not None:
                files.append(output.finish(table.id, rows_before))
                output = None
        finally:
            if output is not None:
                output.close()
        if files:
            last = files[-1]
            files[-1] = StagedFile(last.path, last.table, last.rows, last.bytes, last.rows_before, True)
        with self._lock:
            self._files.extend(files)

    def manifest(self, position: dict[str, Any], taken_us: int) -> Manifest:
        """The manifest of all files that were written, table by table."""
        files = sorted(self._files, key=lambda file: (file.table, file.rows_before))
        return Manifest(MANIFEST_VERSION, self._started.source, self._started.id, position, taken_us, tuple(files))

    def _open(self, schema: Any) -> _OpenFile:
        with self._lock:
            number = self._count
            self._count += 1
        path = f"{self._started.id}/{number:06d}.arrow"
        return _OpenFile(self._system, self._root, path, schema)


def _sync(system: Any, path: str) -> None:
    """Make a file or directory of a local disk durable; other file systems do that when a file is closed."""
    if not isinstance(system, fs.LocalFileSystem):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _with_schema(batch: Any, schema: Any) -> Any:
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


class _OpenFile:
    """A staged file that is being written. `bytes` is the size of its rows in memory, not that of the file."""

    def __init__(self, system: Any, root: str, path: str, schema: Any) -> None:
        self._system = system
        self._root = root
        self._path = path
        self._stream = system.open_output_stream(f"{root}/{path}")
        self._writer = ipc.new_file(self._stream, schema, options=ipc.IpcWriteOptions(compression="zstd"))
        self.rows = 0
        self.bytes = 0

    def write(self, batch: Any) -> None:
        self._writer.write_batch(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def finish(self, table: str, rows_before: int) -> StagedFile:
        self._writer.close()
        self._stream.close()
        _sync(self._system, f"{self._root}/{self._path}")
        return StagedFile(self._path, table, self.rows, self.bytes, rows_before, False)

    def close(self) -> None:
        self._stream.close()
