"""The airport's database: a SQLite file with all flights. Those of December are only scheduled at first, and change
when they have left or are cancelled.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd

SCHEDULED_AT_FIRST = 0.08
"""The share of the flights that change while the demo runs: those of December."""
CHANGED_AT_ONCE = 250

_CREATE = """
CREATE TABLE flights (
  id INTEGER PRIMARY KEY,
  scheduled DATETIME NOT NULL,
  carrier TEXT NOT NULL,
  flight INTEGER NOT NULL,
  tailnum TEXT,
  origin TEXT NOT NULL,
  dest TEXT NOT NULL,
  dep_delay INTEGER,
  arr_delay INTEGER,
  distance INTEGER NOT NULL,
  status TEXT NOT NULL,  -- scheduled, departed or cancelled
  changed DATETIME NOT NULL
)
"""
_NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"


class AirportDatabase:
    """The file, written by one process."""

    def __init__(self, path: Path, flights: pd.DataFrame) -> None:
        self.path = path
        self._rows = _rows(flights)
        self._first_change = round(len(self._rows) * (1 - SCHEDULED_AT_FIRST))

    @property
    def changes(self) -> int:
        """How many flights change after `create`."""
        return len(self._rows) - self._first_change

    def create(self) -> None:
        """Write all flights; of the last ones it is not known yet if they leave on time."""
        with closing(self._connect()) as connection, connection:
            connection.execute("PRAGMA journal_mode = WAL")  # readers do not wait for the writer
            connection.execute(_CREATE)
            known, unknown = self._rows[: self._first_change], self._rows[self._first_change :]
            insert = f"INSERT INTO flights VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {_NOW})"
            connection.executemany(insert, known)
            connection.executemany(insert, [(*row[:7], None, None, row[9], "scheduled") for row in unknown])
            connection.execute("CREATE INDEX flights_by_change ON flights (changed, id)")

    def change(self, on_progress: Callable[[int], object]) -> None:
        """Let the remaining flights leave, in many small transactions."""
        update = f"UPDATE flights SET dep_delay = ?, arr_delay = ?, status = ?, changed = {_NOW} WHERE id = ?"
        with closing(self._connect()) as connection:
            for start in range(self._first_change, len(self._rows), CHANGED_AT_ONCE):
                part = self._rows[start : start + CHANGED_AT_ONCE]
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.executemany(update, [(row[7], row[8], row[10], row[0]) for row in part])
                on_progress(len(part))

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)


def _rows(flights: pd.DataFrame) -> list[tuple[object, ...]]:
    """The rows of the table, without the last column."""
    columns = ["scheduled", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance"]
    table = flights[columns].assign(
        scheduled=flights["scheduled"].dt.strftime("%Y-%m-%d %H:%M:%S"),
        status=flights["dep_delay"].isna().map({True: "cancelled", False: "departed"}),
    )
    cells = [
        [None if value is None or value is pd.NA or value != value else value for value in table[name].tolist()]
        for name in table.columns
    ]
    return list(zip(range(1, len(table) + 1), *cells, strict=True))
