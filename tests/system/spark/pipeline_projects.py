"""Projects of pipelines that tests write and run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from barnabas.spark.pipelines.runner import LoadedPipeline, PipelineRunner, RunOptions
from barnabas.spark.pipelines.state import PipelineProject, read_project
from tests.system.spark.broker import Record

Write = Callable[[dict[str, str]], PipelineProject]

IMPORTS = """from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.active()
"""


def write_files(directory: Path, files: dict[str, str]) -> PipelineProject:
    """Writes a project with these files in `transformations`, in which Python files have the imports."""
    project = directory / "project"
    (project / "transformations").mkdir(parents=True, exist_ok=True)
    libraries = "[{glob: {include: transformations/**}}]"
    spec = f"name: tried\nstorage: {(directory / 'storage').as_uri()}\nlibraries: {libraries}"
    (project / "spark-pipeline.yml").write_text(spec)
    for name, text in files.items():
        (project / "transformations" / name).write_text(IMPORTS + text if name.endswith(".py") else text)
    return read_project(project / "spark-pipeline.yml")


def run_once(project: PipelineProject, spark: SparkSession, **options: Any) -> dict[str, Any]:
    """Runs the pipeline in this process, and returns the rows of its flows."""
    with project.locked():
        PipelineRunner(LoadedPipeline(project, spark), spark, RunOptions(**options), lambda _: None).run()
    return {flow["flow"]: flow for flow in project.run()["flows"]}


def topic_stream(servers: str, topic: str, columns: str) -> str:
    """A query over the JSON values of a topic, with these columns, as text for a file of a pipeline."""
    return f"""spark.readStream.format("barnabas").option("kafka.bootstrap.servers", "{servers}")\\
        .option("subscribe", "{topic}").option("startingOffsets", "earliest").load()\\
        .select(F.from_json(F.col("value").cast("string"), "{columns}").alias("r")).select("r.*")"""


def json_record(**values: Any) -> Record:
    return Record(json.dumps(values).encode())
