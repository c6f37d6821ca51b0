"""Table: broker configs of share groups (KIP-932).

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the descriptions are our own.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange, ListOf
from barnabas.server.metadata.configs.rows import CLUSTER, HIGH, LOW, int_, list_, short, string

SHARE_KEYS: Final[tuple[ConfigKey, ...]] = (
    int_(
        "group.share.assignment.interval.ms",
        1000,
        "The minimum time between two computations of a share group's assignment.",
        InRange(0),
        update_mode=CLUSTER,
    ),
    list_(
        "group.share.assignors",
        ("simple",),
        "The assignors of share groups; only the first is used.",
        ListOf(empty_allowed=False),
    ),
    int_(
        "group.share.delivery.count.limit",
        5,
        "The maximum number of deliveries of one record to a share group; then the record is archived.",
        InRange(2, 10),
    ),
    int_(
        "group.share.heartbeat.interval.ms", 5000, "How often the members of share groups send a heartbeat.", InRange(1)
    ),
    int_(
        "group.share.initialize.retry.interval.ms",
        30_000,
        "How often the initialization of a share partition's state is retried.",
        InRange(1),
        importance=LOW,
        internal=True,
    ),
    int_(
        "group.share.max.assignment.interval.ms",
        15_000,
        "The largest share.assignment.interval.ms of a group.",
        InRange(0),
    ),
    int_(
        "group.share.max.delivery.count.limit",
        10,
        "The largest share.delivery.count.limit of a group.",
        InRange(5, 25),
    ),
    int_(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        "The largest share.heartbeat.interval.ms of a group.",
        InRange(1),
    ),
    int_(
        "group.share.max.partition.max.record.locks",
        4000,
        "The largest share.partition.max.record.locks of a group.",
        InRange(2000, 10_000),
    ),
    int_(
        "group.share.max.record.lock.duration.ms",
        60_000,
        "The largest share.record.lock.duration.ms of a group.",
        InRange(30_000, 3_600_000),
    ),
    int_(
        "group.share.max.session.timeout.ms",
        60_000,
        "The largest share.session.timeout.ms of a group.",
        InRange(1),
    ),
    int_("group.share.max.share.sessions", 2000, "How many share sessions a broker keeps.", InRange(1)),
    int_("group.share.max.size", 200, "The maximum number of members of a share group.", InRange(1, 1000)),
    int_(
        "group.share.min.assignment.interval.ms",
        0,
        "The smallest share.assignment.interval.ms of a group.",
        InRange(0),
    ),
    int_(
        "group.share.min.delivery.count.limit",
        2,
        "The smallest share.delivery.count.limit of a group.",
        InRange(2, 5),
    ),
    int_(
        "group.share.min.heartbeat.interval.ms",
        5000,
        "The smallest share.heartbeat.interval.ms of a group.",
        InRange(1),
    ),
    int_(
        "group.share.min.partition.max.record.locks",
        100,
        "The smallest share.partition.max.record.locks of a group.",
        InRange(100, 2000),
    ),
    int_(
        "group.share.min.record.lock.duration.ms",
        15_000,
        "The smallest share.record.lock.duration.ms of a group.",
        InRange(1000, 30_000),
    ),
    int_(
        "group.share.min.session.timeout.ms",
        45_000,
        "The smallest share.session.timeout.ms of a group.",
        InRange(1),
    ),
    int_(
        "group.share.partition.max.record.locks",
        2000,
        "The maximum number of records of one partition that a share group may have acquired at a time.",
        InRange(100, 10_000),
    ),
    string(
        "group.share.persister.class.name",
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "The class that stores the state of share partitions.",
        internal=True,
    ),
    int_(
        "group.share.record.lock.duration.ms",
        30_000,
        "How long a member of a share group may keep a record acquired before it is delivered again.",
        InRange(1000, 3_600_000),
    ),
    int_(
        "group.share.session.timeout.ms",
        45_000,
        "How long a member of a share group may send no heartbeat before it is removed.",
        InRange(1),
    ),
    int_(
        "share.coordinator.append.linger.ms",
        -1,
        "How long the share coordinator collects records before it writes a batch; -1 adapts to the load.",
        InRange(-1),
    ),
    int_(
        "share.coordinator.cached.buffer.max.bytes",
        1_048_588,
        "The maximum write buffer that the share coordinator keeps for reuse.",
        InRange(524_288),
        update_mode=CLUSTER,
    ),
    int_(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        "How often a snapshot is written for share partitions that do not change.",
        InRange(1),
        importance=LOW,
        internal=True,
    ),
    int_(
        "share.coordinator.load.buffer.size",
        5_242_880,
        "How many bytes are read at a time when share state is loaded.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "The number of update records of a share partition between two snapshots.",
        InRange(0, 500),
    ),
    int_(
        "share.coordinator.state.topic.compression.codec",
        0,
        "The codec of batches in __share_group_state, by its number (0 is none).",
        importance=HIGH,
    ),
    short(
        "share.coordinator.state.topic.min.isr",
        2,
        "The min.insync.replicas of __share_group_state.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "share.coordinator.state.topic.num.partitions",
        50,
        "The number of partitions of __share_group_state; do not change it once the topic exists.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        "How often records of __share_group_state that are no longer needed are deleted.",
        InRange(1),
        importance=LOW,
        internal=True,
    ),
    short(
        "share.coordinator.state.topic.replication.factor",
        3,
        "The replication factor of __share_group_state; it cannot be created with fewer brokers.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        "The segment size of __share_group_state.",
        InRange(1),
        importance=HIGH,
    ),
    int_("share.coordinator.threads", 1, "The number of threads of the share coordinator.", InRange(1)),
    int_(
        "share.coordinator.write.timeout.ms",
        5000,
        "How long a write of share state waits to be replicated.",
        InRange(1),
        importance=HIGH,
    ),
)
