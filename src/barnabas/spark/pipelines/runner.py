"""Shell: runs the flows of a pipeline as streaming queries and batch writes, until they have ended or are stopped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from barnabas.spark.environment import activate_session
from barnabas.spark.pipelines.errors import FlowFailedError, PipelineError, PlanChangedError
from barnabas.spark.pipelines.evaluation import Evaluator
from barnabas.spark.pipelines.failures import Cause, Failure, classify
from barnabas.spark.pipelines.graph import FlowNode, OutputKind, PipelineGraph, ResolvedFlow
from barnabas.spark.pipelines.missing_topics import TopicChecks, missing_text
from barnabas.spark.pipelines.progress import FlowProgress, ProgressMeter
from barnabas.spark.pipelines.registry import load_definitions
from barnabas.spark.pipelines.schedule import FlowSchedule, FlowState
from barnabas.spark.pipelines.state import PipelineProject
from barnabas.spark.pipelines.tables import PipelineTables, check_formats, check_writers

POLL_INTERVAL_S: Final = 0.2
SAVE_INTERVAL_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What `barnabas pipelines run` was asked for."""

    continuous: bool = False
    trigger_interval_ms: int | None = None
    full_refresh: Sequence[str] = ()
    """Flows or outputs that begin anew."""
    full_refresh_all: bool = False


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """Something that happened: a flow changed its state, or finished a micro-batch."""

    flow: str
    state: FlowState
    kind: str
    progress: FlowProgress
    message: str | None = None


class LoadedPipeline:
    """A pipeline whose definitions are loaded and checked; nothing has been written yet."""

    def __init__(self, project: PipelineProject, spark: Any) -> None:
        """Raises PipelineError."""
        self.project = project
        catalog = project.spec.catalog or spark.catalog.currentCatalog()
        self.graph = PipelineGraph(catalog, project.spec.database or spark.catalog.currentDatabase())
        load_definitions(project.spec, project.spec_path, spark, self.graph)
        check_writers(self.graph)
        check_formats(self.graph, spark)
        self.evaluator = Evaluator(spark, project.spec, project.directory.resolve(), self.graph)
        self.flows = self.evaluator.resolve()

    def describe(self) -> list[dict[str, Any]]:
        """The flows, sources first, as JSON values."""
        return [
            {
                "flow": name,
                "type": "stream" if flow.is_streaming else "batch",
                "target": flow.target.name,
                "target_type": flow.target.kind.value,
                "format": flow.target.format,
                "reads": list(flow.sources),
                "topics": self._topics(flow.flow),
                "after": sorted(flow.upstream | flow.perhaps_upstream),
                "defined_in": flow.flow.place,
            }
            for name, flow in self.flows.items()
        ]

    def _topics(self, flow: FlowNode) -> list[str]:
        """The topics that a flow reads, and the patterns, as `pattern ...`."""
        reads = self.evaluator.topics_read(flow)
        patterns = {f"pattern {read.subscription.pattern}" for read in reads if read.subscription.pattern is not None}
        return sorted({name for read in reads for name in read.names}) + sorted(patterns)


class PipelineRunner:
    """One run of a loaded pipeline. `on_event` is called for each event."""

    def __init__(
        self, pipeline: LoadedPipeline, spark: Any, options: RunOptions, on_event: Callable[[FlowEvent], None]
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._options = options
        self._on_event = on_event
        settings = pipeline.project.spec.settings
        self._interval_ms = (
            settings.trigger_interval_ms if options.trigger_interval_ms is None else options.trigger_interval_ms
        )
        self._tables = PipelineTables(spark, pipeline.graph, pipeline.project.storage)
        pipeline.evaluator.open_merged = self._tables.open_merged
        self.schedule = FlowSchedule(
            pipeline.flows.values(),
            continuous=options.continuous,
            refresh_interval_ms=settings.refresh_interval_ms,
            restarts_max=settings.restarts_max,
        )
        self.meters = {name: ProgressMeter() for name in pipeline.flows}
        self._described = {described["flow"]: described for described in pipeline.describe()}
        self.failures: dict[str, Failure] = {}
        self._queries: dict[str, Any] = {}
        self._computations: dict[str, Future[tuple[int, int]]] = {}
        self._worker = ThreadPoolExecutor(1, "barnabas-pipelines")  # one materialized view at a time
        self._missing = TopicChecks()
        self._started_ms = time.time_ns() // 1_000_000
        self._saved_ms = 0
        self._stopping = False

    def run(self) -> None:
        """Run the pipeline. Returns when all flows have ended, or after `request_stop`. Raises PlanChangedError or
        FlowFailedError if a flow has failed, and PipelineError.
        """
        try:
            self._prepare()
            while not self._stopping and not self.schedule.is_done:
                now_ms = time.time_ns() // 1_000_000
                for flow in self.schedule.due(now_ms):
                    self._start(flow)
                self._poll()
                self._poll_computations()
                self._report_missing_topics()
                self._save()
                time.sleep(POLL_INTERVAL_S)
        finally:
            self._stop_queries()
            self.schedule.stop()
            self._save(force=True, ended=True)
        self._raise_failure()

    def request_stop(self) -> None:
        """Let `run` stop the queries and return; may be called from a signal handler."""
        self._stopping = True

    # -- preparing ---------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._begin_anew()
        graph = self._pipeline.graph
        for output in graph.outputs:
            if output.kind is OutputKind.STREAMING_TABLE and not graph.is_merged(output):
                try:
                    self._tables.prepare(output, self._pipeline.evaluator.schema(output))
                except PipelineError as error:  # the flows into other tables can run
                    for flow in graph.flows_into(output):
                        self._failed(flow.name, Failure(str(error), Cause.FINAL))
        self._save(force=True)

    def _begin_anew(self) -> None:
        """Reset the flows that the user wants to begin anew. A table is emptied together with all the flows that
        write to it: else its files would say that the first micro-batches are written.
        """
        project, graph = self._pipeline.project, self._pipeline.graph
        asked = {graph.key(name) for name in [*project.resets(), *self._options.full_refresh]}
        known = {
            graph.key(name) for flow in self._pipeline.flows.values() for name in (flow.flow.name, flow.target.name)
        }
        for name in sorted(asked - known):
            raise PipelineError(f"there is no flow and no table {name} to reset{graph.suggest(name)}")
        chosen = [
            flow
            for flow in self._pipeline.flows.values()
            if self._options.full_refresh_all or {graph.key(flow.flow.name), graph.key(flow.target.name)} & asked
        ]
        tables = {flow.target.name: flow.target for flow in chosen if flow.target.kind.is_table}
        for table in tables.values():
            self._tables.drop(table)
        for flow in self._pipeline.flows.values():
            if flow in chosen or flow.target.name in tables:
                self._tables.begin_anew(flow)
        project.save_resets([])

    # -- starting ----------------------------------------------------------------------------------------------------

    def _start(self, flow: ResolvedFlow) -> None:
        name = flow.flow.name
        self._event(name, "state")
        self._missing.ask(name, self._pipeline.evaluator.topic_sources(flow.flow))
        try:
            frame = self._pipeline.evaluator.evaluate(flow)
            if flow.is_streaming:
                with self._pipeline.evaluator.configured(flow.flow.spark_conf):
                    self._queries[name] = self._start_stream(flow, frame)
            else:
                self._computations[name] = self._worker.submit(self._compute, flow, frame)
        except PipelineError as error:
            self._failed(name, Failure(str(error), Cause.FINAL))
        except Exception as error:  # noqa: BLE001  # the flow's query is the user's code, and may raise anything
            self._failed(name, classify(_text(error)))  # the other flows go on

    def _start_stream(self, flow: ResolvedFlow, frame: Any) -> Any:
        target = flow.target
        writer = (
            frame.writeStream.queryName(flow.flow.name)
            .outputMode("append")
            .option("checkpointLocation", self._tables.checkpoint(flow))
        )
        if self._options.continuous:
            writer = writer.trigger(processingTime=f"{self._interval_ms} milliseconds")
        else:
            writer = writer.trigger(availableNow=True)
        if flow.flow.changes is not None:
            schema = self._pipeline.evaluator.schema(target)
            return writer.foreachBatch(self._tables.change_writer(flow, frame, schema)).start()
        if target.format:
            writer = writer.format(target.format)
        if target.kind is OutputKind.SINK:
            return writer.options(**target.options).start()
        self._tables.check_numbers(flow)
        if target.partition_columns:
            writer = writer.partitionBy(*target.partition_columns)
        return writer.toTable(self._tables.identifier(target))

    def _compute(self, flow: ResolvedFlow, frame: Any) -> tuple[int, int]:
        """Compute a materialized view, in the worker thread. Returns its number of rows, and milliseconds."""
        began = time.monotonic()
        activate_session(self._spark)
        with self._pipeline.evaluator.configured(flow.flow.spark_conf):
            rows = self._tables.replace(flow.target, frame)
        return rows, int((time.monotonic() - began) * 1_000)

    # -- watching ----------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        for name, query in list(self._queries.items()):
            is_active = query.isActive
            self._read_progress(name, query)
            if is_active:
                continue
            del self._queries[name]
            error = query.exception()
            if error is not None:
                self._failed(name, classify(_text(error)))
            elif not self._stopping:
                self.schedule.on_completed(name, time.time_ns() // 1_000_000)
                self._event(name, "state")

    def _poll_computations(self) -> None:
        for name, future in list(self._computations.items()):
            if not future.done():
                continue
            del self._computations[name]
            error = future.exception()
            if error is not None:
                self._failed(name, classify(_text(error)))
                continue
            self.meters[name].add_computation(*future.result(), _now_text())
            self.failures.pop(name, None)
            self.schedule.on_completed(name, time.time_ns() // 1_000_000)
            self._event(name, "progress")
            self._event(name, "state")

    def _read_progress(self, name: str, query: Any) -> None:
        """Reading one report is cheap; all recent ones are read if some were missed."""
        meter = self.meters[name]
        before = meter.progress
        last = _report(query.lastProgress)
        if not last or str(last["timestamp"]) <= (before.timestamp or ""):
            return
        is_next = before.batch_id is not None and int(last["batchId"]) <= before.batch_id + 1
        for report in [last] if is_next else map(_report, query.recentProgress):
            if str(report["timestamp"]) <= (before.timestamp or ""):
                continue
            if meter.add(report):
                self.schedule.on_progress(name)
                self.failures.pop(name, None)
                self._event(name, "progress")

    def _failed(self, name: str, failure: Failure) -> None:
        self.failures[name] = failure
        now_ms = time.time_ns() // 1_000_000
        message = failure.summary
        if self.schedule.on_failed(name, now_ms, failure.cause) is FlowState.RETRYING:
            restarts = self.schedule.restarts(name)
            pause_s = ((restarts.retry_at_ms or now_ms) - now_ms) / 1_000
            message += f" (restart {restarts.failures} of {restarts.restarts_max} in {pause_s:.0f} s)"
        self._event(name, "state", message)

    def _report_missing_topics(self) -> None:
        for name, topics in self._missing.answers():
            self._event(name, "state", missing_text(topics))

    def _event(self, name: str, kind: str, message: str | None = None) -> None:
        self._on_event(FlowEvent(name, self.schedule.state(name), kind, self.meters[name].progress, message))

    # -- ending ------------------------------------------------------------------------------------------------------

    def _stop_queries(self) -> None:
        """Stop all queries. The next run repeats a micro-batch, or the computation of a view, that is interrupted."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        self._missing.close()
        if self._computations:
            self._spark.sparkContext.cancelAllJobs()
        for name, query in self._queries.items():
            self._read_progress(name, query)
        if self._queries:
            # In threads, because a query that has transactions to abort takes seconds to stop.
            with ThreadPoolExecutor(len(self._queries)) as threads:
                errors = list(threads.map(_stop, self._queries.values()))
            for name, error in zip(self._queries, errors, strict=True):
                if error is not None:
                    self._event(name, "state", f"the query did not stop in order: {classify(_text(error)).summary}")
        self._queries.clear()

    def _raise_failure(self) -> None:
        states = self.schedule.states()
        failed = {name: f for name, f in self.failures.items() if states[name] is FlowState.FAILED}
        pipeline = self._pipeline.project
        for name, failure in failed.items():
            if failure.plan_change is not None:
                raise PlanChangedError(
                    f"the flow {name} cannot continue from its checkpoint: {failure.plan_change} ({failure.summary}). "
                    f"Undo the change, or begin anew with: barnabas pipelines reset {pipeline.spec.name} {name}"
                    + (f". Failed, too: {', '.join(n for n in failed if n != name)}" if len(failed) > 1 else "")
                )
        if failed:
            (name, failure), *others = failed.items()
            summary = f"the flow {name} failed: {failure.summary}"
            if others:
                reasons = "; ".join(f"{name}: {failure.summary}" for name, failure in failed.items())
                summary = f"{len(failed)} of {len(states)} flows failed: {reasons}"
            raise FlowFailedError(f"{summary} (Spark's log: {pipeline.log_file})")

    def rows(self) -> list[dict[str, Any]]:
        """The flows with their states and progress, as JSON values."""
        states = self.schedule.states()
        return [
            described
            | {"state": states[name].value}
            | asdict(self.schedule.restarts(name))
            | asdict(self.meters[name].progress)
            | {"error": self.failures[name].summary if name in self.failures else None}
            for name, described in self._described.items()
        ]

    def _place_of(self, flow: ResolvedFlow) -> dict[str, Any]:
        """Where the position of a flow is, so that its lag can be read while it does not run."""
        meter = self.meters[flow.flow.name]
        return {
            "waiting_for": self._missing.of(flow.flow.name, meter.topics),
            "sources": meter.sources,
            "checkpoint": self._tables.checkpoint(flow) if flow.is_streaming else None,
            "servers": self._pipeline.evaluator.servers(flow.flow),
        }

    def _save(self, *, force: bool = False, ended: bool = False) -> None:
        now_ms = time.time_ns() // 1_000_000
        if not force and now_ms - self._saved_ms < SAVE_INTERVAL_MS:
            return
        self._saved_ms = now_ms
        flows = [row | self._place_of(self._pipeline.flows[row["flow"]]) for row in self.rows()]
        self._pipeline.project.save_run(
            {
                "pipeline": self._pipeline.project.spec.name,
                "spec": str(self._pipeline.project.spec_path.resolve()),
                "pid": os.getpid(),
                "mode": "continuous" if self._options.continuous else "once",
                "started_ms": self._started_ms,
                "updated_ms": now_ms,
                "ended_ms": now_ms if ended else None,
                "flows": flows,
            }
        )


def _report(progress: Any) -> dict[str, Any]:
    """A progress report as JSON values; empty if there is none yet."""
    if progress is None:
        return {}
    return progress if isinstance(progress, dict) else dict(json.loads(progress.json))


def _stop(query: Any) -> Exception | None:
    """Stop a query. Returns an error if the JVM has ended, or the query does not stop within
    spark.sql.streaming.stopTimeout. The session is stopped next, which ends the query in any case.
    """
    try:
        query.stop()
    except (PySparkException, Py4JError, OSError) as error:
        return error
    return None


def _text(error: BaseException) -> str:
    """The exception's text, with its kind before it if the text is not Spark's."""
    text = str(error)
    return text if text.startswith("[") else f"{type(error).__name__}: {text}"


def _now_text() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
