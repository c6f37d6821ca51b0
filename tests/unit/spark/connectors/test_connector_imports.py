"""What the processes that only plan a query import. Spark starts several of them one after the other, and numba and
pandas take a quarter of a second each."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SNAPSHOTS = {
    "postgres": """
        from barnabas.spark.connectors.postgres.text_columns import convert
        from barnabas.spark.connectors.postgres.types import ColumnType, Kind, ValuePolicy
        ends = pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]))
        text = pa.Array.from_buffers(pa.binary(), 2, [None, ends, pa.py_buffer(b"tf")])
        done = convert(text, ColumnType("bool", Kind.BOOLEAN, pa.bool_()), ValuePolicy(), "sold").column
        assert done.to_pylist() == [True, False]
    """,
    "mysql": """
        from barnabas.protocol.records.columnar._jit import np
        from barnabas.spark.connectors.mysql.binlog.times import civil_dates
        one = np.ones(2, np.int64)
        done, _ = civil_dates(2026 * one, one, one, np.array([True, False]))
        assert [str(value) for value in done.to_pylist()] == ["2026-01-01", "None"]
    """,
}


@pytest.mark.parametrize(
    "module",
    [
        "barnabas.spark.connectors.postgres.source",
        "barnabas.spark.connectors.mysql.source",
        "barnabas.spark.connectors.capture.records_output",
        "barnabas.spark.sink.writer",
        "barnabas.spark.source.reader",
    ],
)
def test_planning_imports_neither_numba_nor_pandas(module: str) -> None:
    assert _imported(f"import {module}") == []


@pytest.mark.parametrize("database", SNAPSHOTS)
def test_a_snapshot_is_staged_without_pandas(database: str) -> None:
    assert _imported(SNAPSHOTS[database]) == []


def _imported(script: str) -> list[str]:
    """Which of the two modules are imported after the script ran in a process of its own."""
    program = f"import pyarrow as pa\n{textwrap.dedent(script)}\nimport sys\n" + (
        'print(",".join(sorted({"numba", "pandas"} & set(sys.modules))))'
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [name for name in done.stdout.strip().split(",") if name]
