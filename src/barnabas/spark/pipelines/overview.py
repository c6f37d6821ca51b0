"""Shell: the pipelines that ran on this machine, each with its state and its last run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.spark.pipelines.progress import total_lag
from barnabas.spark.pipelines.state import known_projects


def known_pipelines() -> list[dict[str, Any]]:
    """`pipeline`, `status`, `directory`, `lag` and `run` (as in run.json, or empty) of each pipeline, by name."""
    rows = []
    for project in known_projects():
        run = project.run()
        rows.append(
            {
                "pipeline": project.spec.name,
                "status": status_of(run, is_running=project.is_running),
                "directory": str(project.directory.resolve()),
                "lag": total_lag(run.get("flows", ())),
                "run": run,
            }
        )
    return rows


def status_of(run: Mapping[str, Any], *, is_running: bool) -> str:
    """The state of a pipeline whose last run is `run`: running, failed or stopped."""
    return "running" if is_running else "failed" if failed_flows(run) else "stopped"


def failed_flows(run: Mapping[str, Any]) -> list[str]:
    """The flows of a run that have failed for good."""
    return [flow["flow"] for flow in run.get("flows", ()) if flow["state"] == "failed"]
