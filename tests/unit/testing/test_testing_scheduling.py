"""The order of the test files under `pytest -n`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from tests.scheduling import OWN_DRIVERS, SPARK, LongFilesFirst, rank


def test_files_that_take_long_come_first() -> None:
    files = [
        "/repo/tests/unit/core/test_a.py",
        "/repo/tests/golden/raft/test_b.py",
        "/repo/tests/property/test_c.py",
        "/repo/tests/sim/test_d.py",
        "/repo/tests/system/cluster/test_e.py",
        "/repo/tests/system/spark/test_f.py",
    ]
    ranks = [rank(PurePosixPath(file)) for file in files]
    assert ranks == [4, 4, 3, 2, 1, 0]


def test_files_with_drivers_of_their_own_exist() -> None:
    root = Path(__file__).parents[3]
    assert [file for file in OWN_DRIVERS if not (root / file).exists()] == []


def test_all_files_with_a_spark_session_go_to_one_worker() -> None:
    scheduling = LongFilesFirst.__new__(LongFilesFirst)
    assert scheduling._split_scope("tests/system/spark/test_f.py::test_x[1]") == SPARK
    assert scheduling._split_scope("tests/system/spark/test_g.py::test_x") == SPARK
    assert scheduling._split_scope(f"{OWN_DRIVERS[0]}::test_x") == OWN_DRIVERS[0]
    assert scheduling._split_scope("tests/sim/test_d.py::test_x[1]") == "tests/sim/test_d.py::test_x[1]"
    assert scheduling._split_scope("tests/system/cluster/test_e.py::test_x") == "tests/system/cluster/test_e.py"
