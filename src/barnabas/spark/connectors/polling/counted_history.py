"""Machine: `moment` and `gap` (`ports.py`) of a database that has no history, but counts its changes.

SQLite and DuckDB count the writes into a file, InnoDB the bytes of its redo log. An older copy of the file, or of the
server's directory, has the same marks, and a smaller count.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from barnabas.spark.connectors.sql.polling import PolledTable
from barnabas.spark.identities import Belonging, Marks, belonging

COUNT: Final = "count"
PARTITIONS_MAX: Final = 200
"""So many partitions of a table have marks."""


def file_mark(path: Path) -> str:
    """What tells a file from another one of its name."""
    file = path.stat()
    return f"{file.st_dev}-{file.st_ino}"


_KEPT: Final[dict[str, tuple[str, int]]] = {}
"""The mark and the open descriptor of each file whose head was read."""


def read_head(path: Path, size: int) -> bytes:
    """The first bytes of a database's file.

    The descriptor stays open, because a process that closes one loses its locks on the file, those of its database
    connections among them. ("How To Corrupt An SQLite Database File", 2.2: a reader without its lock no longer sees
    what others write.)
    """
    mark = file_mark(path)
    kept = _KEPT.get(str(path))
    if kept is None or kept[0] != mark:
        if kept is not None:
            os.close(kept[1])  # of a file that has been replaced
        kept = _KEPT[str(path)] = mark, os.open(path, os.O_RDONLY)
    return os.pread(kept[1], size, 0)


class CountedHistory(ABC):
    """The base of a PolledDatabase that counts its changes."""

    @abstractmethod
    def count(self) -> int | None:
        """A number that each change makes larger, or at least no smaller, also after a crash; None if it is unknown."""

    def moment(self, table: PolledTable) -> Marks:
        count = self.count()
        return {} if count is None else {COUNT: str(count)}

    def gap(self, stored: Marks, found: Marks) -> str | None:
        if belonging(stored, found) is Belonging.REPLACED:
            return ""
        count = None if COUNT not in stored else self.count()
        if count is None or count >= int(stored[COUNT]):
            return None
        return f" Its database had counted {stored[COUNT]} changes when it was read, and has counted {count} now."
