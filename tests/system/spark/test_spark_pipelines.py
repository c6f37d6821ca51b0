"""Pipelines that are files: checked, run, continued after a stop and after a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.cli.app import build_app
from barnabas.core.ids import TopicPartition
from barnabas.spark.pipelines.errors import AlreadyRunningError, FlowFailedError, PipelineError, PlanChangedError
from barnabas.spark.pipelines.runner import LoadedPipeline
from barnabas.spark.pipelines.state import PipelineProject, read_project
from barnabas.spark.pipelines.template import write_project
from tests.system.pages import DOCS
from tests.system.spark.broker import Record, Topics
from tests.system.spark.pipeline_projects import Write, run_once


def order(number: int, customer: str = "ada", amount: float = 50.0) -> Record:
    return Record(json.dumps({"id": number, "customer": customer, "amount": amount}).encode())


def sink_ids(spark: SparkSession, servers: str, topic: str) -> list[int]:
    records = spark.read.format("barnabas").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    values = records.load().selectExpr("cast(value as string) as v")
    return sorted(json.loads(row.v)["id"] for row in values.collect())


@pytest.fixture
def shop(
    spark: SparkSession, topics: Topics, servers: str, topic: str, tmp_path: Path, clean_catalog: None
) -> PipelineProject:
    """The project of `init`, whose tables are in the warehouse of the tests' session."""
    directory = tmp_path / topic
    write_project(directory, topic, servers)
    spec = directory / "spark-pipeline.yml"
    warehouse = spark.conf.get("spark.sql.warehouse.dir")
    spec.write_text(
        spec.read_text().replace("configuration:", f"configuration:\n  spark.sql.warehouse.dir: {warehouse}")
    )
    topics.create(f"{topic}-orders", 2)
    topics.create(f"{topic}-large-orders")
    return read_project(spec)


@pytest.mark.system
@pytest.mark.slow
def test_the_project_of_init_runs_and_continues_after_a_kill(
    spark: SparkSession, topics: Topics, servers: str, topic: str, shop: PipelineProject
) -> None:
    numbers = iter(range(1, 1_000))
    topics.produce(f"{topic}-orders", [order(next(numbers), amount=100) for _ in range(20)])
    flows = run_once(shop, spark)
    assert {name: (flow["state"], flow["rows"]) for name, flow in flows.items()} == {
        "order_log": ("completed", 20),
        "find_large_orders": ("completed", 20),
        "customer_totals": ("completed", 1),
    }
    assert topics.group_offsets(f"{topic}.order_log")[TopicPartition(f"{topic}-orders", 0)] == (20, "")

    command = [sys.executable, "-m", "barnabas", "pipelines", "run", str(shop.directory), "--continuous", "--json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as driver:
        assert driver.stdout is not None
        with pytest.raises(AlreadyRunningError, match=f"pipelines stop {topic}"):
            assert driver.stdout.readline()  # the first event: the driver has the lock
            with shop.locked():
                pass
        topics.produce(f"{topic}-orders", [order(next(numbers), amount=100) for _ in range(20)])
        for line in driver.stdout:
            event = json.loads(line)
            if event["event"] == "progress" and event["flow"] == "find_large_orders" and event["rows"]:
                break
        topics.produce(f"{topic}-orders", [order(next(numbers), amount=100) for _ in range(20)])
        driver.send_signal(signal.SIGKILL)

    flows = run_once(shop, spark)
    assert {flow["state"] for flow in flows.values()} == {"completed"}
    assert sorted(row.id for row in spark.table("order_log").select("id").collect()) == list(range(1, 61))
    (totals,) = spark.table("customer_totals").collect()
    assert (totals.customer, totals.orders, totals.amount) == ("ada", 60, 6_000.0)
    assert sink_ids(spark, servers, f"{topic}-large-orders") == list(range(1, 61))


RATE = "spark.readStream.format('rate').load()"

REFUSED = {
    "a misspelt name": (
        {
            "a.py": f"@dp.table\ndef events():\n  return {RATE}\n",
            "b.sql": "CREATE STREAMING TABLE t AS SELECT * FROM STREAM(event)",
        },
        "b.sql:1: t: there is no table or view `event`: did you mean events?",
    ),
    "a cycle": (
        {
            "a.sql": "CREATE STREAMING TABLE a AS SELECT * FROM STREAM b;"
            "CREATE STREAMING TABLE b AS SELECT * FROM STREAM a"
        },
        "a reads itself: a ← b ← a",
    ),
    "a batch query for a streaming table": (
        {"a.py": "@dp.table\ndef t():\n  return spark.range(3)\n"},
        "a.py:4: the query of the flow t is not a stream",
    ),
    "a stream of a materialized view": (
        {
            "a.py": "@dp.materialized_view\ndef v():\n  return spark.range(3)\n",
            "b.sql": "CREATE STREAMING TABLE t AS SELECT * FROM STREAM(v)",
        },
        "t reads the materialized view v as a stream",
    ),
    "two flows into files": (
        {
            "a.py": f"dp.create_streaming_table('t')\n@dp.append_flow(target='t')\ndef f():\n  return {RATE}\n"
            f"@dp.append_flow(target='t')\ndef g():\n  return {RATE}\n"
        },
        "the flows f and g write to the table t, and Spark's files allow only one",
    ),
    "a Delta table without its connector": (
        {"a.py": f"@dp.table(format='delta')\ndef t():\n  return {RATE}\n"},
        "a.py:4: t has the format delta, whose connector this session lacks",
    ),
    "columns of different types": (
        {
            "a.py": f"dp.create_streaming_table('t', schema='value STRING')\n@dp.append_flow(target='t')\ndef f():\n"
            f"  return {RATE}.select('value')\n"
        },
        "the column value of f is bigint, but the table t has string",
    ),
    "a wrong column": (
        {"a.py": f"@dp.table\ndef t():\n  return {RATE}.select('valu')\n"},
        "a.py:4: t: [UNRESOLVED_COLUMN",
    ),
    "an error in a file": ({"a.py": "x = 1\nx.y\n"}, "a.py, line 5: AttributeError: 'int' object has no attribute 'y'"),
    "a query that returns nothing": (
        {"a.py": "@dp.table\ndef t():\n  pass\n"},
        "t returned NoneType; a query returns a DataFrame",
    ),
}


@pytest.mark.system
@pytest.mark.parametrize("case", list(REFUSED))
def test_what_is_refused_before_anything_is_written(
    case: str, spark: SparkSession, write: Write, tmp_path: Path
) -> None:
    files, message = REFUSED[case]
    project = write(files)
    before = spark.catalog.listTables()  # of other tests with this session
    with pytest.raises(PipelineError) as caught:
        LoadedPipeline(project, spark)
    assert message in str(caught.value)
    assert not (tmp_path / "storage").exists()
    assert spark.catalog.listTables() == before


@pytest.mark.system
def test_a_graph_of_python_and_sql_is_resolved_in_its_order(spark: SparkSession, write: Write) -> None:
    project = write(
        {
            "1.sql": "CREATE MATERIALIZED VIEW top AS WITH evens AS (SELECT * FROM default.seen)\n"
            "SELECT max(value) m FROM evens;",
            "2.py": f"@dp.table\ndef seen():\n  return spark.sql('SELECT * FROM STREAM(evens) WHERE value > 3')\n"
            f"@dp.temporary_view\ndef evens():\n  return {RATE}.where('value % 2 = 0')\n"
            "dp.create_sink('out', 'noop')\n@dp.append_flow(target='out')\ndef send():\n"
            "  return spark.readStream.table('seen').join(spark.read.table('names'), 'value')\n"
            "@dp.materialized_view\ndef names():\n  return spark.range(3).selectExpr('id as value', '\"n\" as name')\n",
        }
    )
    loaded = LoadedPipeline(project, spark)
    assert [(f["flow"], f["type"], f["reads"]) for f in loaded.describe()] == [
        ("seen", "stream", ["evens"]),
        ("top", "batch", ["seen"]),
        ("names", "batch", []),
        ("send", "stream", ["seen", "names"]),
    ]


@pytest.mark.system
def test_a_plan_that_cannot_continue_says_what_to_reset(
    spark: SparkSession, topics: Topics, servers: str, topic: str, write: Write
) -> None:
    topics.create(topic)
    topics.produce(topic, [Record(b"a"), Record(b"b"), Record(b"a")])

    def counting(aggregate: str) -> dict[str, str]:
        return {
            "a.py": f"""
@dp.table
def counts():
    stream = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", "{servers}")
    stream = stream.option("subscribe", "{topic}").option("startingOffsets", "earliest").load()
    return stream.withWatermark("timestamp", "1 second").groupBy(F.window("timestamp", "1 hour"), {aggregate}
"""
        }

    project = write(counting('"value").count()'))
    (flow,) = run_once(project, spark).values()
    assert (flow["rows"], flow["state_rows"], flow["watermark"] is None) == (3, 2, False)
    write(counting('"value", "offset").agg(F.max("partition").alias("p"))'))
    topics.produce(topic, [Record(b"c")])  # without a micro-batch, Spark does not open the state
    with pytest.raises(PlanChangedError, match="barnabas pipelines reset tried counts"):
        run_once(project, spark)
    project.save_resets(["counts"])
    (flow,) = run_once(project, spark).values()
    assert (flow["state"], flow["rows"], flow["state_rows"], project.resets()) == ("completed", 4, 4, [])


@pytest.mark.system
def test_the_files_of_the_page_are_a_pipeline(spark: SparkSession, write: Write) -> None:
    page = (DOCS / "PIPELINES.md").read_text(encoding="utf-8")
    files = {name: text for _, name, text in re.findall(r"```(\w+)\n(?:#|--) (\S+)\n(.*?)```", page, re.DOTALL)}
    project = write({Path(name).name: text for name, text in files.items() if name.startswith("transformations/")})
    spec = project.spec_path.with_name("spark-pipeline.yml")
    spec.write_text(files["spark-pipeline.yml"])
    loaded = LoadedPipeline(read_project(spec), spark)
    assert {flow["flow"]: flow["reads"] for flow in loaded.describe()} == {
        "order_log": ["orders"],
        "count_hourly": ["orders"],
        "totals": ["order_log"],
        "large_orders": ["order_log"],
        "customers": ["customer_changes"],
        "suppliers": ["customer_changes"],
    }


def test_the_commands_of_the_page_exist() -> None:
    app = build_app(("pipelines",))
    commands = {
        command.name or command.callback.__name__
        for command in app.registered_groups[0].typer_instance.registered_commands
    }
    page = (DOCS / "PIPELINES.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^barnabas pipelines ([\w-]+)", page, re.MULTILINE)) == commands


@pytest.mark.system
def test_a_materialized_view_that_fails_half_way_keeps_its_rows(spark: SparkSession, write: Write) -> None:
    """A reader of the catalog and a reader of the directory see one computation as a whole."""

    def view(rows: int, fails_at: int = -1) -> dict[str, str]:
        return {
            "a.py": f"""
@dp.materialized_view(partition_cols=["part"])
def numbers():
    @F.udf("long")
    def checked(n):
        assert n != {fails_at}, "the view fails half way"
        return n
    return spark.range(0, {rows}, 1, 2).select(checked("id").alias("n"), (F.col("id") % 2).alias("part"))
@dp.materialized_view
def total():
    return spark.read.table("numbers").agg(F.sum("n").alias("total"))
"""
        }

    warehouse = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:"))

    def seen() -> list[int]:
        """The rows in the catalog, which are those in the directory."""
        in_directory = sorted(row.n for row in spark.read.parquet(str(warehouse / "numbers")).collect())
        assert sorted(row.n for row in spark.table("numbers").collect()) == in_directory
        return in_directory

    def versions() -> list[str]:
        return sorted(entry.name for entry in (warehouse / "_numbers").iterdir())

    run_once(write(view(10)), spark)
    assert (seen(), spark.table("total").first().total) == (list(range(10)), 45)
    with pytest.raises(FlowFailedError, match="the view fails half way"):
        run_once(write(view(20, fails_at=19)), spark)
    assert (seen(), versions()[0]) == (list(range(10)), "1")
    project = write(view(20))
    flows = run_once(project, spark)
    assert (seen(), flows["numbers"]["rows"], flows["total"]["rows"]) == (list(range(20)), 20, 1)
    assert spark.table("total").first().total == 190
    assert (len(versions()), versions()[0]) == (2, "1")  # this one and the one before
    run_once(project, spark, full_refresh=["numbers"])
    assert (seen(), versions()) == (list(range(20)), ["1"])
