"""Lines into lake tables, database files and directories, with tasks that fail and drivers that are killed at every
point of a micro-batch: each row is there once, and no file is left over."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import fastavro
import pytest

from barnabas.core.child_processes import start_child
from tests.progress import wait_until

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[3]
FAULTS = ["committed-exit", "staged-jvm"]
MORE_FAULTS = [*FAULTS, "written-raise", "staged-raise", "written-jvm", "committed-jvm"]
LINES = 2000
PATIENCE_S = 600.0
"""A busy machine may need minutes to start Spark, in which nothing here moves."""


class LakeDriver:
    """The process of `lake_driver`, which is started again when it was killed."""

    def __init__(self, folder: Path, format_: str, options: dict[str, str]) -> None:
        self.folder = folder
        self._command = [sys.executable, "-m", "tests.system.connectors.lake_driver", str(folder), format_]
        self._command.append(json.dumps(options))
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def has_ended(self) -> bool:
        if self._process is not None and self._process.poll() == 0:
            return True
        if self._process is None or self._process.poll() is not None:
            self.starts += 1
            assert self.starts <= len(MORE_FAULTS) + 1, (self.folder / "driver.log").read_text()[-5000:]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
            with (self.folder / "driver.log").open("a") as log:
                self._process = start_child(self._command, stdout=log, stderr=log, env=environment, cwd=ROOT)
        return False

    def progress(self) -> list[str]:
        """Micro-batches that begin and end, faults that fire, and processes that start."""
        files = [*self.folder.glob("checkpoint/*/*"), *self.folder.glob("fired-*")]
        return [*sorted(map(str, files)), str(self.starts)]


def delta_rows(place: Path) -> list[int]:
    from deltalake import DeltaTable

    found: list[int] = DeltaTable(str(place)).to_pyarrow_table(columns=["id"])["id"].to_pylist()
    return found


def iceberg_rows(place: Path) -> list[int]:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    found: list[int] = catalog.load_table("s.t").scan().to_arrow()["id"].to_pylist()
    return found


def avro_rows(place: Path) -> list[int]:
    found = []
    for path in sorted(place.glob("*.avro")):
        with path.open("rb") as file:
            found += [row["id"] for row in fastavro.reader(file)]
    return found


def sqlite_rows(place: Path) -> list[int]:
    with closing(sqlite3.connect(place / "lines.db")) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM t")]


def duckdb_rows(place: Path) -> list[int]:
    import duckdb

    with duckdb.connect(str(place / "lines.duckdb")) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM t").fetchall()]


DELTA = {"path": "{place}"}
ICEBERG = {"table": "s.t", "catalog.warehouse": "{place}"}
AVRO = {"path": "{place}", "file.format": "avro"}
SQLITE = {"connection.url": "jdbc:sqlite:{place}/lines.db", "dbtable": "t", "auto.create": "true"}
DUCKDB = SQLITE | {"connection.url": "jdbc:duckdb:{place}/lines.duckdb"}
UPSERT = {"insert.mode": "upsert", "pk.fields": "id"}
CASES = [
    pytest.param(FAULTS, "barnabas.delta", DELTA, delta_rows, id="delta"),
    pytest.param(MORE_FAULTS, "barnabas.delta", DELTA | UPSERT, delta_rows, id="upsert", marks=pytest.mark.slow),
    pytest.param(MORE_FAULTS, "barnabas.iceberg", ICEBERG, iceberg_rows, id="iceberg", marks=pytest.mark.slow),
    pytest.param(MORE_FAULTS, "barnabas.sqlite", SQLITE, sqlite_rows, id="sqlite", marks=pytest.mark.slow),
    pytest.param(MORE_FAULTS, "barnabas.duckdb", DUCKDB, duckdb_rows, id="duckdb", marks=pytest.mark.slow),
    pytest.param(MORE_FAULTS, "barnabas.files", AVRO, avro_rows, id="avro", marks=pytest.mark.slow),
]


@pytest.mark.spark
@pytest.mark.parametrize(("faults", "format_", "options", "read"), CASES)
def test_every_row_is_written_once_whatever_is_killed(
    tmp_path: Path, faults: list[str], format_: str, options: dict[str, str], read: Callable[[Path], list[int]]
) -> None:
    place = tmp_path / "lake"
    place.mkdir()
    (tmp_path / "lines.txt").write_text("".join(f"{n}\n" for n in range(LINES)))
    for number, fault in enumerate(faults):
        (tmp_path / f"armed-{number}-{fault}").touch()
    given = {name: text.replace("{place}", str(place)) for name, text in options.items()}
    driver = LakeDriver(tmp_path, format_, given)
    wait_until(driver.has_ended, "all lines are written", progress=driver.progress, patience_s=PATIENCE_S)
    assert len(list(tmp_path.glob("fired-*"))) == len(faults)
    assert Counter(read(place)) == Counter(range(LINES))
    beside = [path for glob in ("_barnabas/*/*/*", "*.stages/*") for path in place.rglob(glob) if path.is_file()]
    assert beside == []
