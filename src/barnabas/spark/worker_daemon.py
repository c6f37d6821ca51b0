"""Shell: Spark's daemon of Python workers, with the modules that our formats need loaded before it forks.

    spark.python.daemon.module=barnabas.spark.worker_daemon

A worker of Spark's own daemon imports NumPy, Arrow, pandas, numba and our codecs itself: more than a second of
processor time and 150 MB in each worker, and again after a minute without work, when Spark ends idle workers. Workers
of this daemon have the modules when they begin, and share their memory.

There is one daemon for each kind of worker: the one that runs tasks, and those that answer one call of the driver each
(create a data source, plan a read, commit a write). A query calls each of these once or twice while it starts.

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

_CODECS: Final = ("pyarrow.compute", "barnabas.protocol.records.columnar")
_TASKS: Final = "pyspark.worker"
_FOR_TASKS: Final = ("pandas", "barnabas.spark.sink.tasks", "barnabas.spark.source.ranges")
_LOOKUP: Final = "pyspark.sql.worker.lookup_data_sources"
"""It only lists the data sources that are installed."""
_JEMALLOC: Final = "JE_ARROW_MALLOC_CONF"
_THREADS: Final = Path("/proc/self/task")


def modules_of(worker: str) -> tuple[str, ...]:
    """What workers of a kind, by the name of their module, need at their first task or call."""
    if worker == _LOOKUP:
        return (worker,)
    return (worker, *_CODECS, *(_FOR_TASKS if worker == _TASKS else ()))


def preload(worker: str) -> bool:
    """Import the modules for a kind of worker. Returns whether the process may fork."""
    os.environ.setdefault(_JEMALLOC, "background_thread:false")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in modules_of(worker):
        with suppress(ImportError):  # a task that needs the module says so
            import_module(name)
    if worker == _TASKS:
        with suppress(ImportError):
            from barnabas.protocol.records.columnar._jit import start_compiler

            start_compiler()
    gc.freeze()  # collections in a worker traverse only its own objects, and do not copy the pages of these
    return len(list(_THREADS.iterdir())) == 1


def main() -> None:
    worker = sys.argv[1] if len(sys.argv) > 1 else _TASKS
    if not (_THREADS.is_dir() and preload(worker)):
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
