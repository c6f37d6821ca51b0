"""Shell: the `ConnectorRuntime` on Spark: one session for each worker, and streaming queries for each connector.

A planner turns a configuration into a plan, which starts the queries. A query that ends with an error of which another
attempt may be better (a broker or a database that was restarted) is started again after a pause, which doubles with
each failure. After any other error the task is FAILED.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from barnabas.core.config_providers import ConfigProviders
from barnabas.core.telemetry import get_logger
from barnabas.spark.connectors.connect.cluster.ports import (
    ConfigDefinition,
    ConfigFinding,
    ConnectorJob,
    ConnectorPlaces,
    ConnectorReport,
    ConnectPlugin,
    StartedConnector,
    TaskReport,
)
from barnabas.spark.connectors.connect.cluster.values import ConnectorConfig, ConnectorKind, ConnectorState
from barnabas.spark.connectors.connect.restarts import QueryRestarts
from barnabas.spark.connectors.connect.secrets import Secrets, secrets_of
from barnabas.spark.connectors.connect.worker_config import ConnectWorkerConfig
from barnabas.spark.environment import activate_session, prepare_environment, session_defaults
from barnabas.spark.pipelines.failures import classify

log = get_logger("barnabas.connect")


class QueryPlan(Protocol):
    """How a connector runs on Spark. Each query is one of Connect's tasks."""

    @property
    def version(self) -> str:
        """The version of the plugin."""
        ...

    @property
    def topics(self) -> Sequence[str]:
        """The topics that the connector reads or writes, as far as the configuration names them."""
        ...

    @property
    def queries(self) -> int:
        """The number of queries."""
        ...

    def start(self, number: int, spark: Any, places: ConnectorPlaces) -> Any:
        """Start one query, and return Spark's `StreamingQuery`. Its checkpoint is `places.checkpoint`, or a directory
        inside if the plan has several queries.
        """
        ...


class ConnectorPlanner(Protocol):
    """Configurations of connectors, and the plans that are made of them."""

    def plugins(self) -> Sequence[ConnectPlugin]: ...

    def kind(self, config: ConnectorConfig) -> ConnectorKind: ...

    def definitions(self, plugin: str) -> Sequence[ConfigDefinition]:
        """Raises LookupError for an unknown plugin."""
        ...

    def findings(self, config: ConnectorConfig) -> Sequence[ConfigFinding]:
        """Raises LookupError for an unknown plugin."""
        ...

    def plan(self, config: ConnectorConfig) -> QueryPlan:
        """The plan of a configuration without references. Raises BarnabasError."""
        ...


class _Running:
    """The queries of one connector. All methods run in threads, one at a time."""

    def __init__(self, job: ConnectorJob, plan: QueryPlan, spark: Any, secrets: Secrets) -> None:
        self.job = job
        self.plan = plan
        self.queries: list[Any] = []
        self.restarts = [QueryRestarts() for _ in range(plan.queries)]
        self._spark = spark
        self._secrets = secrets

    def start(self) -> None:
        """Start all queries. If one cannot be started, the others are stopped, and the exception is raised."""
        try:
            for number in range(self.plan.queries):
                self.queries.append(self._start_query(number))
        except BaseException:
            self.stop()
            raise

    def _start_query(self, number: int) -> Any:
        activate_session(self._spark)  # each call comes in a thread of its own
        return self.plan.start(number, self._spark, self.job.places)

    def stop(self) -> None:
        if self.queries:
            # In threads, because a query that has transactions to abort takes seconds to stop.
            with ThreadPoolExecutor(len(self.queries)) as threads:
                list(threads.map(lambda query: query.stop(), self.queries))
        self.queries.clear()

    def report(self, now_ms: int) -> ConnectorReport:
        """The states of the queries. Starts a query again whose pause is over."""
        return ConnectorReport(
            tuple(self._report_query(number, now_ms) for number in range(len(self.queries))), tuple(self.plan.topics)
        )

    def _report_query(self, number: int, now_ms: int) -> TaskReport:
        query, restarts = self.queries[number], self.restarts[number]
        if query.isActive:
            restarts.on_progress(_batch_of(query))
            return TaskReport(ConnectorState.RUNNING)
        if restarts.failure is None:
            error = query.exception()
            text = "the query has ended" if error is None else str(error)
            failure = classify(self._secrets.hide(text))
            restarts.on_failed(failure.summary, now_ms, is_final=failure.is_final or error is None)
            log.warning("a query has failed", connector=self.job.name, reason=failure.summary)
        if restarts.is_due(now_ms):
            self._restart(number, now_ms)
        if restarts.failure is None:
            return TaskReport(ConnectorState.RUNNING)
        return TaskReport(ConnectorState.FAILED if restarts.is_final else ConnectorState.RESTARTING, restarts.failure)

    def _restart(self, number: int, now_ms: int) -> None:
        restarts = self.restarts[number]
        try:
            self.queries[number] = self._start_query(number)
        except Exception as error:  # noqa: BLE001  # a plan starts the code of any connector and driver
            failure = classify(self._secrets.hide(f"{type(error).__name__}: {error}"))
            restarts.on_failed(failure.summary, now_ms, is_final=failure.is_final)
            return
        restarts.on_restarted()


class SparkConnectorRuntime:
    """Runs connectors on one Spark session, which starts with the first connector."""

    def __init__(
        self,
        config: ConnectWorkerConfig,
        planner: ConnectorPlanner,
        open_session: Callable[[], Any] | None = None,
        *,
        guards_files: bool = False,
    ) -> None:
        """`open_session` returns a Spark session; by default one with the worker's `spark.*` settings. With
        `guards_files`, SQL cannot read files by their paths."""
        self._planner = planner
        self._providers = ConfigProviders(config.properties)
        self._client_overrides = config.client_overrides
        self._open_session = open_session or (lambda: open_session_of(config, guards_files=guards_files))
        self._session: Any = None
        self._opening = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._locks: dict[str, threading.Lock] = {}

    def plugins(self) -> Sequence[ConnectPlugin]:
        return self._planner.plugins()

    def kind(self, config: ConnectorConfig) -> ConnectorKind:
        return self._planner.kind(config)

    def definitions(self, plugin: str) -> Sequence[ConfigDefinition]:
        return self._planner.definitions(plugin)

    async def validate(self, config: ConnectorConfig) -> Sequence[ConfigFinding]:
        return await asyncio.to_thread(self._planner.findings, config)

    async def start(self, job: ConnectorJob) -> StartedConnector:
        return await asyncio.to_thread(self._start, job)

    async def stop(self, name: str) -> None:
        await asyncio.to_thread(self._stop, name)

    async def report(self, name: str) -> ConnectorReport | None:
        return await asyncio.to_thread(self._report, name)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    # -- in a thread

    def _start(self, job: ConnectorJob) -> StartedConnector:
        given = {**self._client_overrides, **job.config}
        resolved = self._providers.resolve(given)
        secrets = secrets_of(given, self._providers.resolve)
        try:
            plan = self._planner.plan(resolved)
            with self._lock(job.name):
                running = _Running(job, plan, self._spark(), secrets)
                running.start()
                self._running[job.name] = running
        except Exception as error:  # connectors and drivers raise any; it is raised again without secrets
            shown = secrets.hidden_error(error)
            if shown is error:
                raise
            raise shown from None
        return StartedConnector(tuple(dict(job.config) for _ in range(plan.queries)), plan.version)

    def _stop(self, name: str) -> None:
        with self._lock(name):
            running = self._running.pop(name, None)
            if running is not None:
                running.stop()

    def _report(self, name: str) -> ConnectorReport | None:
        with self._lock(name):
            running = self._running.get(name)
            return None if running is None else running.report(time.time_ns() // 1_000_000)

    def _close(self) -> None:
        for name in list(self._running):
            self._stop(name)
        session, self._session = self._session, None
        if session is not None:
            session.stop()

    def _spark(self) -> Any:
        with self._opening:
            if self._session is None:
                self._session = self._open_session()
            return self._session

    def _lock(self, name: str) -> threading.Lock:
        return self._locks.setdefault(name, threading.Lock())


def open_session_of(config: ConnectWorkerConfig, *, guards_files: bool = False) -> Any:
    """A Spark session with the `spark.*` settings of the worker. Raises JavaNotFoundError."""
    prepare_environment()
    from pyspark.sql import SparkSession

    given = {name: text for name, text in config.properties.items() if name.startswith("spark.")}
    master = given.get("spark.master", "local[*]")
    builder = SparkSession.builder.appName(f"connect {config.group_id}").config("spark.sql.session.timeZone", "UTC")
    guards = {"spark.sql.runSQLOnFiles": "false"} if guards_files else {}
    for name, text in {**session_defaults(master), **guards, **given}.items():
        builder = builder.config(name, text)
    session = builder.master(master).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")  # failures of queries are in the worker's log and in the statuses
    return session


def _batch_of(query: Any) -> int:
    """The number of the last micro-batch that the query has finished; -1 before the first one."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])
