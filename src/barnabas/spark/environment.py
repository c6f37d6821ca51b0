"""Shell: what must be true of a process before it makes its first Spark session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from barnabas.spark.java import ensure_java


def prepare_environment() -> Path:
    """Finds a Java, and lets Spark's workers use the Python that is running now. Returns the Java home.

    Left to itself Spark starts its workers with the `python3` of the PATH. Outside of an activated virtual environment
    that is another Python, which has no `pyspark_barnabas`, and `format("barnabas")` is "not found".
    What the user has set already stays. Raises JavaNotFoundError.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return ensure_java()
