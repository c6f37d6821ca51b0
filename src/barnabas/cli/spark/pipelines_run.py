"""Shell: `barnabas pipelines run` and `dry-run`."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.options import Json
from barnabas.cli.output import EXIT_INTERRUPTED, EXIT_USAGE, emit, fail, note, print_json, print_table
from barnabas.cli.spark.pipelines_show import LiveFlows, print_flows
from barnabas.core.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.spark.pipelines.runner import FlowEvent, LoadedPipeline, PipelineRunner, RunOptions

Target = Annotated[
    str | None,
    typer.Argument(
        help="The directory or the spec file of a pipeline, or the name of one that ran on this machine. "
        "Default: spark-pipeline.yml here or above.",
        metavar="[PIPELINE]",
    ),
]
SpecFile = Annotated[
    str | None, typer.Option("--spec", metavar="FILE", help="The spec file, as for Spark's spark-pipelines.")
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark's master; default: spark.master of the spec, or local[*]."),
]


def pipelines_run(
    pipeline: Target = None,
    spec: SpecFile = None,
    once: Annotated[bool, typer.Option("--once", help="Read what the sources have now, and end. The default.")] = False,
    continuous: Annotated[bool, typer.Option("--continuous", help="Run until Ctrl-C or `stop`.")] = False,
    trigger: Annotated[
        str | None,
        typer.Option("--trigger", metavar="DURATION", help="From one micro-batch to the next, e.g. '500 ms'."),
    ] = None,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", metavar="NAME,...", help="Flows or tables that begin anew; tables are emptied."),
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="All flows begin anew; all tables are emptied.")
    ] = False,
    master: Master = None,
    json: Json = False,
) -> None:
    """Run a pipeline: once, or continuously. A run continues where the one before stopped or was killed.

    With `--json`, each event is one line of JSON on stdout. Ctrl-C stops the pipeline in order.

    Example: `barnabas pipelines run shop --continuous`
    """
    if once and continuous:
        fail("give --once or --continuous, not both", EXIT_USAGE)
    from barnabas.spark.pipelines.runner import RunOptions
    from barnabas.spark.pipelines.spec import parse_duration_ms

    options = RunOptions(
        continuous=continuous,
        trigger_interval_ms=None if trigger is None else parse_duration_ms(trigger),
        full_refresh=[name.strip() for names in full_refresh or [] for name in names.split(",") if name.strip()],
        full_refresh_all=full_refresh_all,
    )
    with _exit_codes():
        _run(spec or pipeline, options, master, json)


def pipelines_dry_run(
    pipeline: Target = None, spec: SpecFile = None, master: Master = None, json: Json = False
) -> None:
    """Check a pipeline without writing anything: the names, the columns, what is a stream and what is not.

    Example: `barnabas pipelines dry-run shop`
    """
    with _exit_codes(), _loaded(spec or pipeline, master) as (loaded, _):
        flows = loaded.describe()
        if json:
            print_json({"pipeline": loaded.project.spec.name, "flows": flows})
            return
        print_table(
            ["FLOW", "TYPE", "AFTER", "READS", "WRITES", "", "DEFINED IN"],
            [
                (
                    f["flow"],
                    f["type"],
                    f["after"] or None,
                    f["reads"] + f["topics"] or None,
                    f["target"],
                    f["target_type"],
                    f["defined_in"],
                )
                for f in flows
            ],
        )
        note(f"{loaded.project.spec.name} can run: {len(flows)} flow(s). Nothing was written.")


@contextmanager
def _loaded(pipeline: str | None, master: str | None) -> Iterator[tuple[LoadedPipeline, Any]]:
    """Load and check a pipeline on a session of its own."""
    from barnabas.spark.pipelines.state import find_project

    project = find_project(pipeline)
    from barnabas.spark.pipelines.runner import LoadedPipeline
    from barnabas.spark.pipelines.session import pipeline_session

    with pipeline_session(project.spec, project.directory, master, project.log_file) as spark:
        yield LoadedPipeline(project, spark), spark


def _run(pipeline: str | None, options: RunOptions, master: str | None, as_json: bool) -> None:
    from barnabas.spark.pipelines.state import find_project

    project = find_project(pipeline)
    with project.locked():
        if not as_json:
            note(f"starting Spark for {project.spec.name} (its log: {project.log_file})")
        with _loaded(str(project.spec_path), master) as (loaded, spark):
            from barnabas.spark.pipelines.runner import PipelineRunner

            live: AbstractContextManager[Any] = LiveFlows() if sys.stderr.isatty() and not as_json else nullcontext()
            with live as table:
                reporter = _Reporter(table, as_json)
                runner = PipelineRunner(loaded, spark, options, reporter.on_event)
                reporter.runner = runner
                stopped_by = _stop_on_signals(runner)
                try:
                    runner.run()
                finally:
                    flows = project.run()["flows"]
                    if as_json:
                        reporter.end(project.spec.name, flows)
            if not as_json:
                print_flows(flows)
    if stopped_by and not as_json:
        note("stopped; the next run continues from here")
    if signal.SIGINT in stopped_by:
        raise typer.Exit(EXIT_INTERRUPTED)


class _Reporter:
    """Reports events: JSON lines, a live table with notes above it, or notes."""

    def __init__(self, table: LiveFlows | None, as_json: bool) -> None:
        self._table = table
        self._as_json = as_json
        self.runner: PipelineRunner | None = None

    def on_event(self, event: FlowEvent) -> None:
        if self._as_json:
            emit(json.dumps(_event_json(event), default=str))
            sys.stdout.flush()
            return
        text = f"{time.strftime('%H:%M:%S')} {event.flow}: {event.state.value}"
        if event.message:
            text += f": {event.message}"
        if self._table is None:
            if event.kind == "state":
                note(text)
            return
        if event.message:
            self._table.note(text)
        assert self.runner is not None
        self._table.show(self.runner.rows())

    def end(self, pipeline: str, flows: list[dict[str, Any]]) -> None:
        states = {flow["flow"]: flow["state"] for flow in flows}
        emit(json.dumps({"event": "end", "pipeline": pipeline, "states": states}))


def _event_json(event: FlowEvent) -> dict[str, Any]:
    shown: dict[str, Any] = {"event": event.kind, "flow": event.flow, "state": event.state.value}
    if event.kind == "progress":
        shown |= asdict(event.progress)
    if event.message:
        shown["message"] = event.message
    return shown


def _stop_on_signals(runner: PipelineRunner) -> list[signal.Signals]:
    """Let SIGINT and SIGTERM stop the pipeline in order, and a second one end the process. Returns a list that gets the
    first signal.
    """
    received: list[signal.Signals] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(signal.Signals(number))
        note("stopping; press Ctrl-C again to end at once ...")
        runner.request_stop()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, on_signal)
    return received


@contextmanager
def _exit_codes() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except BarnabasError as error:
        fail(str(error))
    except ImportError as error:
        fail(f"{error}. Pipelines need Spark: pip install 'barnabas[spark]'")
