"""The daemon that loads modules before it forks Spark's workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark.daemon
import pytest

from barnabas.spark import worker_daemon
from barnabas.spark.environment import session_defaults

linux = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system does not show threads in /proc")


TASKS = "pyspark.worker"


@linux
def test_the_modules_are_loaded_and_the_process_has_one_thread() -> None:
    program = """
import sys
from barnabas.spark.worker_daemon import PRELOADED, preload
print(preload(), [name for name in PRELOADED if name not in sys.modules])
"""
    variables = {name: text for name, text in os.environ.items() if name != "OMP_NUM_THREADS"}
    answer = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
    assert answer.stdout == "True []\n"


@linux
def test_a_child_runs_kernels_that_its_parent_has_prepared() -> None:
    """A lock of Arrow or numba that the fork left locked would stop the child."""
    program = """
import os
from barnabas.spark.worker_daemon import preload
assert preload()
for _ in range(4):
    if os.fork() == 0:
        import pandas, pyarrow
        from barnabas.protocol.records.columnar import partitions_for_keys
        column = pyarrow.array(range(100_000)).cast(pyarrow.string())
        counts = pyarrow.table({"a": column}).group_by("a").aggregate([([], "count_all")])  # uses Arrow's threads
        keys = partitions_for_keys(pyarrow.array([b'a', b'b', b'c']), 7)
        os._exit(0 if (counts.num_rows, len(pandas.Series([1])), len(keys)) == (100_000, 1, 3) else 1)
print([os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(4)])
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert answer.stdout == "[0, 0, 0, 0]\n", answer.stderr


class Daemon:
    """Records what the module does instead of serving."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
        self.done: list[Any] = []
        monkeypatch.setattr(sys, "argv", ["worker_daemon", *arguments])
        monkeypatch.setattr(os, "execv", lambda _, command: self.done.append(command[1:]))
        monkeypatch.setattr(pyspark.daemon, "manager", lambda: self.done.append("serves"))


@pytest.mark.parametrize("may_fork", [True, False])
def test_it_serves_or_becomes_sparks_daemon(monkeypatch: pytest.MonkeyPatch, *, may_fork: bool) -> None:
    daemon = Daemon(monkeypatch, TASKS)
    monkeypatch.setattr(worker_daemon, "_THREADS", Path("/proc"))
    monkeypatch.setattr(worker_daemon, "preload", lambda: may_fork)
    worker_daemon.main()
    assert daemon.done[0] == ("serves" if may_fork else ["-m", "pyspark.daemon", TASKS])


@pytest.mark.parametrize(("master", "is_set"), [("local[*]", True), ("local", True), ("spark://host:7077", False)])
def test_only_local_masters_get_the_daemon(master: str, is_set: bool) -> None:
    assert ("spark.python.daemon.module" in session_defaults(master)) == is_set
