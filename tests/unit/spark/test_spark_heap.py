"""Spark collects the garbage of a worker after every task; the modules of a worker are not traversed each time."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from barnabas.spark.heap import UNFROZEN_OBJECTS_MAX, freeze_heap


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.freeze()  # as tests/conftest.py leaves it


def test_a_process_that_spark_does_not_reuse_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    gc.unfreeze()
    freeze_heap()
    assert gc.get_freeze_count() == 0


def test_few_new_objects_are_not_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage in cycles would stay for ever if every task froze its own objects."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    freeze_heap()
    frozen = gc.get_freeze_count()
    assert frozen > UNFROZEN_OBJECTS_MAX
    few = [[] for _ in range(UNFROZEN_OBJECTS_MAX // 10)]
    freeze_heap()
    assert gc.get_freeze_count() <= frozen
    many = [[] for _ in range(UNFROZEN_OBJECTS_MAX + 1)]
    freeze_heap()
    assert gc.get_freeze_count() > len(few) + len(many)


def test_a_collection_in_a_worker_that_has_read_and_written_traverses_few_objects() -> None:
    """Before, the 150,000 objects of the kernels and of the client were traversed after every task."""
    program = textwrap.dedent(
        """
        import gc
        import barnabas.protocol.records.columnar
        import barnabas.spark.sink.tasks
        import barnabas.spark.source.ranges
        from barnabas.spark.source.reader import schema

        gc.collect()
        before = len(gc.get_objects())
        schema({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})
        print(before, len(gc.get_objects()))
        """
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "SPARK_REUSE_WORKER": "1"},
    )
    before, after = map(int, ran.stdout.split())
    assert before > 50_000
    assert after < UNFROZEN_OBJECTS_MAX
