"""Shell: pipelines with their flows, from the files of their runs on this machine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from barnabas.console.errors import NotFoundError
from barnabas.console.sources import Call


async def pipeline_list(call: Call) -> dict[str, Any]:
    """All pipelines that ran on this machine: state, rate and lag."""
    return {"rows": [_row(found) for found in await _read(call)]}


async def pipeline(call: Call) -> dict[str, Any]:
    """One pipeline with its flows. Several projects may have the same name; all of them are shown."""
    name = call.path["pipeline"]
    projects = [found for found in await _read(call) if found["pipeline"] == name]
    if not projects:
        raise NotFoundError(f"No pipeline {name!r} ran on this machine.")
    return {
        "pipeline": name,
        "projects": [{**_row(found), "flows": [_flow(flow) for flow in _flows(found)]} for found in projects],
    }


async def _read(call: Call) -> list[Mapping[str, Any]]:
    reader = call.sources.settings.pipelines
    if reader is None:
        raise NotFoundError("This console shows no pipelines: start it with --pipelines.")
    return list(await asyncio.to_thread(reader))


def _flows(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(found["run"].get("flows", ()))


def _row(found: Mapping[str, Any]) -> dict[str, Any]:
    run, flows = found["run"], _flows(found)
    rates = [flow["rows_per_second"] for flow in flows if flow.get("rows_per_second") is not None]
    return {
        "pipeline": found["pipeline"],
        "status": found["status"],
        "directory": found["directory"],
        "mode": run.get("mode"),
        "started_ms": run.get("started_ms"),
        "updated_ms": run.get("updated_ms"),
        "flow_states": dict(sorted(Counter(str(flow["state"]) for flow in flows).items())),
        "rows_per_second": sum(rates) if rates and found["status"] == "running" else None,
        "lag": found.get("lag"),
    }


def _flow(flow: Mapping[str, Any]) -> dict[str, Any]:
    names = ("flow", "type", "state", "target", "rows", "rows_per_second", "lag", "batch_id", "batch_ms", "watermark")
    shown = {name: flow.get(name) for name in (*names, "state_rows", "state_bytes", "error")}
    return {**shown, "reads": list(flow.get("reads") or ())}
