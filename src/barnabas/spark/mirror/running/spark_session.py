"""Shell: the Spark session of a mirror, and the copiers that use it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.spark.environment import prepare_environment, session_defaults
from barnabas.spark.java import shim_home
from barnabas.spark.mirror.config.values import MirrorConfig, PairConfig
from barnabas.spark.mirror.ports import RecordCopier
from barnabas.spark.mirror.running.service import CopierFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_SETTINGS: Final = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} spark %p %c{1}: %m%n%ex
"""


@contextmanager
def spark_copiers(config: MirrorConfig, targets: Sequence[str], master: str | None) -> Iterator[CopierFactory]:
    """A function that makes the copier of a pair. Spark is started only if a pair copies, and stopped at the end unless
    the process had a Spark session before. Raises JavaNotFoundError.
    """
    if not any(pair.enabled for pair in config.towards(targets)):
        yield _no_copier
        return
    with tempfile.TemporaryDirectory(prefix="barnabas-mirror-") as scratch, _session(config, master, scratch) as spark:
        from barnabas.spark.mirror.copying.copier import SparkCopier

        yield lambda pair: SparkCopier(spark)


@contextmanager
def _session(config: MirrorConfig, master: str | None, scratch: str) -> Iterator[SparkSession]:
    """The Spark session that this process has, or a new one, which is stopped at the end."""
    java_home = prepare_environment()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    settings = Path(scratch) / "log4j2.properties"
    settings.write_text(_LOG_SETTINGS)
    given: Mapping[str, str] = config.spark
    java_options = f"-Dlog4j2.configurationFile={settings.as_uri()} {given.get(_JAVA_OPTIONS, _LIGHT_JAVA)}".strip()
    chosen = master or given.get("spark.master") or os.environ.get("MASTER") or _MASTER
    builder = SparkSession.builder.appName("barnabas mirror")
    for key, value in {**session_defaults(chosen), **_DEFAULTS, **given, _JAVA_OPTIONS: java_options}.items():
        builder = builder.config(key, value)
    # The launcher removes a Java option that makes Java print a warning. Only this Java is started by it: `scratch` is
    # deleted later.
    os.environ["JAVA_HOME"] = str(shim_home(java_home, Path(scratch) / "java"))
    try:
        spark: SparkSession = builder.master(chosen).getOrCreate()
    finally:
        os.environ["JAVA_HOME"] = str(java_home)
    try:
        yield spark
    finally:
        spark.stop()


_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LIGHT_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""No record passes through Java, which only schedules tasks: the second compiler, and a collector with threads of its
own, would cost more than they save."""
_MASTER: Final = "local[*,4]"
"""All cores; a failed task is repeated up to three times."""
_DEFAULTS: Final = {"spark.scheduler.mode": "FAIR"}
"""Several pairs copy in one session."""


def _no_copier(pair: PairConfig) -> RecordCopier:
    raise AssertionError(f"{pair.name} copies nothing")
