"""Shell: prepares a process before its first Spark session."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from barnabas.spark.java import ensure_java


def prepare_environment() -> Path:
    """Set JAVA_HOME, PYSPARK_PYTHON, SPARK_LOCAL_IP and PYSPARK_UDS_MODE. Returns the Java home. Raises
    JavaNotFoundError.

    PYSPARK_PYTHON becomes the running Python interpreter. By default, Spark starts its workers with the `python3` of
    the PATH. Outside an activated virtual environment, that is another interpreter without the package
    `pyspark_barnabas`, and Spark reports that `format("barnabas")` is not found. SPARK_LOCAL_IP becomes 127.0.0.1.

    PYSPARK_UDS_MODE makes Spark talk to its Python workers over Unix sockets. Over TCP, a worker sends the end of a
    task or of a commit in a second small segment, which waits up to 40 ms for the acknowledgement of the first one
    (Nagle's algorithm and delayed acknowledgements).

    These variables keep a value that is already set; JAVA_HOME is replaced if its Java is too old (see `ensure_java`).
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if hasattr(socket, "AF_UNIX"):
        os.environ.setdefault("PYSPARK_UDS_MODE", "true")
    return ensure_java()
