"""A group's own settings stay within the brokers' bounds, whatever those were when they were set."""

from __future__ import annotations

import pytest

from barnabas.core.config import ConfigError
from barnabas.server.metadata.config_rules import check_group_configs
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.image.cluster import ClusterImage, MetadataProvenance
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.image.small import ResourceType
from barnabas.server.metadata.records.other import ConfigRecord

SHARE = {
    "share.delivery.count.limit": (2, 10),
    "share.partition.max.record.locks": (100, 4000),
    "share.record.lock.duration.ms": (15_000, 60_000),
    "share.session.timeout.ms": (45_000, 60_000),
    "share.heartbeat.interval.ms": (5_000, 15_000),
}


def view(static: dict[str, str], own: dict[str, str]) -> ConfigView:
    delta = ClusterDelta(ClusterImage())
    for name, value in own.items():
        delta.apply(ConfigRecord(resource_type=ResourceType.GROUP, resource_name="g", name=name, value=value))
    return ConfigView(delta.finish(MetadataProvenance()).configs, node_id=1, static=static)


@pytest.mark.parametrize(("name", "low", "high"), [(name, *bounds) for name, bounds in SHARE.items()])
def test_group_config_outside_the_bounds_is_rejected(name: str, low: int, high: int) -> None:
    kind, _, rest = name.partition(".")
    quiet = {"share.session.timeout.ms": "60000"} if name == "share.heartbeat.interval.ms" else {}
    for value in (low, high):
        check_group_configs({**quiet, name: str(value)}, view({}, {}))
    with pytest.raises(ConfigError, match=f"{name} must be less than or equal to group.{kind}.max.{rest}"):
        check_group_configs({name: str(high + 1)}, view({}, {}))
    if low > 2 and name != "share.partition.max.record.locks":  # below, the setting's own range refuses first
        with pytest.raises(ConfigError, match=f"{name} must be greater than or equal to group.{kind}.min.{rest}"):
            check_group_configs({name: str(low - 1)}, view({}, {}))


def test_narrowed_bounds_limit_existing_group_configs() -> None:
    static = {
        "group.share.max.delivery.count.limit": "6",
        "group.share.min.record.lock.duration.ms": "20000",
        "group.consumer.max.heartbeat.interval.ms": "6000",
    }
    own = {
        "share.delivery.count.limit": "9",
        "share.record.lock.duration.ms": "15000",
        "share.auto.offset.reset": "earliest",
        "consumer.heartbeat.interval.ms": "9000",
    }
    found = view(static, own).group("g")
    assert {name: found[name] for name in own} == {
        "share.delivery.count.limit": 6,
        "share.record.lock.duration.ms": 20_000,
        "share.auto.offset.reset": "earliest",
        "consumer.heartbeat.interval.ms": 6_000,
    }
    assert view({}, own).group("g")["share.delivery.count.limit"] == 9
    assert view(static, {}).group("g")["share.delivery.count.limit"] == 5, "what a group does not set is the brokers'"
