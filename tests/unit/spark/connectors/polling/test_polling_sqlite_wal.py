"""SQLite files in WAL mode: a poll sees what other processes write, also after it has read the change counter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from barnabas.spark.connectors.polling.sqlite import SqliteDatabase
from barnabas.spark.connectors.sql.dialects import Statement

_WRITE = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); [c.execute(s) for s in sys.argv[2:]]"
)


def write(path: Path, *statements: str) -> None:
    """Another process writes, and is the last one to close the file if no lock says otherwise."""
    subprocess.run([sys.executable, "-c", _WRITE, str(path), *statements], check=True)


def test_the_change_counter_is_read_without_losing_the_locks_of_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    write(path, "PRAGMA journal_mode=WAL", "CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    database = SqliteDatabase(str(path))
    newest = Statement("SELECT max(id) FROM t")
    seen = [database.rows(newest, "reading")]
    for number in (2, 3):
        assert database.count() is not None
        write(path, f"INSERT INTO t VALUES ({number})")
        seen.append(database.rows(newest, "reading"))
    database.close()
    assert seen == [[(1,)], [(2,)], [(3,)]]
