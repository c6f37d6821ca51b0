"""The runtime on Spark, with queries that a test fails, and when a failed query starts again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.spark.connectors.connect.cluster.ports import (
    ConfigDefinition,
    ConfigFinding,
    ConnectorJob,
    ConnectorPlaces,
    ConnectPlugin,
    TaskReport,
)
from barnabas.spark.connectors.connect.cluster.values import ConnectorConfig, ConnectorKind, ConnectorState
from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
from barnabas.spark.connectors.connect.plans.queries import PlannedQuery
from barnabas.spark.connectors.connect.restarts import FIRST_PAUSE_MS, PAUSE_MAX_MS, QueryRestarts
from barnabas.spark.connectors.connect.secrets import ConnectorStartError
from barnabas.spark.connectors.connect.spark_runtime import SparkConnectorRuntime
from barnabas.spark.connectors.connect.worker_config import parse_worker_config

PLACES = ConnectorPlaces("/x/n/0", "/x/n/staging-0")
WORKER = {"group.id": "g", "config.storage.topic": "c", "status.storage.topic": "s", "storage.location": "/x"}


class Query:
    """What the runtime uses of Spark's `StreamingQuery`."""

    def __init__(self, places: ConnectorPlaces) -> None:
        self.places = places
        self.isActive = True
        self.lastProgress: dict[str, Any] | None = None
        self.error: str | None = None

    def fail(self, error: str) -> None:
        self.isActive, self.error = False, error

    def exception(self) -> str | None:
        return self.error

    def stop(self) -> None:
        self.isActive = False


class Plan:
    version = "1.0"
    topics = ("orders",)

    def __init__(self, planner: Planner, config: ConnectorConfig) -> None:
        self._planner = planner
        self.config = config
        self.queries = int(config.get("queries", "1"))

    def start(self, number: int, spark: Any, places: ConnectorPlaces) -> Any:
        if self.config.get("refuse") == str(number):
            raise OSError("the database is down")
        self._planner.started.append(Query(places))
        return self._planner.started[-1]


class Planner:
    def __init__(self) -> None:
        self.started: list[Query] = []
        self.plans: list[Plan] = []

    def plugins(self) -> Sequence[ConnectPlugin]:
        return []

    def kind(self, config: ConnectorConfig) -> ConnectorKind:
        return ConnectorKind.SINK

    def definitions(self, plugin: str) -> Sequence[ConfigDefinition]:
        return []

    def findings(self, config: ConnectorConfig) -> Sequence[ConfigFinding]:
        return []

    def plan(self, config: ConnectorConfig) -> Plan:
        self.plans.append(Plan(self, config))
        return self.plans[-1]


class Session:
    """What the runtime uses of a `SparkSession`. `active_in` has the threads in which it was made the active one."""

    stopped = False

    def __init__(self) -> None:
        self._jsparkSession = "the session of the JVM"
        self.active_in: list[threading.Thread] = []
        self._jvm: Any = self
        self.org = self.apache = self.spark = self.sql = self.SparkSession = self

    def setActiveSession(self, session: object) -> None:
        assert session == self._jsparkSession
        self.active_in.append(threading.current_thread())

    def stop(self) -> None:
        self.stopped = True


def make(**properties: str) -> tuple[SparkConnectorRuntime, Planner, Session]:
    planner, session = Planner(), Session()
    config = parse_worker_config({**WORKER, **{name.replace("_", "."): text for name, text in properties.items()}})
    return SparkConnectorRuntime(config, planner, lambda: session), planner, session


def test_a_connector_is_started_with_secrets_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_PASSWORD", "secret")

    async def play() -> None:
        runtime, planner, session = make(
            config_providers="env",
            config_providers_env_class="org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        )
        given = {"password": "${env:THE_PASSWORD}", "user": "u"}
        started = await runtime.start(ConnectorJob("n", given, PLACES))
        assert started.tasks == (given,)  # what the topic has keeps the reference
        assert planner.plans[0].config == {"password": "secret", "user": "u"}
        assert planner.started[0].places == PLACES
        report = await runtime.report("n")
        assert report is not None
        assert (report.tasks, report.topics) == ((TaskReport(ConnectorState.RUNNING),), ("orders",))
        await runtime.stop("n")
        assert not planner.started[0].isActive
        assert await runtime.report("n") is None
        assert len(session.active_in) == 1
        await runtime.stop("n")
        await runtime.start(ConnectorJob("n", given, PLACES))
        await runtime.close()
        assert session.stopped and not planner.started[1].isActive

    asyncio.run(play())


def test_no_secret_is_in_a_status_a_log_line_or_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("THE_PASSWORD", "s3cr3t/1")

    async def play() -> None:
        runtime, planner, _ = make(
            config_providers="env",
            config_providers_env_class="org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        )
        given = {"url": "postgresql://u:${env:THE_PASSWORD}@h/d", "refuse": "1"}
        await runtime.start(ConnectorJob("n", given, PLACES))
        planner.started[0].fail("OptionError: postgresql://u:s3cr3t/1@h/d or postgresql://u:s3cr3t%2F1@h/d is wrong")
        report = await runtime.report("n")
        trace = "OptionError: postgresql://u:[hidden]@h/d or postgresql://u:[hidden]@h/d is wrong"
        assert report is not None and report.tasks == (TaskReport(ConnectorState.FAILED, trace),)
        monkeypatch.setattr(Plan, "start", lambda *_: (_ for _ in ()).throw(ValueError("u:s3cr3t/1@h")))
        with pytest.raises(ConnectorStartError, match=r"^ValueError: u:\[hidden\]@h$") as caught:
            await runtime.start(ConnectorJob("m", given, PLACES))
        assert caught.value.__suppress_context__

    asyncio.run(play())
    assert "s3cr3t" not in caplog.text


def test_the_clients_of_a_connector_have_the_settings_of_the_worker_and_its_own() -> None:
    properties = {
        "sasl.mechanism": "PLAIN",
        "consumer.auto.offset.reset": "latest",
        "consumer.isolation.level": "read_uncommitted",
        "consumer.client.id": "worker",
        "consumer.sasl.jaas.config": "of consumers",
        "producer.compression.type": "zstd",
        "producer.sasl.jaas.config": "of producers",
    }
    config = parse_worker_config({**WORKER, **properties})
    planner = WorkerPlanner(config.client)
    plans: list[PlannedQuery] = []

    class Kept(WorkerPlanner):
        def plan(self, config: ConnectorConfig) -> Any:
            plans.append(planner.plan(config).planned)
            return Plan(Planner(), {})

    runtime = SparkConnectorRuntime(config, Kept(config.client), Session)
    sink = {
        "name": "n",
        "connector.class": "FileStreamSink",
        "topics": "t",
        "file": "/x",
        "consumer.override.client.id": "own",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "bad",
    }
    source = {"name": "m", "connector.class": "FileStreamSource", "topic": "t", "file": "/x"}

    async def play() -> None:
        started = await runtime.start(ConnectorJob("n", sink, PLACES))
        assert started.tasks == (sink,)
        await runtime.start(ConnectorJob("m", source, PLACES))

    asyncio.run(play())
    shared = {"kafka.bootstrap.servers": "localhost:9092", "kafka.sasl.mechanism": "PLAIN"}
    of_producers = {**shared, "kafka.compression.type": "zstd", "kafka.sasl.jaas.config": "of producers"}
    assert plans[0].read_options == {
        **shared,
        "subscribe": "t",
        "startingOffsets": "latest",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_uncommitted",
        "kafka.client.id": "own",
        "kafka.sasl.jaas.config": "of consumers",
    }
    letters = {name: text for name, text in plans[0].write_options.items() if name.startswith("kafka.")}
    assert letters == of_producers
    assert plans[1].write_options == {**of_producers, "topic": "t"}


def test_the_first_queries_are_stopped_if_a_later_one_cannot_start() -> None:
    async def play() -> None:
        runtime, planner, _ = make()
        with pytest.raises(OSError, match="is down"):
            await runtime.start(ConnectorJob("n", {"queries": "2", "refuse": "1"}, PLACES))
        assert [query.isActive for query in planner.started] == [False]
        assert await runtime.report("n") is None

    asyncio.run(play())


def test_a_query_is_restarted_after_an_outage_and_failed_after_an_error_that_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = 0
    monkeypatch.setattr("barnabas.spark.connectors.connect.spark_runtime.time.time_ns", lambda: now_ns)

    async def play() -> None:
        nonlocal now_ns
        runtime, planner, _ = make()
        await runtime.start(ConnectorJob("n", {}, PLACES))

        async def task() -> TaskReport:
            report = await runtime.report("n")
            assert report is not None
            return report.tasks[0]

        planner.started[0].fail("psycopg.OperationalError: the connection was lost")
        assert await task() == TaskReport(ConnectorState.RESTARTING, "OperationalError: the connection was lost")
        assert len(planner.started) == 1
        now_ns += FIRST_PAUSE_MS * 1_000_000
        assert await task() == TaskReport(ConnectorState.RUNNING)
        assert len(planner.started) == 2
        planner.started[1].fail("barnabas.spark.errors.OptionError: no such option")
        assert (await task()).state is ConnectorState.FAILED
        now_ns += PAUSE_MAX_MS * 1_000_000
        assert await task() == TaskReport(ConnectorState.FAILED, "OptionError: no such option")
        assert len(planner.started) == 2

    asyncio.run(play())


def test_pauses_double_until_a_micro_batch_is_finished() -> None:
    restarts, now_ms = QueryRestarts(), 0
    pauses = []
    for _ in range(9):
        restarts.on_failed("outage", now_ms, is_final=False)
        pause = 0
        while not restarts.is_due(now_ms + pause):
            pause += FIRST_PAUSE_MS
        pauses.append(pause // FIRST_PAUSE_MS)
        now_ms += pause
        restarts.on_restarted()
        restarts.on_progress(-1)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    restarts.on_progress(7)
    restarts.on_failed("outage", now_ms, is_final=False)
    assert restarts.is_due(now_ms + FIRST_PAUSE_MS)
