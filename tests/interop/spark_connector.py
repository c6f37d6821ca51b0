"""Shell: Spark's own Kafka connector, from Maven Central, in a local session."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.spark.environment import prepare_environment
from tests.interop.jars import SPARK_KAFKA, MavenMissingError, resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_IN_SPARK = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
FALLBACK_VERSION = "4.0.0"
"""Not every mirror of Maven Central has the newest connector; this one runs on every Spark 4."""


def connector_jars() -> list[Path]:
    """The connector of the installed Spark's version or an older one; an empty list without Maven."""
    import pyspark

    for version in (pyspark.__version__, FALLBACK_VERSION):
        try:
            folder = resolve(f"{SPARK_KAFKA}:{version}")
        except subprocess.CalledProcessError:
            continue
        except MavenMissingError:
            break
        return [jar for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(_NOT_IN_SPARK)]
    return []


def start_session(jars: list[Path]) -> SparkSession:
    """`local[2]`, with these jars on the class path."""
    prepare_environment()
    from pyspark.sql import SparkSession

    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 2)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark
