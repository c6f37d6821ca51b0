"""Shell: the target of a query that writes files."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.spark.connectors.files.lines import LineFileTarget
from barnabas.spark.connectors.files.options import parse_file_sink
from barnabas.spark.connectors.files.target import DirectoryTarget
from barnabas.spark.connectors.sinking.options import RowOptions


def file_target(options: Mapping[str, str]) -> tuple[LineFileTarget | DirectoryTarget, RowOptions]:
    parsed = parse_file_sink(options)
    return (LineFileTarget(parsed) if parsed.is_file else DirectoryTarget(parsed)), parsed.rows
