"""Value: what a properties file says about the clusters and about each pair of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.core.reprs import repr_without
from barnabas.spark.mirror.naming.filters import TopicSelection
from barnabas.spark.mirror.naming.policies import (
    HEARTBEATS_TOPIC,
    ReplicationPolicy,
    checkpoints_topic,
    offset_syncs_topic,
)

Selects = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Clients:
    """The settings of the clients of one cluster, by Kafka's names."""

    admin: Mapping[str, str]
    consumer: Mapping[str, str]
    producer: Mapping[str, str]

    __repr__ = repr_without("admin", "consumer", "producer")


@dataclass(frozen=True, slots=True)
class Job:
    """One of the things that a pair does: whether, and how often. `interval_s` is 0 for what happens at each
    micro-batch."""

    enabled: bool
    interval_s: float


@dataclass(frozen=True, slots=True)
class Replication:
    """The replication factors of new topics; a smaller cluster gets a replica on each of its brokers."""

    topics: int
    heartbeats: int
    checkpoints: int
    offset_syncs: int
    offsets: int


@dataclass(frozen=True, slots=True)
class PairConfig:
    """An ordered pair of clusters, and what is mirrored from the first to the second."""

    source: str
    target: str
    enabled: bool
    """Whether topics are copied. A pair that is not enabled still writes heartbeats."""
    source_clients: Clients
    target_clients: Clients
    policy: ReplicationPolicy
    topics: Selects
    groups: Selects
    configs: Selects
    """Which topic configs are copied."""
    use_source_defaults: bool
    """Whether a config that has its default in the source cluster is set to that value in the target cluster
    (`use.defaults.from=source`), or unset there."""
    replication: Replication
    offset_syncs_in_source: bool
    refresh_topics: Job
    refresh_groups: Job
    sync_configs: Job
    sync_acls: Job
    sync_groups: Job
    checkpoints: Job
    heartbeats: Job
    mirror_heartbeats: bool
    """Whether the heartbeats topics of the source cluster are copied."""
    offset_syncs_enabled: bool
    reverse_checkpoints: bool
    """Whether groups that read, in the source cluster, copies of the target's topics get checkpoints."""
    admin_timeout_ms: int
    offsets_topic: str
    offsets_partitions: int
    transactional: bool
    fail_on_data_loss: bool
    provenance_header: str | None
    copy_options: Mapping[str, str] = field(default_factory=dict)
    """`tasks.max`, `trigger.interval.ms`, `max.bytes.per.trigger`, as far as they are given."""

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def selection(self) -> TopicSelection:
        return TopicSelection(self.policy, self.source, self.target, self.topics, self.mirror_heartbeats)

    @property
    def heartbeats_topic(self) -> str:
        return HEARTBEATS_TOPIC

    @property
    def checkpoints_topic(self) -> str:
        return checkpoints_topic(self.policy, self.source)

    @property
    def offset_syncs_topic(self) -> str:
        """In the source cluster, or in the target cluster, as `offset_syncs_in_source` says."""
        return offset_syncs_topic(self.policy, self.target if self.offset_syncs_in_source else self.source)

    @property
    def offset_syncs_clients(self) -> Clients:
        return self.source_clients if self.offset_syncs_in_source else self.target_clients


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """A properties file."""

    clusters: Sequence[str]
    pairs: Sequence[PairConfig]
    """The pairs that do something: those that are enabled or write heartbeats."""
    unused: Sequence[tuple[str, str]] = ()
    """Keys that have no effect here, and why."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the Spark session (`spark.*`)."""

    __repr__ = repr_without("spark")

    def towards(self, targets: Sequence[str]) -> list[PairConfig]:
        """The pairs whose target is one of these clusters, or all pairs if none is named."""
        return [pair for pair in self.pairs if not targets or pair.target in targets]

    def pair(self, source: str, target: str) -> PairConfig | None:
        return next((pair for pair in self.pairs if (pair.source, pair.target) == (source, target)), None)
