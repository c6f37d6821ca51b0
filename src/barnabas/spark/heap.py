"""Shell: keeps garbage collections cheap in the worker processes of Spark.

Spark's daemon collects all garbage of a worker after each task and each call. The compiled decoders, Arrow and the
client are some 170,000 objects that never become garbage, and a collection that traverses them takes about 70 ms of
processor time, several times per micro-batch. `gc.freeze` exempts the objects of the moment from all later collections.
"""

from __future__ import annotations

import gc
import os
from typing import Final

UNFROZEN_OBJECTS_MAX: Final = 5_000
"""The number of objects that a collection may traverse. More have come with modules or compiled functions."""
_REUSE: Final = "SPARK_REUSE_WORKER"
"""Spark sets this environment variable for processes that it uses for several tasks."""


def freeze_heap() -> None:
    """Exempt the objects of a worker process from garbage collections, if there are many.

    Called at the beginning of a task or call, when the collection after the previous one has left no garbage. Frozen
    objects are still freed when nothing refers to them; only cycles among them are not found any more.
    """
    if _REUSE in os.environ and len(gc.get_objects()) > UNFROZEN_OBJECTS_MAX:
        gc.freeze()
