"""Shell: prepares a process before its first Spark session."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

from barnabas.spark.home import spark_home
from barnabas.spark.java import ensure_java

REDACTED_OPTIONS: Final = (
    r"(?i)url|jaas|user\.info|authorization|passphrase|keystore\.key|key\.pem|account.key|connection.string"
)
"""A value for `spark.sql.redaction.options.regex`. It hides the options of our formats and of object stores that have
secrets, and that Spark shows in plans and in its event log otherwise. By itself Spark hides options with `password`,
`secret` or `token` in their names or their values, and those with `url` in their names."""

_WORKER_DAEMON: Final = "barnabas.spark.worker_daemon"


def session_defaults(master: str) -> dict[str, str]:
    """The settings of every session that a command of ours starts, unless its configuration has others.

    The daemon of workers is a module of ours (see `worker_daemon`) if they run here; on other hosts, Spark's own starts
    without it.
    """
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.redaction.options.regex": REDACTED_OPTIONS,
    }
    if master.startswith("local"):
        defaults["spark.python.daemon.module"] = _WORKER_DAEMON
    return defaults


def prepare_environment() -> Path:
    """Set JAVA_HOME, PYSPARK_PYTHON, SPARK_LOCAL_IP and SPARK_HOME for Spark. Returns the Java home. Raises
    JavaNotFoundError.

    PYSPARK_PYTHON becomes the running Python interpreter. By default, Spark starts its workers with the `python3` of
    the PATH. Outside an activated virtual environment, that is another interpreter without the package
    `pyspark_barnabas`, and Spark reports that `format("barnabas")` is not found. SPARK_LOCAL_IP becomes 127.0.0.1.
    SPARK_HOME becomes a home of the installed PySpark from which Spark's Python processes start a second earlier (see
    `spark_home`). These three variables keep a value that is already set; JAVA_HOME is replaced if its Java is too old
    (see `ensure_java`).
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if "SPARK_HOME" not in os.environ and (home := spark_home()) is not None:
        os.environ["SPARK_HOME"] = str(home)
    return ensure_java()


def activate_session(session: Any) -> None:
    """Make the session the active one of the current thread.

    Before it starts a query, Spark looks up a format that is written in Python in the active session of the thread.
    A thread other than the one that created the session has none, and the query fails with DATA_SOURCE_NOT_FOUND.
    """
    session._jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)
