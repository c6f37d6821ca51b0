"""Extreme values of SQLite and DuckDB, polled and written into files and file databases: none is changed in silence.

A cheap part of the matrix of all types and sinks (`tests/system/connectors/test_type_matrix.py`), without servers.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.system.connectors.pathways import capturing
from tests.system.connectors.type_matrix import file_sinks, outcomes
from tests.system.connectors.type_values import DUCKDB_TYPES, SQLITE_TYPES, ValueType, columns_of, rows_of

from barnabas.spark.connectors.polling.duckdb import DUCKDB
from barnabas.spark.connectors.polling.errors import PolledValueError
from barnabas.spark.connectors.polling.sqlite import SQLITE

CHANGED = {
    ("duckdb", "c_time", "00:00:00"): "0",
    ("duckdb", "c_time", "23:59:59.999999"): "86399999999",
    ("duckdb", "c_double", "-0"): "0.0",
}
"""What is not equal: Spark has no times of day, so that they are microseconds; SQLite has no negative zero."""


def polled(name: str, types: tuple[ValueType, ...], folder: Path) -> Any:
    """The rows of a table with a column of each type."""
    folder.mkdir(exist_ok=True)
    path = folder / f"source.{name}"
    statements = [f"CREATE TABLE t (id INTEGER PRIMARY KEY, {columns_of(types)})"]
    statements += [f"INSERT INTO t VALUES ({number}, {', '.join(row)})" for number, row in rows_of(types)]
    with closing(sqlite3.connect(path) if name == "sqlite" else duckdb.connect(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)
        if isinstance(connection, sqlite3.Connection):
            connection.commit()
    texts = {
        "connection.url": f"jdbc:{name}:{path}",
        "mode": "bulk",
        "table.whitelist": "t",
        "topic.prefix": "x-",
        "output": "rows",
        "stagingLocation": str(folder / "staging"),
    }
    with capturing(texts, SQLITE if name == "sqlite" else DUCKDB) as capture:
        capture.batch()  # the start of the polls
        rows = capture.batch()
    return rows.take(pa.compute.sort_indices(rows.column("id")))


SOURCES = pytest.mark.parametrize(("name", "types"), [("sqlite", SQLITE_TYPES), ("duckdb", DUCKDB_TYPES)])


@SOURCES
def test_values_that_spark_has_no_place_for_stop_the_poll(
    name: str, types: tuple[ValueType, ...], tmp_path: Path
) -> None:
    for one in types:
        for number, value in enumerate(value for value in one.values if value.refused):
            table = (replace(one, values=(replace(value, refused=None),)),)
            with pytest.raises(PolledValueError, match=rf"the column {one.name} .*{value.refused}"):
                polled(name, table, tmp_path / f"{one.name}_{number}")


@SOURCES
def test_a_polled_value_is_the_same_in_every_sink(name: str, types: tuple[ValueType, ...], tmp_path: Path) -> None:
    rows = polled(name, types, tmp_path)
    folder = tmp_path / "sinks"
    folder.mkdir()
    for sink in file_sinks(folder):
        if sink.name not in ("sqlite", "delta"):
            continue  # the other sinks are in the matrix
        for one in types:
            values = [value for value in one.values if value.refused is None]
            for value, found in zip(values, outcomes(sink, "rows", one, rows, f"t_{one.name}"), strict=True):
                allowed = CHANGED.get((name, one.name, value.text or ""), "=")
                assert found.strip('"') in ("=", allowed), (sink.name, one.name, value)
