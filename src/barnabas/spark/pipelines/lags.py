"""Shell: how far the flows of a pipeline are behind now, from their checkpoints and the brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.core.errors import BarnabasError
from barnabas.core.known_sums import sum_of_known
from barnabas.spark.pipelines.files import local_path
from barnabas.spark.pipelines.missing_topics import missing_text, missing_topics
from barnabas.spark.source.progress import read_lags

TIMEOUT_MS: Final = 5_000
"""How long the brokers may take to answer."""


def refresh_lags(flows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The flows of a run with their lag of this moment, and messages about the flows whose lag is that of the run, or
    that wait for topics. The lag is None, which is unknown, for a flow that has no position yet."""
    refreshed, problems = [], []
    unreachable: dict[str, str] = {}
    for flow in flows:
        found, servers = dict(flow), flow.get("servers") or ""
        if servers and servers not in unreachable:
            try:
                found |= _lag_now(flow, servers)
            except (BarnabasError, OSError, ValueError) as error:
                unreachable[servers] = str(error)
        if servers in unreachable and flow.get("lag") is not None:
            problems.append(f"the lag of {flow['flow']} is the last one that it reported: {unreachable[servers]}")
        elif servers in unreachable:
            problems.append(f"the lag of {flow['flow']} is unknown: {unreachable[servers]}")
        if found.get("waiting_for"):
            problems.append(f"{flow['flow']} {missing_text(found['waiting_for'])}")
        refreshed.append(found)
    return refreshed, problems


def _lag_now(flow: Mapping[str, Any], servers: str) -> dict[str, Any]:
    """The fields of a flow that brokers know: lag, sources, and the topics that do not exist."""
    options = {"kafka.bootstrap.servers": servers, "kafka.default.api.timeout.ms": str(TIMEOUT_MS)}
    found: dict[str, Any] = {}
    checkpoint = local_path(flow["checkpoint"]) if flow.get("checkpoint") else None
    if checkpoint is not None:  # else on another machine, or a materialized view
        lags = read_lags(options, checkpoint=checkpoint) if (checkpoint / "offsets").is_dir() else []
        found["lag"] = sum_of_known([lag.offsets_behind for lag in lags])
        if lags:
            found["sources"] = [{"description": lag.description, "metrics": lag.metrics()} for lag in lags]
    topics = [name for name in flow.get("topics") or () if not name.startswith("pattern ")]
    if topics:
        found["waiting_for"] = missing_topics([options | {"subscribe": ",".join(topics)}])
    return found
