"""Machine: two samples of a cluster -> the rows that `barnabas top` shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from barnabas.console.sampling.sampler import ClusterSample


class TopOrder(StrEnum):
    """What comes first in the tables."""

    RATE = "rate"
    SIZE = "size"
    NAME = "name"

    def next(self) -> TopOrder:
        """The order after this one."""
        members = list(TopOrder)
        return members[(members.index(self) + 1) % len(members)]


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic. `rate` is in records per second; None without an earlier sample. `bytes` counts all replicas."""

    topic: str
    partitions: int
    rate: float | None
    bytes: int
    under_replicated: int
    offline: int


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group. `lag_change` is in records per second: below 0 the group catches up, in `catches_up_s` seconds."""

    group: str
    state: str
    lag: int | None
    lag_change: float | None
    catches_up_s: float | None


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker. `free` is the free space of its log directories; None if the broker does not say."""

    broker: int
    address: str
    state: str
    leaders: int
    replicas: int
    bytes: int
    free: int | None


@dataclass(frozen=True, slots=True)
class TopRows:
    """Everything that is shown for one sample."""

    cluster_id: str | None
    at_ms: int
    rate: float | None
    partitions: int
    under_replicated: int
    offline: int
    brokers: tuple[BrokerRow, ...]
    topics: tuple[TopicRow, ...]
    groups: tuple[GroupRow, ...]
    problem: str = ""


def build_rows(
    before: ClusterSample | None, now: ClusterSample, order: TopOrder = TopOrder.RATE, *, internal: bool = False
) -> TopRows:
    """The rows of `now`; rates are those since `before`. `internal` adds internal topics."""
    if before is None or before.problem or now.problem or before.at_ms >= now.at_ms:
        before = None
    topics = [_topic_row(before, now, name) for name, view in now.topics.items() if internal or not view.is_internal]
    groups = [_group_row(before, now, listing) for listing in now.groups]
    views = [p for view in now.topics.values() for p in view.partitions]
    return TopRows(
        None if now.cluster is None else now.cluster.cluster_id,
        now.at_ms,
        None if before is None else sum(row.rate or 0.0 for row in topics),
        len(views),
        sum(len(p.isr) < len(p.replicas) for p in views),
        sum(p.leader < 0 for p in views),
        _broker_rows(now),
        tuple(sorted(topics, key=_TOPIC_KEYS[order])),
        tuple(sorted(groups, key=_GROUP_KEYS[order])),
        now.problem,
    )


_TOPIC_KEYS: Final[dict[TopOrder, Callable[[TopicRow], Any]]] = {
    TopOrder.RATE: lambda row: (-(row.rate or 0.0), -row.bytes, row.topic),
    TopOrder.SIZE: lambda row: (-row.bytes, row.topic),
    TopOrder.NAME: lambda row: row.topic,
}
_GROUP_KEYS: Final[dict[TopOrder, Callable[[GroupRow], Any]]] = {
    TopOrder.RATE: lambda row: (-(row.lag or 0), row.group),
    TopOrder.SIZE: lambda row: (-(row.lag or 0), row.group),
    TopOrder.NAME: lambda row: row.group,
}


def _topic_row(before: ClusterSample | None, now: ClusterSample, name: str) -> TopicRow:
    view = now.topics[name]
    rate = None
    if before is not None:
        grown = 0
        for info in view.partitions:
            partition = info.topic_partition
            end, start = now.end_offsets.get(partition), before.end_offsets.get(partition)
            if end is not None and start is not None:
                grown += max(end - start, 0)  # below 0: the topic was created again
        rate = grown / _seconds(before, now)
    return TopicRow(
        name,
        len(view.partitions),
        rate,
        now.topic_bytes.get(name, 0),
        sum(len(p.isr) < len(p.replicas) for p in view.partitions),
        sum(p.leader < 0 for p in view.partitions),
    )


def _group_row(before: ClusterSample | None, now: ClusterSample, listing: Any) -> GroupRow:
    lag = now.lags.get(listing.group_id)
    earlier = None if before is None else before.lags.get(listing.group_id)
    change = catches_up_s = None
    if before is not None and lag is not None and earlier is not None:
        change = (lag - earlier) / _seconds(before, now)
        if change < 0 and lag > 0:
            catches_up_s = lag / -change
    return GroupRow(listing.group_id, str(listing.state.value), lag, change, catches_up_s)


def _broker_rows(now: ClusterSample) -> tuple[BrokerRow, ...]:
    if now.cluster is None:
        return ()
    leaders: dict[int, int] = {}
    for view in now.topics.values():
        for partition in view.partitions:
            leaders[partition.leader] = leaders.get(partition.leader, 0) + 1
    rows = []
    for broker in sorted(now.cluster.brokers, key=lambda broker: broker.broker_id):
        directories = now.log_dirs.get(broker.broker_id, {})
        usable: Sequence[Any] = [d for d in directories.values() if hasattr(d, "replicas")]
        state = "down" if broker.broker_id in now.cluster.fenced else "up" if directories else "no answer"
        free = [d.usable_bytes for d in usable if d.usable_bytes >= 0]
        rows.append(
            BrokerRow(
                broker.broker_id,
                f"{broker.host}:{broker.port}",
                state,
                leaders.get(broker.broker_id, 0),
                sum(len(d.replicas) for d in usable),
                sum(r.size_bytes for d in usable for r in d.replicas.values()),
                min(free) if free else None,
            )
        )
    return tuple(rows)


def _seconds(before: ClusterSample, now: ClusterSample) -> float:
    return (now.at_ms - before.at_ms) / 1000
