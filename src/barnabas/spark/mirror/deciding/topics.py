"""Machine: which topics are copied, and which topics and partitions the target cluster lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from barnabas.client.values import NewTopic
from barnabas.core.ids import NO_TOPIC_ID
from barnabas.spark.mirror.naming.filters import TopicSelection


@dataclass(frozen=True, slots=True)
class SeenTopic:
    """A topic as a cluster describes it."""

    name: str
    partitions: int
    topic_id: UUID = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """What the target cluster lacks."""

    copies: Mapping[str, str] = field(default_factory=dict)
    """Source topic -> target topic, of all topics that are copied."""
    to_create: Sequence[str] = ()
    """Source topics without a copy."""
    to_grow: Mapping[str, int] = field(default_factory=dict)
    """Target topic -> the number of partitions of its source topic, which is larger."""


def plan_topics(
    selection: TopicSelection, source: Mapping[str, SeenTopic], target: Mapping[str, SeenTopic]
) -> TopicChanges:
    """A copy that has more partitions than its source keeps them: partitions cannot be removed."""
    copies = {name: selection.target_of(name) for name in sorted(source) if selection.selects(name)}
    return TopicChanges(
        copies,
        [name for name, copy in copies.items() if copy not in target],
        {
            copy: source[name].partitions
            for name, copy in copies.items()
            if copy in target and target[copy].partitions < source[name].partitions
        },
    )


def new_topic(
    topic: SeenTopic, copy: str, configs: Mapping[str, str | None], replication_factor: int, brokers: int
) -> NewTopic:
    """The copy of a source topic. A cluster with fewer brokers than `replication_factor` gets a replica on each."""
    return NewTopic(copy, topic.partitions, replicas(replication_factor, brokers), configs)


def replicas(replication_factor: int, brokers: int) -> int:
    return replication_factor if replication_factor < 0 else max(1, min(replication_factor, brokers))


def internal_topic(name: str, replication_factor: int, brokers: int, partitions: int = 1) -> NewTopic:
    """A compacted topic of MirrorMaker."""
    return NewTopic(name, partitions, replicas(replication_factor, brokers), {"cleanup.policy": "compact"})
