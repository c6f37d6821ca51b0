"""Shell: what Spark calls for the lake's formats, by the name of the format."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.spark.connectors.lake.options import LakeKind, parse_lake_options
from barnabas.spark.connectors.lake.target import LakeTarget
from barnabas.spark.connectors.sinking.options import RowOptions


def delta_target(options: Mapping[str, str]) -> tuple[LakeTarget, RowOptions]:
    parsed = parse_lake_options(LakeKind.DELTA, options)
    return LakeTarget(parsed), parsed.rows


def iceberg_target(options: Mapping[str, str]) -> tuple[LakeTarget, RowOptions]:
    parsed = parse_lake_options(LakeKind.ICEBERG, options)
    return LakeTarget(parsed), parsed.rows
