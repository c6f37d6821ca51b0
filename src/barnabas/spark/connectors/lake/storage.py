"""Shell: the files of a lake table besides its log, through a PyArrow file system."""

from __future__ import annotations

import contextlib
import io
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any


class ArrowStorage:
    """A TableStorage below `root`, a path in a PyArrow file system."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self.filesystem = filesystem
        self.root = root.rstrip("/")
        self._has_directories = filesystem.type_name in ("local", "hdfs")

    def path(self, relative: str) -> str:
        return f"{self.root}/{relative}" if self.root else relative

    def write(self, path: str, content: bytes) -> None:
        with self._open(path) as file:
            file.write(content)

    def write_parquet(self, path: str, rows: Any) -> Any:
        """Write an Arrow table, and return the metadata of the file."""
        with self._open(path) as file:
            return write_parquet(file, rows)

    def read_parquet(self, path: str) -> Any:
        import pyarrow.parquet as pq

        with self.filesystem.open_input_file(self.path(path)) as file:
            return pq.read_table(file)

    def size(self, path: str) -> int:
        return int(self.filesystem.get_file_info(self.path(path)).size)

    def list(self, directory: str) -> list[str]:
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(self.path(directory), allow_not_found=True, recursive=True)
        files = [info.path for info in self.filesystem.get_file_info(selector) if info.type is FileType.File]
        return sorted(posixpath.relpath(path, self.root) if self.root else path for path in files)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                self.filesystem.delete_file(self.path(path))
            except FileNotFoundError:
                continue

    def delete_directory(self, directory: str) -> None:
        """Delete a directory with its files. In an object store, PyArrow keeps an empty object for a directory."""
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_dir(self.path(directory))

    def _open(self, path: str) -> Any:
        """A new file, to write."""
        full = self.path(path)
        if self._has_directories:
            self.filesystem.create_dir(posixpath.dirname(full), recursive=True)
        return self.filesystem.open_output_stream(full)


class DeltaObjectStorage(ArrowStorage):
    """The files below a table's location in an object store, with the options that deltalake has for it.

    A file is written as a whole: deltalake's streams do not take the buffers of PyArrow's files.
    """

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        self._handler = DeltaStorageHandler(location, dict(options))
        super().__init__(PyFileSystem(self._handler), "")

    def write(self, path: str, content: bytes) -> None:
        stream = self._handler._handler.open_output_stream(path)
        stream.write(content)
        stream.close()

    def delete_directory(self, directory: str) -> None:
        """There are no directories, so that there is nothing besides the files."""
        self.delete(self.list(directory))

    def write_parquet(self, path: str, rows: Any) -> Any:
        out = io.BytesIO()
        metadata = write_parquet(out, rows)
        self.write(path, out.getvalue())
        return metadata


def write_parquet(file: Any, rows: Any) -> Any:
    """Write an Arrow table, and return the metadata of the Parquet file."""
    import pyarrow.parquet as pq

    collected: list[Any] = []
    with pq.ParquetWriter(file, rows.schema, compression="zstd", metadata_collector=collected) as writer:
        writer.write_table(rows, row_group_size=1024 * 1024)
    return collected[0]
