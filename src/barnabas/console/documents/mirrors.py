"""Shell: the pairs of clusters that MirrorMaker 2's file names, and how far their copies are behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.console.documents.lists import page_of
from barnabas.console.sources import Call
from barnabas.core.known_sums import sum_of_known


async def mirrors(call: Call) -> dict[str, Any]:
    """Each pair with its lag, and the lag of each partition that is copied."""
    found = await call.sources.mirrors()
    pairs = [
        {
            "pair": pair["pair"],
            "problem": pair["problem"],
            "losses": list(pair["losses"]),
            "partitions": len(pair["lags"]),
            "lag": None if pair["problem"] else sum_of_known(lag["lag"] for lag in pair["lags"]),
            "seconds": None if pair["problem"] else _longest([lag["lagSeconds"] for lag in pair["lags"]]),
        }
        for pair in found
    ]
    rows = [
        {
            "name": f"{pair['pair']} {lag['topic']}-{lag['partition']}",
            "pair": pair["pair"],
            "topic": lag["topic"],
            "partition": lag["partition"],
            "position": lag["position"],
            "source_end": lag["sourceEnd"],
            "lag": lag["lag"],
            "seconds": lag["lagSeconds"],
        }
        for pair in found
        for lag in pair["lags"]
    ]
    sorts = {
        "name": lambda row: (row["pair"], row["topic"], row["partition"]),
        "lag": lambda row: -1 if row["lag"] is None else row["lag"],
        "seconds": lambda row: -1 if row["seconds"] is None else row["seconds"],
    }
    return {**page_of(rows, call.query, name="name", sorts=sorts), "pairs": pairs}


def _longest(seconds: Sequence[float | None]) -> float | None:
    """The greatest number; None (unknown) if one is unknown."""
    known = [each for each in seconds if each is not None]
    return max(known, default=0.0) if len(known) == len(seconds) else None
