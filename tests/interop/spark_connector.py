"""Shell: Spark's own Kafka connector, from Maven Central, in a local session."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.spark.environment import prepare_environment
from tests.interop.jars import SPARK_KAFKA, MavenMissingError, resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_IN_SPARK = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
_CHOICES: tuple[tuple[str, ...], ...] = (
    (f"{SPARK_KAFKA}:{{spark}}",),
    # Not every mirror of Maven Central has the newest connector, or all of its parts: the nearest one whose streaming
    # reader fits, with a token provider (which nothing here uses) of another version.
    (f"{SPARK_KAFKA}:4.2.0", f"{_TOKENS}:4.0.0"),
)


def connector_jars() -> list[Path]:
    """The connector of the installed Spark's version, or the nearest that is to be had; an empty list without Maven."""
    import pyspark

    for choice in _CHOICES:
        coordinates = [coordinate.format(spark=pyspark.__version__) for coordinate in choice]
        try:
            folder = resolve(*coordinates, exclude=("org.apache.spark:*",) if len(choice) > 1 else ())
        except subprocess.CalledProcessError:
            continue
        except MavenMissingError:
            break
        return [jar for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(_NOT_IN_SPARK)]
    return []


def start_session(jars: list[Path], settings: Mapping[str, str] | None = None) -> SparkSession:
    """`local[2]`, with these jars on the class path, and with `settings` of Spark."""
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 2)
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


@contextmanager
def running_session(jars: list[Path], settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """`start_session` for a test module, in a JVM of its own: the class path and Java options of a JVM are those of the
    first session in it, and a stopped session leaves its JVM to the next one of the process.
    """
    _end_jvm()
    session = start_session(jars, settings)
    try:
        yield session
    finally:
        session.stop()
        _end_jvm()


def _end_jvm() -> None:
    """Ends the JVM of this process's Spark, if it has one. Its sessions are stopped already."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM waits for this
    gateway.proc.wait(60)
    SparkContext._gateway = SparkContext._jvm = None
