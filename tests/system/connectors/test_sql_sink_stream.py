"""Lines into databases, with tasks that fail and drivers that are killed at every point of a micro-batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.progress import wait_until
from tests.system.connectors.sql_databases import MariaDbSinkDatabase, PostgresSinkDatabase, SinkDatabase
from tests.system.connectors.test_lake_stream import FAULTS, LINES, MORE_FAULTS, PATIENCE_S, LakeDriver

pytestmark = pytest.mark.system

UPSERT = {"insert.mode": "upsert", "pk.fields": "id"}


def run(database: SinkDatabase, folder: Path, faults: Sequence[str], options: dict[str, str]) -> None:
    database.open()
    (folder / "lines.txt").write_text("".join(f"{n}\n" for n in range(LINES)))
    for number, fault in enumerate(faults):
        (folder / f"armed-{number}-{fault}").touch()
    given = {"connection.url": database.url(), **database.login(), "dbtable": "t", "auto.create": "true", **options}
    driver = LakeDriver(folder, database.format, given)
    wait_until(driver.has_ended, "all lines are written", progress=driver.progress, patience_s=PATIENCE_S)
    assert len(list(folder.glob("fired-*"))) == len(faults)
    assert Counter(number for (number,) in database.rows("SELECT id FROM t")) == Counter(range(LINES))
    assert database.stages() == []
    database.connection.close()


@pytest.mark.spark
def test_every_row_is_in_postgresql_once_whatever_is_killed(postgres: Any, tmp_path: Path) -> None:
    run(PostgresSinkDatabase(postgres), tmp_path, FAULTS, {})


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, UPSERT], ids=["insert", "upsert"])
def test_every_row_is_in_mariadb_once_whatever_is_killed(mariadb: Any, tmp_path: Path, options: dict[str, str]) -> None:
    run(MariaDbSinkDatabase(mariadb), tmp_path, MORE_FAULTS, options)


@pytest.mark.spark
@pytest.mark.slow
def test_upserts_into_postgresql_whatever_is_killed(postgres: Any, tmp_path: Path) -> None:
    run(PostgresSinkDatabase(postgres), tmp_path, MORE_FAULTS, UPSERT)
