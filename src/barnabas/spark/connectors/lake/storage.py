"""Shell: the files of a lake table besides its log, through a PyArrow file system."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
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
        import pyarrow.parquet as pq

        collected: list[Any] = []
        with (
            self._open(path) as file,
            pq.ParquetWriter(file, rows.schema, compression="zstd", metadata_collector=collected) as writer,
        ):
            writer.write_table(rows, row_group_size=1024 * 1024)
        return collected[0]

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

    def _open(self, path: str) -> Any:
        full = self.path(path)
        if self._has_directories:
            self.filesystem.create_dir(posixpath.dirname(full), recursive=True)
        return self.filesystem.open_output_stream(full)
