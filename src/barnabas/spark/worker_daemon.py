"""Shell: Spark's daemon of Python workers, with the modules that our formats need loaded before it forks.

    spark.python.daemon.module=barnabas.spark.worker_daemon

A worker of Spark's own daemon imports NumPy, Arrow, pandas, numba and our codecs itself: more than a second of
processor time and 150 MB in each worker, and again after a minute without work, when Spark ends idle workers. Workers
of this daemon have the modules when they begin, and share their memory.

Spark 4.3 starts only the workers that run tasks by this setting. The processes that answer a single call of the driver
(create a data source, plan a read, commit a write) come from Spark's own daemon.

A process with other threads must not fork: a lock that such a thread holds stays locked in the child. Spark's daemon
therefore imports nothing, since NumPy and Arrow start threads. These can be turned off, and are here: OMP_NUM_THREADS
is 1 in Spark's workers by default, and jemalloc's background thread is disabled. If there is a second thread
nevertheless, or the system does not show its threads, this module becomes Spark's daemon.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

PRELOADED: Final = (
    "pyarrow.compute",
    "pandas",
    "pyspark.worker",
    "barnabas.spark.sink.tasks",
    "barnabas.spark.source.ranges",
    "barnabas.protocol.records.columnar",
)
_JEMALLOC: Final = "JE_ARROW_MALLOC_CONF"
_THREADS: Final = Path("/proc/self/task")


def preload() -> bool:
    """Import the modules. Returns whether the process may fork."""
    os.environ.setdefault(_JEMALLOC, "background_thread:false")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in PRELOADED:
        with suppress(ImportError):  # a task that needs the module says so
            import_module(name)
    with suppress(ImportError):
        from barnabas.protocol.records.columnar._jit import start_compiler

        start_compiler()
    gc.freeze()  # collections in a worker traverse only its own objects, and do not copy the pages of these
    return len(list(_THREADS.iterdir())) == 1


def main() -> None:
    if not (_THREADS.is_dir() and preload()):
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
