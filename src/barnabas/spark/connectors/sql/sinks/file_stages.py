"""Shell: stages as Arrow files, for databases that allow one writer: tasks write files, the driver reads them.

    <stagingLocation>/<name of the stage>.arrow      Arrow IPC: ORDER, DELETED, STEP as integers, the others as texts

Without `stagingLocation`, the directory is `<file of the database>.stages`. A file that is not finished has the ending
`.part`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import ipc

from barnabas.spark.connectors.sql.sinks.errors import DatabaseSinkError
from barnabas.spark.connectors.sql.sinks.options import SqlSinkOptions

_FINISHED: Final = ".arrow"
_BEGUN: Final = ".part"


class FileStages:
    """The stages of one session, which are written or read."""

    def __init__(self, options: SqlSinkOptions) -> None:
        location = options.staging_location or f"{options.address.database}.stages"
        self._folder = Path(location.removeprefix("file://")).absolute()
        self._open: dict[str, tuple[Any, Any]] = {}

    def begin(self, name: str) -> None:
        """Begin a stage."""
        with _readable(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._open[name] = (pa.OSFile(str(self._path(name, _BEGUN)), "wb"), None)

    def add(self, name: str, rows: Any) -> None:
        """Add a batch of rows; all batches have the same schema."""
        stream, writer = self._open[name]
        with _readable(self._folder):
            if writer is None:
                writer = ipc.new_file(stream, rows.schema, options=ipc.IpcWriteOptions(compression="zstd"))
                self._open[name] = (stream, writer)
            writer.write_batch(rows)

    def finish(self) -> None:
        """Make the stages durable and visible. A stage without rows does not become visible."""
        with _readable(self._folder):
            for name, (stream, writer) in self._open.items():
                if writer is not None:
                    writer.close()
                stream.close()
                if writer is not None:
                    _sync(self._path(name, _BEGUN))
                    self._path(name, _BEGUN).rename(self._path(name, _FINISHED))
                else:
                    self._path(name, _BEGUN).unlink()
            if self._open:
                _sync(self._folder)
        self._open = {}

    def read(self, name: str) -> Any:
        """The rows of a stage as an Arrow table. Raises DatabaseSinkError if it is gone."""
        path = self._path(name, _FINISHED)
        try:
            with pa.memory_map(str(path)) as source:
                return ipc.open_file(source).read_all()
        except (OSError, pa.ArrowInvalid) as error:
            raise DatabaseSinkError(
                f"the staged rows {path} cannot be read ({error}): driver and workers must share stagingLocation; or"
                " another run of this query has dropped them, so that two run at the same time. Stop one of them, and"
                " start the query again with its checkpoint"
            ) from error

    def names(self) -> list[str]:
        """The names of all stages, also of those that are not finished."""
        if not self._folder.is_dir():
            return []
        return sorted({path.stem for path in self._folder.iterdir() if path.suffix in (_FINISHED, _BEGUN)})

    def drop(self, names: Iterable[str]) -> None:
        """Remove stages; those that do not exist are left out."""
        with _readable(self._folder):
            for name in names:
                for suffix in (_FINISHED, _BEGUN):
                    self._path(name, suffix).unlink(missing_ok=True)

    def close(self) -> None:
        """Leave stages that are not finished as they are."""
        for stream, _ in self._open.values():
            stream.close()
        self._open = {}

    def _path(self, name: str, suffix: str) -> Path:
        return self._folder / f"{name}{suffix}"


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Raise errors of the file system as DatabaseSinkErrors."""
    try:
        yield
    except OSError as error:
        raise DatabaseSinkError(
            f"rows cannot be staged in {folder} ({error}): set stagingLocation to a directory that the driver and all"
            " workers can write to"
        ) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
