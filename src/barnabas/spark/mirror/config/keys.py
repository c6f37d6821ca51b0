"""Table: the keys of MirrorMaker's properties file.

A key of `PAIR_KEYS` is given for all pairs of clusters (`topics=...`) or for one (`A->B.topics=...`), which wins. The
names and defaults are those of Kafka's `connect/mirror`; the last rows are our own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.spark.mirror.naming.filters import (
    CONFIGS_EXCLUDE_DEFAULT,
    GROUPS_DEFAULT,
    GROUPS_EXCLUDE_DEFAULT,
    TOPICS_DEFAULT,
    TOPICS_EXCLUDE_DEFAULT,
)

DEFAULT_POLICY: Final = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
IDENTITY_POLICY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


class PairKey(NamedTuple):
    """A key, the type of its value, and its default. `choices` are the values of a key that has few."""

    name: str
    type: str
    """bool, int (from 0), positive, list, text, or class."""
    default: str
    choices: tuple[str, ...] = ()


PAIR_KEYS: Final = {
    key.name: key
    for key in (
        PairKey("enabled", "bool", "false"),
        PairKey("topics", "list", TOPICS_DEFAULT),
        PairKey("topics.exclude", "list", TOPICS_EXCLUDE_DEFAULT),
        PairKey("groups", "list", GROUPS_DEFAULT),
        PairKey("groups.exclude", "list", GROUPS_EXCLUDE_DEFAULT),
        PairKey("config.properties.exclude", "list", CONFIGS_EXCLUDE_DEFAULT),
        PairKey("use.defaults.from", "text", "target", ("target", "source")),
        PairKey("replication.policy.class", "class", DEFAULT_POLICY),
        PairKey("replication.policy.separator", "text", "."),
        PairKey("replication.policy.internal.topic.separator.enabled", "bool", "true"),
        PairKey("topic.filter.class", "class", "org.apache.kafka.connect.mirror.DefaultTopicFilter"),
        PairKey("group.filter.class", "class", "org.apache.kafka.connect.mirror.DefaultGroupFilter"),
        PairKey("config.property.filter.class", "class", "org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter"),
        PairKey("forwarding.admin.class", "class", "org.apache.kafka.clients.admin.ForwardingAdmin"),
        PairKey("replication.factor", "positive", "2"),
        PairKey("heartbeats.topic.replication.factor", "positive", "3"),
        PairKey("checkpoints.topic.replication.factor", "positive", "3"),
        PairKey("offset-syncs.topic.replication.factor", "positive", "3"),
        PairKey("offset-syncs.topic.location", "text", "source", ("source", "target")),
        PairKey("refresh.topics.enabled", "bool", "true"),
        PairKey("refresh.topics.interval.seconds", "positive", "600"),
        PairKey("refresh.groups.enabled", "bool", "true"),
        PairKey("refresh.groups.interval.seconds", "positive", "600"),
        PairKey("sync.topic.configs.enabled", "bool", "true"),
        PairKey("sync.topic.configs.interval.seconds", "positive", "600"),
        PairKey("sync.topic.acls.enabled", "bool", "true"),
        PairKey("sync.topic.acls.interval.seconds", "positive", "600"),
        PairKey("sync.group.offsets.enabled", "bool", "false"),
        PairKey("sync.group.offsets.interval.seconds", "positive", "60"),
        PairKey("emit.checkpoints.enabled", "bool", "true"),
        PairKey("emit.checkpoints.interval.seconds", "positive", "60"),
        PairKey("emit.heartbeats.enabled", "bool", "true"),
        PairKey("emit.heartbeats.interval.seconds", "positive", "1"),
        PairKey("heartbeats.replication.enabled", "bool", "true"),
        PairKey("emit.offset-syncs.enabled", "bool", "true"),
        PairKey("admin.timeout.ms", "positive", "60000"),
        PairKey("tasks.max", "int", "0"),
        # Our own keys.
        PairKey("on.data.loss", "text", "fail", ("fail", "report")),
        PairKey("provenance.header", "text", ""),
        PairKey("reverse.checkpoints.enabled", "bool", "true"),
        PairKey("trigger.interval.ms", "int", "0"),
        PairKey("max.bytes.per.trigger", "int", "0"),
    )
}

UNUSED_PAIR_KEYS: Final = {
    "offset.lag.max": "each micro-batch ends with an offset sync, and each committed offset of a group gets one",
    "consumer.poll.timeout.ms": "Spark plans what a micro-batch reads",
    "metric.names.formats": "there are no JMX metrics; `barnabas mirror run` prints the lag",
    "name": "a pair is named by its clusters",
    "connector.class": "a pair has one runner for all three connectors",
    "offset.flush.interval.ms": "each micro-batch writes its positions and offset syncs",
    "offset.flush.timeout.ms": "each micro-batch writes its positions and offset syncs",
    "heartbeats.topic.name": "heartbeats have the name that Kafka's clients expect",
    "exactly.once.support": "exactly.once.source.support of the target cluster decides",
    "add.source.alias.to.metrics": "there are no JMX metrics",
}
"""Keys of MirrorMaker's connectors that have no effect here, and why."""

WORKER_KEYS: Final = {
    "offset.storage.topic": "",
    "offset.storage.replication.factor": "3",
    "offset.storage.partitions": "25",
    "exactly.once.source.support": "enabled",
}
"""Keys of a worker that have an effect, for all target clusters or for one (`B.<key>`), and their defaults."""

UNUSED_WORKER_PREFIXES: Final = (
    "config.storage.", "status.storage.", "offset.storage.", "key.converter", "value.converter", "header.converter",
    "internal.key.converter", "internal.value.converter", "task.shutdown.", "worker.", "listeners", "rest.",
    "admin.listeners", "plugin.", "rebalance.timeout.ms", "heartbeat.interval.ms", "session.timeout.ms",
    "scheduled.rebalance.", "connect.protocol", "inter.worker.", "group.id", "topic.tracking.", "topic.creation.",
    "errors.", "response.http.", "access.control.", "connector.client.", "metrics.", "metric.reporters",
    "dedicated.mode.enable.internal.rest",
)  # fmt: skip
"""Keys of Connect's workers that begin so have no effect here: there are no workers, converters or REST API."""

REFUSED_PREFIXES: Final = {
    "transforms": "transforms of mirrored records are not supported; copy such topics with a pipeline or a connector",
    "predicates": "transforms of mirrored records are not supported; copy such topics with a pipeline or a connector",
}
"""Keys that would be missed, and what to do instead."""

OLD_NAMES: Final = {
    "topics.blacklist": "topics.exclude",
    "topics.whitelist": "topics",
    "groups.blacklist": "groups.exclude",
    "groups.whitelist": "groups",
    "config.properties.blacklist": "config.properties.exclude",
}
"""Names of keys in old files, and what they are called now."""
