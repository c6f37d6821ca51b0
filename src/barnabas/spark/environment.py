"""Shell: prepares a process before its first Spark session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from barnabas.spark.java import ensure_java


def prepare_environment() -> Path:
    """Find a Java, and make Spark's workers use the running Python interpreter. Returns the Java home.

    By default, Spark starts its workers with the `python3` of the PATH. Outside an activated virtual environment, that
    is another interpreter without `pyspark_barnabas`, and `format("barnabas")` is "not found". Environment variables
    that are already set are not changed. Raises JavaNotFoundError.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return ensure_java()
