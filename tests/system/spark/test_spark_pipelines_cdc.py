"""`create_auto_cdc_flow`: a topic of change events becomes a Delta table, in order, also over several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.pipelines.errors import FlowFailedError, PipelineError
from barnabas.spark.pipelines.lags import refresh_lags
from barnabas.spark.pipelines.runner import LoadedPipeline
from tests.system.spark.broker import Topics
from tests.system.spark.pipeline_projects import Write, json_record, run_once, topic_stream

pytestmark = pytest.mark.system

COLUMNS = "id int, name string, at timestamp, n long, op string"


def pipeline(servers: str, topic: str, more: str = "") -> dict[str, str]:
    return {
        "customers.py": f"""
@dp.temporary_view
def changes():
    return {topic_stream(servers, topic, COLUMNS)}
dp.create_streaming_table("customers", format="delta", comment="The newest state")
dp.create_auto_cdc_flow("customers", "changes", keys=["ID"], sequence_by=F.struct("at", "n"),
    apply_as_deletes="op = 'D'", except_column_list=["op", F.col("n")]{more})
""",
        "names.sql": "CREATE MATERIALIZED VIEW names AS SELECT id, upper(name) AS name FROM customers",
    }


def change(number: int, name: str | None, second: int, n: int, op: str = "U") -> Any:
    return json_record(id=number, name=name, at=f"2026-01-01T00:00:0{second}Z", n=n, op=op)


def table(spark: SparkSession) -> Path:
    return Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")) / "customers"


def names(spark: SparkSession) -> list[tuple[int, str]]:
    return sorted((row.id, row.name) for row in spark.table("names").collect())


def test_changes_are_merged_in_the_order_of_their_sequence_over_several_runs(
    spark: SparkSession, topics: Topics, servers: str, topic: str, write: Write
) -> None:
    from deltalake import DeltaTable

    project = write(pipeline(servers, topic))
    topics.create(topic)
    topics.produce(
        topic,
        [
            change(1, "alice", 1, 0),
            change(2, "bob", 1, 0),
            change(1, "alicia", 1, 2),
            change(2, None, 2, 0, "D"),
            change(1, "al", 1, 1),  # late
            change(3, "carol", 1, 0),
        ],
    )
    assert {flow["state"] for flow in run_once(project, spark).values()} == {"completed"}
    assert names(spark) == [(1, "ALICIA"), (3, "CAROL")]
    assert DeltaTable(table(spark)).to_pyarrow_table().column_names == [
        *("id", "name", "at"),
        *("__autocdc_sequence_0", "__autocdc_sequence_1"),
    ]
    topics.produce(
        topic,
        [change(1, "late", 1, 1), change(2, "late", 1, 9), change(3, None, 1, 1, "D"), change(4, "dora", 1, 0)],
    )
    described, problems = refresh_lags(project.run()["flows"])
    assert ({flow["flow"]: flow["lag"] for flow in described}, problems) == ({"customers": 4, "names": None}, [])
    run_once(project, spark)
    assert names(spark) == [(1, "ALICIA"), (4, "DORA")]

    flows = run_once(project, spark, full_refresh=["customers"])
    assert (flows["customers"]["rows"], names(spark)) == (10, [(1, "ALICIA"), (4, "DORA")])


def test_an_event_without_a_key_or_a_sequence_ends_the_flow(
    spark: SparkSession, topics: Topics, servers: str, topic: str, write: Write
) -> None:
    project = write(pipeline(servers, topic))
    topics.create(topic)
    topics.produce(topic, [change(1, "a", 1, 1), json_record(name="b", at="2026-01-01T00:00:00Z", n=1)])
    with pytest.raises(FlowFailedError, match="of customers has events in which the key id is null"):
        run_once(project, spark)
    topics.delete_before(topic, 0, 2)
    topics.produce(topic, [change(1, "a", 1, 1), json_record(id=1, name="b", at="2026-01-01T00:00:00Z")])
    project.save_resets(["customers"])
    with pytest.raises(FlowFailedError, match="in which sequence_by is null"):
        run_once(project, spark)


STREAM = """@dp.temporary_view
def s():
  stream = spark.readStream.format("rate").load()
  return stream.withColumn("m", F.create_map("value", "value"))
"""
DELTA = "dp.create_streaming_table('t', format='delta')\n"
FLOW = "dp.create_auto_cdc_flow('t', 's', ['value'], 'timestamp')\n"

REFUSED = {
    "a table of files": (
        STREAM + "dp.create_streaming_table('t')\n" + FLOW,
        "replaces and deletes rows of t, which parquet files do not allow; write create_streaming_table('t', "
        "format='delta')",
    ),
    "no streaming table": (STREAM + "dp.create_sink('t', 'noop')\n" + FLOW, "merges changes into the sink t"),
    "a second flow": (
        STREAM + DELTA + FLOW + "@dp.append_flow(target='t')\ndef f():\n  return spark.readStream.table('s')\n",
        "merges changes into t, to which f writes too",
    ),
    "a stream of a merged table": (
        STREAM + DELTA + FLOW + "@dp.table\ndef u():\n  return spark.readStream.table('t')\n",
        "u reads t as a stream, but its rows are replaced and deleted",
    ),
    "a misspelt key": (STREAM + DELTA + FLOW.replace("['value']", "['valu']"), "did you mean value?"),
    "a sequence without an order": (
        STREAM + DELTA + FLOW.replace("'timestamp'", "'m'"),
        "a.py:9: t: sequence_by is of the type map",
    ),
    "a wrong expression": (STREAM + DELTA + FLOW.replace("'timestamp'", "'timestam'"), "[UNRESOLVED_COLUMN"),
    "a misspelt source": (STREAM + DELTA + FLOW.replace("'s'", "'ss'"), "there is no table or view `ss`"),
    "a history": (
        STREAM + DELTA + FLOW.replace("'timestamp'", "'timestamp', stored_as_scd_type=2"),
        "stored_as_scd_type=2 keeps the history",
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_is_refused(case: str, spark: SparkSession, write: Write, tmp_path: Path) -> None:
    text, message = REFUSED[case]
    with pytest.raises(PipelineError) as caught:
        LoadedPipeline(write({"a.py": text}), spark)
    assert message in str(caught.value)
    assert not (tmp_path / "storage").exists()


def test_a_flow_in_sql(spark: SparkSession, write: Write) -> None:
    text = """CREATE STREAMING TABLE t USING delta
    FLOW AUTO CDC FROM STREAM(s) KEYS (value) APPLY AS DELETE WHEN value < 0 SEQUENCE BY timestamp COLUMNS (value)"""
    loaded = LoadedPipeline(write({"a.py": STREAM, "t.sql": text}), spark)
    assert [(flow["flow"], flow["type"], flow["format"], flow["reads"]) for flow in loaded.describe()] == [
        ("t", "stream", "delta", ["s"])
    ]
    output = loaded.graph.output("t")
    assert output is not None
    assert loaded.evaluator.schema(output).names == ["value"]
