"""Table: broker configs of classic, consumer and streams groups.

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the descriptions are our own.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange, ListOf, OneOf
from barnabas.server.metadata.configs.rows import CLUSTER, HIGH, INT_MAX, int_, list_, long, short, string

GROUPS_KEYS: Final[tuple[ConfigKey, ...]] = (
    int_(
        "group.consumer.assignment.interval.ms",
        1000,
        "The minimum time between two computations of a consumer group's assignment.",
        InRange(0),
        update_mode=CLUSTER,
    ),
    list_(
        "group.consumer.assignors",
        ("uniform", "range"),
        "The assignors of consumer groups, the default one first.",
        ListOf(empty_allowed=False),
    ),
    int_(
        "group.consumer.heartbeat.interval.ms",
        5000,
        "How often the members of consumer groups send a heartbeat.",
        InRange(1),
    ),
    int_(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        "The largest consumer.assignment.interval.ms of a group.",
        InRange(0),
    ),
    int_(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "The largest consumer.heartbeat.interval.ms of a group.",
        InRange(1),
    ),
    int_(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "The largest consumer.session.timeout.ms of a group.",
        InRange(1),
    ),
    int_("group.consumer.max.size", INT_MAX, "The maximum number of members of a consumer group.", InRange(1)),
    string(
        "group.consumer.migration.policy",
        "bidirectional",
        "The allowed migrations of an active group between the classic and the consumer protocol.",
        OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), ignore_case=True),
    ),
    int_(
        "group.consumer.min.assignment.interval.ms",
        0,
        "The smallest consumer.assignment.interval.ms of a group.",
        InRange(0),
    ),
    int_(
        "group.consumer.min.heartbeat.interval.ms",
        5000,
        "The smallest consumer.heartbeat.interval.ms of a group.",
        InRange(1),
    ),
    int_(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "The smallest consumer.session.timeout.ms of a group.",
        InRange(1),
    ),
    int_(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "How often subscription patterns are matched against the topics again.",
        InRange(10_000),
        internal=True,
    ),
    int_(
        "group.consumer.session.timeout.ms",
        45_000,
        "How long a member of a consumer group may send no heartbeat before it is removed.",
        InRange(1),
    ),
    int_(
        "group.coordinator.append.linger.ms",
        -1,
        "How long the group coordinator collects records before it writes a batch; -1 adapts to the load.",
        InRange(-1),
    ),
    int_(
        "group.coordinator.background.threads",
        2,
        "How many threads do background work, such as matching subscription patterns, for the group coordinator.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "group.coordinator.cached.buffer.max.bytes",
        1_048_588,
        "The maximum write buffer that the group coordinator keeps for reuse.",
        InRange(524_288),
        update_mode=CLUSTER,
    ),
    list_(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        "The group protocols that the coordinator supports.",
        ListOf(("consumer", "classic", "share", "streams"), empty_allowed=False),
    ),
    int_(
        "group.coordinator.threads", 4, "The number of threads of the group coordinator.", InRange(1), importance=HIGH
    ),
    int_(
        "group.initial.rebalance.delay.ms",
        3000,
        "How long the first rebalance of a new classic group waits for more members.",
    ),
    int_("group.max.session.timeout.ms", 1_800_000, "The maximum session timeout that a classic member may request."),
    int_("group.max.size", INT_MAX, "The maximum number of members of a classic group.", InRange(1)),
    int_("group.min.session.timeout.ms", 6000, "The minimum session timeout that a classic member may request."),
    int_(
        "group.streams.assignment.interval.ms",
        1000,
        "The minimum time between two computations of a streams group's assignment.",
        InRange(0),
        update_mode=CLUSTER,
    ),
    int_(
        "group.streams.heartbeat.interval.ms",
        5000,
        "How often the members of streams groups send a heartbeat.",
        InRange(1),
    ),
    int_(
        "group.streams.initial.rebalance.delay.ms",
        3000,
        "How long the first rebalance of a new streams group waits for more members.",
        InRange(0),
    ),
    int_(
        "group.streams.max.assignment.interval.ms",
        15_000,
        "The largest streams.assignment.interval.ms of a group.",
        InRange(0),
    ),
    int_(
        "group.streams.max.heartbeat.interval.ms",
        15_000,
        "The largest streams.heartbeat.interval.ms of a group.",
        InRange(1),
    ),
    int_(
        "group.streams.max.session.timeout.ms",
        60_000,
        "The largest streams.session.timeout.ms of a group.",
        InRange(1),
    ),
    int_("group.streams.max.size", INT_MAX, "The maximum number of members of a streams group.", InRange(1)),
    int_(
        "group.streams.max.standby.replicas",
        2,
        "The maximum number of standby tasks of each task of a streams group.",
        InRange(0),
    ),
    int_(
        "group.streams.min.assignment.interval.ms",
        0,
        "The smallest streams.assignment.interval.ms of a group.",
        InRange(0),
    ),
    int_(
        "group.streams.min.heartbeat.interval.ms",
        5000,
        "The smallest streams.heartbeat.interval.ms of a group.",
        InRange(1),
    ),
    int_(
        "group.streams.min.session.timeout.ms",
        45_000,
        "The smallest streams.session.timeout.ms of a group.",
        InRange(1),
    ),
    int_(
        "group.streams.num.standby.replicas",
        0,
        "The number of standby tasks of each stateful task of a streams group.",
        InRange(0),
    ),
    int_(
        "group.streams.session.timeout.ms",
        45_000,
        "How long a member of a streams group may send no heartbeat before it is removed.",
        InRange(1),
    ),
    int_("offset.metadata.max.bytes", 4096, "The longest metadata string of a committed offset.", importance=HIGH),
    int_(
        "offsets.commit.timeout.ms",
        5000,
        "How long an offset commit waits to be replicated.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "offsets.load.buffer.size",
        5_242_880,
        "How many bytes are read at a time when group state is loaded.",
        InRange(1),
        importance=HIGH,
    ),
    long(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often committed offsets are checked for expiry.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "offsets.retention.minutes",
        10_080,
        "How long committed offsets are kept after their group has become empty.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "offsets.topic.compression.codec",
        0,
        "The codec of batches in __consumer_offsets, by its number (0 is none).",
        importance=HIGH,
    ),
    int_(
        "offsets.topic.num.partitions",
        50,
        "The number of partitions of __consumer_offsets; do not change it once the topic exists.",
        InRange(1),
        importance=HIGH,
    ),
    short(
        "offsets.topic.replication.factor",
        3,
        "The replication factor of __consumer_offsets; it cannot be created with fewer brokers.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "offsets.topic.segment.bytes",
        104_857_600,
        "The segment size of __consumer_offsets; small ones are compacted and loaded faster.",
        InRange(1),
        importance=HIGH,
    ),
)
