"""One bad flow is one bad flow; flows that a topic links; topics that do not exist yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.pipelines.errors import FlowFailedError
from barnabas.spark.pipelines.runner import FlowEvent, LoadedPipeline, PipelineRunner, RunOptions
from barnabas.spark.pipelines.state import PipelineProject, read_project
from tests.progress import wait_until
from tests.system.spark.broker import Topics, values
from tests.system.spark.pipeline_projects import Write, run_once

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("transactions")]


def stream(servers: str, topic: str) -> str:
    return (
        f"spark.readStream.format('barnabas').option('kafka.bootstrap.servers', '{servers}')"
        f".option('subscribe', '{topic}').option('startingOffsets', 'earliest').load()"
    )


def with_settings(project: PipelineProject, **settings: str) -> PipelineProject:
    text = project.spec_path.read_text()
    lines = "".join(f"\n  {name}: '{value}'" for name, value in settings.items())
    project.spec_path.write_text(f"{text}\nconfiguration:{lines}\n")
    return read_project(project.spec_path)


def test_flows_that_a_topic_links_run_in_their_order_and_the_topic_is_created(
    spark: SparkSession, topics: Topics, servers: str, topic: str, write: Write
) -> None:
    topics.create(topic)
    topics.produce(topic, values(50))
    sink = {
        "kafka.bootstrap.servers": servers,
        "topic": f"{topic}-clean",
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
    }
    project = write(
        {
            "1.py": f"""
@dp.materialized_view
def total():
    rows = spark.read.format("barnabas").option("kafka.bootstrap.servers", "{servers}")
    return rows.option("subscribe", "{topic}-clean").load().groupBy().count()

@dp.table
def kept():
    return {stream(servers, f"{topic}-clean")}.select("value")
""",
            "2.py": f"""
dp.create_sink("cleaned", "barnabas", {sink!r})

@dp.append_flow(target="cleaned")
def clean():
    return {stream(servers, topic)}.select("value")

@dp.table
def waiting():
    return {stream(servers, f"{topic}-never")}.select("value")
""",
        }
    )
    flows = run_once(project, spark)
    assert {name: (flow["state"], flow["rows"], flow["after"]) for name, flow in flows.items()} == {
        "clean": ("completed", 50, []),
        "total": ("completed", 1, ["clean"]),
        "kept": ("completed", 50, ["clean"]),
        "waiting": ("completed", 0, []),
    }
    assert spark.table("total").first()["count"] == 50
    assert {name: (flow["lag"], flow["waiting_for"]) for name, flow in flows.items()} == {
        "clean": (0, []),
        "total": (None, []),
        "kept": (0, []),
        "waiting": (None, [f"{topic}-never"]),
    }
    topics.create(f"{topic}-never", 2)
    topics.produce(f"{topic}-never", values(7, partition=1))
    assert run_once(project, spark)["waiting"]["rows"] == 7


def test_a_continuous_run_goes_on_when_flows_fail_and_when_a_topic_is_missing(
    spark: SparkSession, topics: Topics, servers: str, topic: str, write: Write
) -> None:
    topics.create(topic)
    topics.produce(topic, values(20))
    project = with_settings(
        write(
            {
                "a.py": f"""
@dp.table
def good():
    return {stream(servers, topic)}.select("value")

@dp.table
def bad():
    @F.udf("string")
    def breaking(value):
        raise ValueError("a function of the user fails")
    return {stream(servers, topic)}.select(breaking("value").alias("value"))

@dp.table
def wrong():
    return {stream(servers, topic)}.select(F.assert_true(F.col("offset") < 0).alias("checked"), "value")

@dp.table
def late():
    return {stream(servers, f"{topic}-late")}.select("value")
"""
            }
        ),
        **{"barnabas.pipelines.restarts": "1", "barnabas.pipelines.trigger": "200 ms"},
    )
    events: list[FlowEvent] = []
    runner = PipelineRunner(LoadedPipeline(project, spark), spark, RunOptions(continuous=True), events.append)
    errors: list[BaseException] = []
    with project.locked():
        thread = threading.Thread(target=lambda: _record(runner.run, errors))
        thread.start()

        def flow(name: str) -> dict[str, Any]:
            return next((f for f in project.run().get("flows", ()) if f["flow"] == name), {"state": None, "rows": 0})

        seen = lambda: (len(events), len(errors))  # noqa: E731
        for name in ("bad", "wrong"):
            wait_until(lambda name=name: flow(name)["state"] == "failed", f"{name} has failed", progress=seen)
        wait_until(lambda: flow("late").get("waiting_for") == [f"{topic}-late"], "late waits", progress=seen)
        assert (flow("late")["state"], flow("late")["lag"]) == ("running", None)
        topics.create(f"{topic}-late", 2)
        topics.produce(f"{topic}-late", values(5, partition=1))
        topics.produce(topic, values(3, start=20))
        wait_until(lambda: (flow("good")["rows"], flow("late")["rows"]) == (23, 5), "the others go on", progress=seen)
        assert flow("late")["waiting_for"] == []
        runner.request_stop()
        thread.join()
    (error,) = errors
    assert isinstance(error, FlowFailedError)
    assert str(error).startswith("2 of 4 flows failed: ")
    assert "bad: ValueError: a function of the user fails" in str(error)
    ended = {f["flow"]: (f["state"], f["failures"], f["restarts"], f["restarts_max"]) for f in project.run()["flows"]}
    assert ended == {
        "good": ("stopped", 0, 0, None),
        "bad": ("failed", 2, 1, 1),
        "wrong": ("failed", 2, 1, 1),
        "late": ("stopped", 0, 0, None),
    }
    said = [event.message for event in events if event.flow == "bad" and event.message]
    assert said[0].endswith("(restart 1 of 1 in 1 s)")


def _record(run: Callable[[], None], errors: list[BaseException]) -> None:
    try:
        run()
    except FlowFailedError as error:
        errors.append(error)
