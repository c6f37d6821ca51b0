"""Shell: what Spark calls for the lake's formats, by the name of the format."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.spark.connectors.lake.options import LakeKind, parse_lake_options
from barnabas.spark.connectors.lake.target import LakeTarget
from barnabas.spark.connectors.sinking.writer import SinkPlan


def delta_plan(options: Mapping[str, str]) -> SinkPlan:
    parsed = parse_lake_options(LakeKind.DELTA, options)
    return SinkPlan(LakeTarget(parsed), parsed.rows)


def iceberg_plan(options: Mapping[str, str]) -> SinkPlan:
    parsed = parse_lake_options(LakeKind.ICEBERG, options)
    return SinkPlan(LakeTarget(parsed), parsed.rows)
