"""A checkpoint that was restored from a backup: its numbers stand for other rows, and no row is left out or doubled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from barnabas.cli.app import build_app
from barnabas.spark.pipelines.errors import FlowFailedError
from tests.system.spark.broker import Topics, committed, values
from tests.system.spark.pipeline_projects import Write, json_record, run_once, topic_stream

pytestmark = pytest.mark.system


def test_a_restored_checkpoint_stops_and_continues_from_the_ledger(
    spark: SparkSession, topics: Topics, servers: str, topic: str, options: dict[str, str], tmp_path: Path
) -> None:
    topics.create(topic)
    topics.create(f"{topic}.copy")
    checkpoint = tmp_path / "checkpoint"

    def copy() -> None:
        stream = spark.readStream.format("barnabas").options(**options, startingOffsets="earliest").load()
        query = (
            stream.select("value")
            .writeStream.format("barnabas")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", f"{topic}.copy")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    topics.produce(topic, values(100))
    copy()
    shutil.copytree(checkpoint, tmp_path / "backup")
    topics.produce(topic, values(100, start=100))
    copy()
    topics.produce(topic, values(200, start=200))
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "backup", checkpoint)
    with pytest.raises(StreamingQueryException, match="pipelines repair --checkpoint"):
        copy()
    assert len(committed(servers, f"{topic}.copy")) == 200
    repaired = CliRunner().invoke(
        build_app(), ["pipelines", "repair", "--checkpoint", str(checkpoint), "--continue-from-ledger", "--yes"]
    )
    assert repaired.exit_code == 0, repaired.output
    copy()
    copied = committed(servers, f"{topic}.copy")
    assert copied == [str(number).encode() for number in range(400)]


def test_a_table_of_files_is_not_passed_over_after_its_checkpoint_was_restored(
    spark: SparkSession, topics: Topics, servers: str, topic: str, write: Write, tmp_path: Path
) -> None:
    topics.create(topic)
    stream = topic_stream(servers, topic, "id int")
    project = write({"seen.py": f"@dp.table\ndef seen_{topic[-1]}():\n    return {stream}\n"})
    table, checkpoints = f"seen_{topic[-1]}", tmp_path / "storage" / "_checkpoints"
    topics.produce(topic, [json_record(id=1)])
    run_once(project, spark)
    shutil.copytree(checkpoints, tmp_path / "backup")
    topics.produce(topic, [json_record(id=2)])
    run_once(project, spark)
    shutil.rmtree(checkpoints)
    shutil.copytree(tmp_path / "backup", checkpoints)
    topics.produce(topic, [json_record(id=3)])
    with pytest.raises(FlowFailedError, match="would not write its next rows"):
        run_once(project, spark)
    assert spark.table(table).count() == 2
    run_once(project, spark, full_refresh=[table])
    assert sorted(row.id for row in spark.table(table).collect()) == [1, 2, 3]
    shutil.rmtree(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:") + f"/{table}/_spark_metadata")
    with pytest.raises(FlowFailedError, match="was removed or restored from a backup"):
        run_once(project, spark)


def test_a_table_of_change_events_that_was_replaced_is_noticed(
    spark: SparkSession, topics: Topics, servers: str, topic: str, write: Write
) -> None:
    from deltalake import DeltaTable

    topics.create(topic)
    topics.produce(topic, [json_record(id=1, n=1)])
    table = f"merged_{topic[-1]}"
    text = f"""
@dp.temporary_view
def changes_{topic[-1]}():
    return {topic_stream(servers, topic, "id int, n long")}
dp.create_streaming_table("{table}", format="delta")
dp.create_auto_cdc_flow("{table}", "changes_{topic[-1]}", keys=["id"], sequence_by="n")
"""
    project = write({"merged.py": text})
    run_once(project, spark)
    run_once(project, spark)
    place = spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:") + f"/{table}"
    DeltaTable.create(place, DeltaTable(place).schema(), mode="overwrite")
    with pytest.raises(FlowFailedError, match="was replaced"):
        run_once(project, spark)
    shutil.rmtree(place)
    with pytest.raises(FlowFailedError, match="was removed"):
        run_once(project, spark)


def test_a_topic_that_was_created_again_is_not_read_from_the_old_position(
    spark: SparkSession, topics: Topics, servers: str, topic: str, options: dict[str, str], tmp_path: Path
) -> None:
    def read(**more: str) -> list[int]:
        stream = spark.readStream.format("barnabas").options(**{**options, **more}).load()
        query = (
            stream.selectExpr("cast(cast(value as string) as int) as n")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted(row.n for row in spark.read.parquet(str(tmp_path / "rows")).collect())

    topics.create(topic)
    topics.produce(topic, values(100))
    assert len(read(startingOffsets="earliest")) == 100
    topics.delete(topic)
    topics.create(topic)
    topics.produce(topic, values(150, start=1000))
    with pytest.raises(StreamingQueryException, match=f"the topic {topic} was replaced"):
        read()
    assert read(failOnDataLoss="false") == [*range(100), *range(1000, 1150)]
    assert len(read()) == 250  # the position belongs to the new topic now
