"""Shell: how far the flows of a pipeline are behind now, from their checkpoints and the brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.core.errors import BarnabasError
from barnabas.spark.pipelines.files import local_path
from barnabas.spark.source.lag import SourceLag
from barnabas.spark.source.progress import read_lags

TIMEOUT_MS: Final = 5_000
"""How long the brokers may take to answer."""


def refresh_lags(flows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The flows of a run with their lag of this moment, and messages about the flows whose lag is that of the run."""
    refreshed, problems = [], []
    unreachable: dict[str, str] = {}
    for flow in flows:
        servers = flow.get("servers") or ""
        lags: list[SourceLag] = []
        if servers and servers not in unreachable:
            try:
                lags = _lags(flow, servers)
            except (BarnabasError, OSError, ValueError) as error:
                unreachable[servers] = str(error)
        if servers in unreachable:
            problems.append(f"the lag of {flow['flow']} is the last one that it reported: {unreachable[servers]}")
        refreshed.append({**flow, **_current(lags)} if lags else dict(flow))
    return refreshed, problems


def _lags(flow: Mapping[str, Any], servers: str) -> list[SourceLag]:
    checkpoint = local_path(flow.get("checkpoint") or "")
    if checkpoint is None or not (checkpoint / "offsets").is_dir():
        return []  # on another machine, or the flow has not begun
    options = {"kafka.bootstrap.servers": servers, "kafka.default.api.timeout.ms": str(TIMEOUT_MS)}
    return read_lags(options, checkpoint=checkpoint)


def _current(lags: Sequence[SourceLag]) -> dict[str, Any]:
    return {
        "lag": sum(lag.offsets_behind for lag in lags),
        "sources": [{"description": lag.description, "metrics": lag.metrics()} for lag in lags],
    }
