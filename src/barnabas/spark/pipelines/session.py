"""Shell: the Spark session of a pipeline: classic, configured by the spec, and quiet."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from barnabas.spark.environment import prepare_environment, session_defaults
from barnabas.spark.java import shim_home
from barnabas.spark.pipelines.errors import SpecError
from barnabas.spark.pipelines.spec import PipelineSpec

_LOG_SETTINGS: Final = """rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


@contextmanager
def pipeline_session(spec: PipelineSpec, directory: Path, master: str | None, log_file: Path) -> Iterator[Any]:
    """Start a session for the pipeline, and stop it at the end. Spark's log goes to `log_file`. Raises
    JavaNotFoundError and SpecError.
    """
    configuration = spec.spark_configuration()
    if "spark.remote" in configuration:
        raise SpecError("spark.remote is for Spark's own spark-pipelines command; here, give --master or spark.master")
    with tempfile.TemporaryDirectory(prefix="barnabas-pipelines-") as scratch:
        # The launcher removes a Java option that makes Java print a warning.
        os.environ["JAVA_HOME"] = str(shim_home(prepare_environment(), Path(scratch) / "java"))
        log_file.parent.mkdir(parents=True, exist_ok=True)
        log_settings = Path(scratch) / "log4j2.properties"
        log_settings.write_text(_LOG_SETTINGS.format(level="warn", path=log_file))
        from pyspark.sql import SparkSession

        chosen = master or configuration.get("spark.master") or os.environ.get("MASTER") or "local[*]"
        java_options = configuration.pop("spark.driver.extraJavaOptions", "")
        settings = {
            **session_defaults(chosen),
            "spark.sql.warehouse.dir": str(directory.resolve() / "spark-warehouse"),
            "spark.sql.streaming.stopTimeout": "30s",
            **configuration,
            "spark.driver.extraJavaOptions": (
                f"-Dlog4j2.configurationFile={log_settings.as_uri()} {java_options}".strip()
            ),
        }
        builder = SparkSession.builder.appName(spec.name)
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.master(chosen).getOrCreate()
        try:
            _select_schema(spark, spec)
            yield spark
        finally:
            spark.stop()


def _select_schema(spark: Any, spec: PipelineSpec) -> None:
    if spec.catalog:
        spark.catalog.setCurrentCatalog(spec.catalog)
    if spec.database:
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS `{spec.database}`")
        spark.catalog.setCurrentDatabase(spec.database)
