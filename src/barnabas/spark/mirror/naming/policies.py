"""Machine: replication policies: the name of a topic's copy, and where a topic comes from.

    DefaultReplicationPolicy     orders on A  ->  A.orders on B       the prefix says where a topic comes from
    IdentityReplicationPolicy    orders on A  ->  orders on B         only heartbeats have a prefix

The semantics are those of Kafka's classes of the same names (`connect/mirror-client`). With the default policy, the
source of a topic is the text before the first separator, so that a local topic `orders.v1` looks like a copy of `v1`
from a cluster `orders`; this matters only if a cluster has that alias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

HEARTBEATS_TOPIC: Final = "heartbeats"
_DOT: Final = "."


class ReplicationPolicy(Protocol):
    """What mirroring asks a policy. A class of your own implements these methods."""

    def remote_topic(self, source_alias: str, topic: str) -> str:
        """The name of the copy of a source cluster's topic."""

    def topic_source(self, topic: str) -> str | None:
        """The alias of the cluster that a topic was copied from; None for a topic that is no copy."""

    def upstream_topic(self, topic: str) -> str | None:
        """The name that a topic has in the cluster that it was copied from; None for a topic that is no copy."""

    @property
    def internal_separator(self) -> str:
        """The text between the parts of the names of internal topics."""


@dataclass(frozen=True, slots=True)
class DefaultReplicationPolicy:
    """Copies have the alias of their source as a prefix."""

    separator: str = _DOT
    """`replication.policy.separator`."""
    internal_separator_enabled: bool = True
    """`replication.policy.internal.topic.separator.enabled`: whether internal topics have the separator, too."""

    @property
    def internal_separator(self) -> str:
        return self.separator if self.internal_separator_enabled else _DOT

    def remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        source, separator, rest = topic.partition(self.separator)
        # Java's split drops empty parts at the end, so that `orders.` has one part and is no copy.
        return source if separator and rest.strip(self.separator) else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]


@dataclass(frozen=True, slots=True)
class IdentityReplicationPolicy:
    """Copies have the names of their originals; heartbeats have a prefix, which says where they come from."""

    source_alias: str
    """The source of every topic without a prefix, because its name does not say it."""
    separator: str = _DOT
    internal_separator_enabled: bool = True

    @property
    def internal_separator(self) -> str:
        return self.separator if self.internal_separator_enabled else _DOT

    def remote_topic(self, source_alias: str, topic: str) -> str:
        return self._default.remote_topic(source_alias, topic) if self._is_heartbeat(topic) else topic

    def topic_source(self, topic: str) -> str | None:
        return self._default.topic_source(topic) if self._is_heartbeat(topic) else self.source_alias

    def upstream_topic(self, topic: str) -> str | None:
        return self._default.upstream_topic(topic) if self._is_heartbeat(topic) else topic

    @property
    def _default(self) -> DefaultReplicationPolicy:
        return DefaultReplicationPolicy(self.separator, self.internal_separator_enabled)

    def _is_heartbeat(self, topic: str) -> bool:
        return topic.endswith(HEARTBEATS_TOPIC)


def original_topic(policy: ReplicationPolicy, topic: str) -> str:
    """The name of the topic in the cluster that it was written in, however many copies lie between."""
    upstream = policy.upstream_topic(topic)
    while upstream is not None and upstream != topic:
        topic, upstream = upstream, policy.upstream_topic(upstream)
    return topic


def is_heartbeats_topic(policy: ReplicationPolicy, topic: str) -> bool:
    """`heartbeats`, `A.heartbeats`, `B.A.heartbeats`, ..."""
    return original_topic(policy, topic) == HEARTBEATS_TOPIC


def checkpoints_topic(policy: ReplicationPolicy, source_alias: str) -> str:
    """The topic of the target cluster that has the checkpoints of a source cluster's groups."""
    separator = policy.internal_separator
    return f"{source_alias}{separator}checkpoints{separator}internal"


def offset_syncs_topic(policy: ReplicationPolicy, other_alias: str) -> str:
    """The topic of offset syncs: `other_alias` is the target if the topic is in the source cluster, and the source if
    the topic is in the target cluster."""
    separator = policy.internal_separator
    return f"mm2-offset-syncs{separator}{other_alias}{separator}internal"


def is_checkpoints_topic(policy: ReplicationPolicy, topic: str) -> bool:
    separator = policy.internal_separator
    return topic.endswith(f"{separator}checkpoints{separator}internal")


def is_internal_topic(policy: ReplicationPolicy, topic: str) -> bool:
    """Whether a topic belongs to Kafka or to MirrorMaker, and is never copied."""
    return (
        topic.startswith(("__", "."))
        or (topic.startswith("mm2") and topic.endswith(f"{policy.internal_separator}internal"))
        or (topic.startswith("mm2") and topic.endswith(f"{_DOT}internal"))  # the worker's topics keep the dots
        or is_checkpoints_topic(policy, topic)
    )


def is_cycle(policy: ReplicationPolicy, topic: str, source_alias: str, target_alias: str) -> bool:
    """Whether the topic has been in the target cluster, or has come back to the source cluster (KAFKA-9914): a copy of
    such a topic would be copied for ever. Identity does not see cycles, because names do not say where a topic was."""
    while True:
        source = policy.topic_source(topic)
        upstream = policy.upstream_topic(topic)
        if source is None or upstream is None or upstream == topic:
            return False
        if source in (source_alias, target_alias):
            return True
        topic = upstream


def upstream_clusters(policy: ReplicationPolicy, topic: str) -> list[str]:
    """The aliases of the clusters that a topic has passed through, the nearest first."""
    found: list[str] = []
    while (source := policy.topic_source(topic)) is not None and source not in found:
        found.append(source)
        topic = policy.upstream_topic(topic) or topic
    return found
