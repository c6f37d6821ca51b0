"""Shell: what the console reads through Spark's packages: pipelines of this machine, and the lag of a mirror."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.cli.output import EXIT_USAGE, fail
from barnabas.core.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.console.ports import MirrorReader, PipelineReader


def pipeline_reader() -> PipelineReader:
    try:
        from barnabas.spark.pipelines.overview import known_pipelines
    except ModuleNotFoundError as error:
        fail(f"--pipelines needs {error.name}: pip install 'barnabas[spark]'", EXIT_USAGE)
    return known_pipelines


def mirror_reader(path: str) -> MirrorReader:
    """A reader of the pairs that a file of MirrorMaker 2 enables."""
    from barnabas.cli.spark.mirror_run import lag_json, read_mirror_config

    config = read_mirror_config(path)
    from barnabas.spark.mirror.running.lags import read_lags

    async def read() -> Sequence[Mapping[str, Any]]:
        pairs = []
        for pair in config.pairs:
            if not pair.enabled:
                continue
            found: dict[str, Any] = {"pair": pair.name, "lags": [], "losses": [], "problem": ""}
            try:
                lags, losses = await read_lags(pair, time.time_ns() // 1_000_000)
                found |= {"lags": [lag_json(lag) for lag in lags], "losses": [str(loss) for loss in losses]}
            except BarnabasError as error:
                found["problem"] = str(error)
            pairs.append(found)
        return pairs

    return read
