"""Port: what the command line supplies to the console, because it comes from Spark's side: pipelines and mirrors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class PipelineReader(Protocol):
    """Reads the pipelines that ran on this machine. It reads files, so the console calls it in a thread."""

    def __call__(self) -> Sequence[Mapping[str, Any]]:
        """A mapping for each pipeline: `pipeline`, `status` (running, stopped, failed), `directory`, `lag` (None:
        unknown, or no flow reads topics), and `run`: the last run as `barnabas pipelines describe --json` prints it, or
        an empty mapping."""


class MirrorReader(Protocol):
    """Reads the lag of a mirror (MirrorMaker 2) from both clusters of each of its pairs."""

    async def __call__(self) -> Sequence[Mapping[str, Any]]:
        """A mapping for each pair of clusters: `pair`, `lags` and `losses` as `barnabas mirror status --json` prints
        them, and `problem`: why the pair cannot be read now, or an empty text."""
