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
from barnabas.spark.connectors.connect.restarts import FIRST_PAUSE_MS, PAUSE_MAX_MS, QueryRestarts
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
