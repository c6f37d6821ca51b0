"""Shell: `barnabas pipelines`: runs, lists, stops, resets and repairs pipelines on Spark, and writes a first one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from barnabas.cli.options import Json, Yes, noun
from barnabas.cli.output import confirm, fail, note, print_json, print_table
from barnabas.cli.session import LOCAL_BOOTSTRAP
from barnabas.cli.spark.pipelines_repair import pipelines_repair
from barnabas.cli.spark.pipelines_run import pipelines_dry_run, pipelines_run
from barnabas.cli.spark.pipelines_show import print_flows, print_sources, seconds_ago
from barnabas.core.errors import BarnabasError

app = noun("Pipelines: files of Spark Declarative Pipelines, run on Spark once or for ever.")

app.command("run")(pipelines_run)
app.command("dry-run")(pipelines_dry_run)
app.command("repair")(pipelines_repair)

Pipeline = Annotated[
    str | None,
    typer.Argument(
        help="The directory or the spec file of a pipeline, or the name of one that ran on this machine. "
        "Default: spark-pipeline.yml here or above.",
        metavar="[PIPELINE]",
    ),
]

_STOP_SIGNS_OF_LIFE_S: Final = 60.0
"""How long `stop` waits without seeing that the process is still writing its progress."""
_POLL_INTERVAL_S: Final = 0.1


@app.command()
def describe(pipeline: Pipeline = None, json: Json = False) -> None:
    """Show the flows of a pipeline: what they read and write, their progress in the run under way or the last one, and
    how far they are behind the topics now.

    Example: `barnabas pipelines describe shop`
    """
    project = _find(pipeline)
    run = project.run()
    problems: list[str] = []
    if run:
        from barnabas.spark.pipelines.lags import refresh_lags

        run["flows"], problems = refresh_lags(run["flows"])
    from barnabas.spark.pipelines.overview import failed_flows, status_of

    status = status_of(run, is_running=project.is_running) if run or project.is_running else "never run"
    if json:
        print_json(
            {
                "pipeline": project.spec.name,
                "spec": str(project.spec_path.resolve()),
                "storage": project.spec.storage,
                "status": status,
                "resets": project.resets(),
                "run": run or None,
            }
        )
        return
    started = f", started {seconds_ago(run['started_ms'])}" if run else ""
    mode = f" ({run['mode']}, process {run['pid']}{started})" if run else ""
    note(f"{project.spec.name}: {status}{mode}, spec {project.spec_path}, storage {project.spec.storage}")
    if failed := failed_flows(run):
        note(f"{len(failed)} of {len(run['flows'])} flows failed: {', '.join(failed)}")
    for flow in project.resets():
        note(f"{flow} begins anew at the next start")
    if run:
        print_flows(run["flows"], whole=True)
        print_sources(run["flows"])
        for problem in problems:
            note(problem)
    else:
        note("its flows are known after the first run, or with: barnabas pipelines dry-run")


@app.command("list")
def list_pipelines(json: Json = False) -> None:
    """List the pipelines that ran on this machine, and whether they are running.

    Example: `barnabas pipelines list`
    """
    from barnabas.spark.pipelines.overview import failed_flows, known_pipelines

    rows: list[dict[str, Any]] = []
    for known in known_pipelines():
        run, is_running = known["run"], known["status"] == "running"
        flows = run.get("flows", [])
        rows.append(
            {
                "pipeline": known["pipeline"],
                "status": known["status"],
                "mode": run.get("mode"),
                "pid": run.get("pid") if is_running else None,
                "flows": len(flows),
                "failed": len(failed_flows(run)),
                "rows_per_second": sum(flow["rows_per_second"] or 0 for flow in flows) if is_running else None,
                "lag": known["lag"],
                "directory": known["directory"],
            }
        )
    if json:
        print_json(rows)
        return
    print_table(
        ["PIPELINE", "STATUS", "MODE", "PID>", "FLOWS>", "FAILED>", "ROWS/S>", "LAG>", "DIRECTORY"],
        [
            (
                row["pipeline"],
                row["status"],
                row["mode"],
                None if row["pid"] is None else str(row["pid"]),
                row["flows"],
                row["failed"],
                None if row["rows_per_second"] is None else round(row["rows_per_second"]),
                row["lag"],
                row["directory"],
            )
            for row in rows
        ],
        title=None,
    )


@app.command()
def stop(pipeline: Pipeline = None) -> None:
    """Stop a running pipeline, and wait until it has stopped. The next run continues where it stopped.

    Example: `barnabas pipelines stop shop`
    """
    project = _find(pipeline)
    run = project.run()
    if not project.is_running:
        note(f"{project.spec.name} is not running")
        return
    os.kill(int(run["pid"]), signal.SIGTERM)
    last, deadline = run.get("updated_ms"), time.monotonic() + _STOP_SIGNS_OF_LIFE_S
    while project.is_running:
        if (updated := project.run().get("updated_ms")) != last:
            last, deadline = updated, time.monotonic() + _STOP_SIGNS_OF_LIFE_S
        if time.monotonic() > deadline:
            fail(f"process {run['pid']} does not stop; kill -9 is safe: the next run continues from the checkpoints")
        time.sleep(_POLL_INTERVAL_S)
    note(f"stopped {project.spec.name}")


@app.command()
def reset(
    pipeline: Annotated[
        str, typer.Argument(help="The pipeline: its name, directory or spec file.", metavar="PIPELINE")
    ],
    flows: Annotated[list[str], typer.Argument(help="Flows, or tables: then all flows into them.", metavar="FLOW...")],
    yes: Yes = False,
) -> None:
    """Let flows begin anew at the next run. Tables that they write are emptied then; records in topics stay.

    Example: `barnabas pipelines reset shop find_large_orders --yes`
    """
    project = _find(pipeline)
    if project.is_running:
        fail(f"{project.spec.name} is running; stop it first: barnabas pipelines stop {project.spec.name}")
    known = project.run().get("flows", [])
    names = {name for flow in known for name in (flow["flow"], flow["target"])}
    for flow in flows:
        if known and flow not in names:
            fail(f"{project.spec.name} has no flow and no table {flow}; there are {', '.join(sorted(names))}")
    tables = sorted(
        {f["target"] for f in known if "sink" not in f["target_type"] and {f["flow"], f["target"]} & {*flows}}
    )
    topics = sorted({f["target"] for f in known if f["target_type"] == "sink" and {f["flow"], f["target"]} & {*flows}})
    consequences = [
        *(f"the table {table} is emptied" for table in tables),
        *(f"the sink {topic} gets rows again that it has already" for topic in topics),
    ]
    what = " and ".join(consequences) or "all is read again"
    confirm(yes, f"reset {', '.join(flows)} of {project.spec.name}? At the next run {what}.")
    project.save_resets([*project.resets(), *flows])
    note(f"{', '.join(flows)} will begin anew at the next run")


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="The name of the project and of its new directory.")],
    bootstrap_server: Annotated[
        str,
        typer.Option("--bootstrap-server", "-b", envvar="BARNABAS_BOOTSTRAP", help="The brokers that the files name."),
    ] = LOCAL_BOOTSTRAP,
) -> None:
    """Write a small pipeline that runs: a topic to a table, a view in SQL, and a second topic.

    Example: `barnabas pipelines init shop`
    """
    from barnabas.spark.pipelines.errors import PipelineError
    from barnabas.spark.pipelines.template import write_project

    directory = Path(name)
    try:
        files = write_project(directory, directory.name, bootstrap_server)
    except PipelineError as error:
        fail(str(error))
    for file in files:
        typer.echo(file)
    note(f"read {directory / 'README.md'} for the next steps, or run: barnabas pipelines dry-run {name}")


def _find(pipeline: str | None) -> Any:
    from barnabas.spark.pipelines.state import find_project

    try:
        return find_project(pipeline)
    except BarnabasError as error:
        fail(str(error))
