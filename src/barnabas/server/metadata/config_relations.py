"""Table: the relations between broker configs that must hold when a node starts (Kafka's GroupCoordinatorConfig,
ShareGroupConfig and KafkaConfig.validateValues).

A group coordinator whose heartbeat interval is longer than its session timeout would remove every member, so a node
with such configs does not start. The dynamic configs of groups are checked when they are set (`config_rules`), and
limited to the bounds when they are used (`ConfigView.limited_to_bounds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.core.config import ConfigError, ConfigValue

_BOUNDED: Final = {
    "consumer": ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms"),
    "share": (
        "assignment.interval.ms",
        "delivery.count.limit",
        "heartbeat.interval.ms",
        "partition.max.record.locks",
        "record.lock.duration.ms",
        "session.timeout.ms",
    ),
    "streams": ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms"),
}
"""Kind of group -> the configs `group.<kind>.<config>` between `group.<kind>.min.<config>` and
`group.<kind>.max.<config>`."""


class ConfigRelation(NamedTuple):
    """The config `lesser` must not exceed the config `greater`; if `strict`, it must be smaller."""

    lesser: str
    greater: str
    strict: bool = False


def _relations() -> Iterator[ConfigRelation]:
    for kind, names in _BOUNDED.items():
        for name in names:
            smallest, value, largest = (f"group.{kind}.{bound}{name}" for bound in ("min.", "", "max."))
            yield ConfigRelation(smallest, largest)
            yield ConfigRelation(smallest, value)
            yield ConfigRelation(value, largest)
        yield ConfigRelation(f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms", strict=True)
    yield ConfigRelation("group.streams.num.standby.replicas", "group.streams.max.standby.replicas")
    yield ConfigRelation("group.share.max.size", "group.share.max.share.sessions")
    yield ConfigRelation("replica.fetch.wait.max.ms", "replica.socket.timeout.ms")
    yield ConfigRelation("replica.fetch.wait.max.ms", "replica.lag.time.max.ms")


RELATIONS: Final = tuple(_relations())
_POOL, _REQUEST = "queued.max.request.bytes", "socket.request.max.bytes"


def check_relations(values: Mapping[str, ConfigValue]) -> None:
    """Check the relations between the typed broker configs. Raises ConfigError."""
    for lesser, greater, strict in RELATIONS:
        low, high = values[lesser], values[greater]
        assert isinstance(low, int), f"{lesser} is not a number"
        assert isinstance(high, int), f"{greater} is not a number"
        if low > high or (strict and low == high):
            raise ConfigError(
                f"{lesser}={low} must be {'less than' if strict else 'at most'} {greater}={high}. Change one of them."
            )
    pool, request = values[_POOL], values[_REQUEST]
    assert isinstance(pool, int)
    assert isinstance(request, int)
    if 0 < pool < request:
        raise ConfigError(
            f"{_POOL}={pool} must be at least {_REQUEST}={request}, or -1. Otherwise the largest request that is "
            "allowed could not be received."
        )
