"""The order in which the workers of `pytest -n` run the files of tests.

Three rules on top of `--dist loadfile`, which runs each file in one worker. The files that start processes, Spark or
simulated worlds come first, because one of them at the end would leave the other workers idle. All files with a Spark
session go to one worker, because each worker that runs one of them starts a JVM of its own. The simulator's tests
share nothing, and go to any worker one by one: a file of 38 planted bugs would leave the other workers idle.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, Final

from xdist.scheduler import LoadFileScheduling

SPARK: Final = "tests/system/spark"
OWN_DRIVERS: Final = (f"{SPARK}/test_spark_delivery.py", f"{SPARK}/test_spark_cluster.py")
"""Files whose tests start Spark in processes of their own, and do not use the session of the worker."""
SIMULATED: Final = "tests/sim/"
LONG_FIRST: Final = (SPARK, "tests/system", "tests/sim", "tests/property")
"""Folders whose tests come first, in this order. All other tests follow."""


def rank(path: PurePath) -> int:
    """The position of the tests of a file: lower ones run first."""
    folder = path.as_posix()
    return next((at for at, long in enumerate(LONG_FIRST) if f"{long}/" in folder), len(LONG_FIRST))


class LongFilesFirst(LoadFileScheduling):
    """Gives files to workers in the order of the collection, and all files of `SPARK` to one worker."""

    def __init__(self, config: Any, log: Any = None) -> None:
        config.option.loadscopereorder = (
            False  # xdist's own order puts files of few tests last: those are the long ones
        )
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(SIMULATED):
            return nodeid
        file = str(super()._split_scope(nodeid))
        return SPARK if file.startswith(f"{SPARK}/") and file not in OWN_DRIVERS else file
