"""Shell: the pipelines that ran on this machine, each with its state and its last run."""

from __future__ import annotations

from typing import Any

from barnabas.spark.pipelines.state import known_projects


def known_pipelines() -> list[dict[str, Any]]:
    """`pipeline`, `status`, `directory` and `run` (as in run.json, or empty) of each pipeline, by name."""
    rows = []
    for project in known_projects():
        run = project.run()
        has_failed = any(flow["state"] == "failed" for flow in run.get("flows", ()))
        status = "running" if project.is_running else "failed" if has_failed else "stopped"
        directory = str(project.directory.resolve())
        rows.append({"pipeline": project.spec.name, "status": status, "directory": directory, "run": run})
    return rows
