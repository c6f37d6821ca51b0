"""Machine: `moment` and `gap` (`ports.py`) of a database that has no history, but counts its changes.

SQLite and DuckDB count the writes into a file, InnoDB the bytes of its redo log. An older copy of the file, or of the
server's directory, has the same marks, and a smaller count.
"""

from __future__ import annotations

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


class CountedHistory:
    """The base of a PolledDatabase that counts its changes."""

    def count(self) -> int | None:
        """A number that each change makes larger, or at least no smaller, also after a crash; None if it is unknown."""
        raise NotImplementedError

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
