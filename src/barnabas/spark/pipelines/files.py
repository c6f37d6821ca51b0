"""Shell: the few operations on files that pipelines need, on every storage that Spark reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


class HadoopFiles:
    """Files of a Spark session: local ones, and those of the file systems that Hadoop knows."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def numbers(self, directory: str) -> list[int]:
        """The names in a directory that are numbers, `.compact` after them left out; empty without the directory."""
        path, system = self._open(directory)
        if not system.exists(path):
            return []
        names = [status.getPath().getName().removesuffix(".compact") for status in system.listStatus(path)]
        return [int(name) for name in names if name.isdigit()]

    def exists(self, path: str) -> bool:
        opened, system = self._open(path)
        return bool(system.exists(opened))

    def make_directory(self, path: str) -> None:
        opened, system = self._open(path)
        system.mkdirs(opened)

    def delete(self, path: str) -> None:
        opened, system = self._open(path)
        system.delete(opened, True)

    def _open(self, text: str) -> tuple[Any, Any]:
        path = self._spark._jvm.org.apache.hadoop.fs.Path(text)
        return path, path.getFileSystem(self._spark._jsparkSession.sessionState().newHadoopConf())


def local_path(location: str) -> Path | None:
    """The local path of a location, or None if it is not local."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(location)
