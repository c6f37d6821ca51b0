"""The short form of the kill matrix: some faults of tasks and of the driver's processes, in one session."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.system.spark.kill_matrix import Matrix, cluster

pytestmark = pytest.mark.system

SHORT = [
    ("hand_over:after", "exit"),
    ("write:after", "raise"),
    ("commit:before", "exit"),
    ("returned:after", "raise"),
]


@pytest.mark.timeout(900)
def test_rows_are_delivered_once_through_faults(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as (servers, brokers):
        matrix = Matrix(tmp_path, servers, "shuffle", "local[2,4]", random.Random(1), brokers)
        try:
            matrix.run(len(SHORT), iter(SHORT))
            assert matrix.verify()
        finally:
            matrix.stop()
    assert sum(matrix.fired.values()) == len(SHORT)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("count", "plan"), [(1, "shuffle"), (3, "shuffle"), (1, "narrow")])
def test_rows_are_delivered_once_through_many_faults(tmp_path: Path, count: int, plan: str) -> None:
    with cluster(tmp_path, count) as (servers, brokers):
        matrix = Matrix(tmp_path, servers, plan, "local[3,4]", random.Random(), brokers)
        try:
            matrix.run(35)
            assert matrix.verify()
        finally:
            matrix.stop()
