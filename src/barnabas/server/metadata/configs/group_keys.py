"""Table: group configs (KIP-848, KIP-932, KIP-1071).

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the descriptions are our own.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange, OneOf
from barnabas.server.metadata.configs.rows import OffsetReset, boolean, int_, string

GROUP_KEYS: Final[tuple[ConfigKey, ...]] = (
    int_(
        "consumer.assignment.interval.ms",
        1000,
        "The minimum time between two computations of this consumer group's assignment.",
        InRange(0),
        synonyms=("group.consumer.assignment.interval.ms",),
    ),
    int_(
        "consumer.heartbeat.interval.ms",
        5000,
        "How often the members of this consumer group must send a heartbeat.",
        InRange(1),
        synonyms=("group.consumer.heartbeat.interval.ms",),
    ),
    int_(
        "consumer.session.timeout.ms",
        45_000,
        "How long a member of this consumer group may send no heartbeat before it is removed.",
        InRange(1),
        synonyms=("group.consumer.session.timeout.ms",),
    ),
    int_(
        "share.assignment.interval.ms",
        1000,
        "The minimum time between two computations of this share group's assignment.",
        InRange(0),
        synonyms=("group.share.assignment.interval.ms",),
    ),
    string(
        "share.auto.offset.reset",
        "latest",
        "Where a share group starts on a new partition: latest, earliest, or by_duration:<ISO-8601 duration>.",
        OffsetReset(),
    ),
    int_(
        "share.delivery.count.limit",
        5,
        "The maximum number of deliveries of one record to this share group; then the record is archived.",
        InRange(2),
        synonyms=("group.share.delivery.count.limit",),
    ),
    int_(
        "share.heartbeat.interval.ms",
        5000,
        "How often the members of this share group must send a heartbeat.",
        InRange(1),
        synonyms=("group.share.heartbeat.interval.ms",),
    ),
    string(
        "share.isolation.level",
        "read_uncommitted",
        "Whether a share group also gets records of open and aborted transactions.",
        OneOf(("read_committed", "read_uncommitted")),
    ),
    int_(
        "share.partition.max.record.locks",
        2000,
        "The maximum number of records of one partition that this share group may have acquired at a time.",
        InRange(100),
        synonyms=("group.share.partition.max.record.locks",),
    ),
    int_(
        "share.record.lock.duration.ms",
        30_000,
        "How long a member of this share group may keep a record acquired before it is delivered again.",
        InRange(1000),
        synonyms=("group.share.record.lock.duration.ms",),
    ),
    boolean(
        "share.renew.acknowledge.enable",
        True,
        "Whether members of this share group may renew the acquisition lock of a record.",
    ),
    int_(
        "share.session.timeout.ms",
        45_000,
        "How long a member of this share group may send no heartbeat before it is removed.",
        InRange(1),
        synonyms=("group.share.session.timeout.ms",),
    ),
    int_(
        "streams.assignment.interval.ms",
        1000,
        "The minimum time between two computations of this streams group's assignment.",
        InRange(0),
        synonyms=("group.streams.assignment.interval.ms",),
    ),
    int_(
        "streams.heartbeat.interval.ms",
        5000,
        "How often the members of this streams group must send a heartbeat.",
        InRange(1),
        synonyms=("group.streams.heartbeat.interval.ms",),
    ),
    int_(
        "streams.initial.rebalance.delay.ms",
        3000,
        "How long the first rebalance of a new streams group waits for more members.",
        InRange(0),
        synonyms=("group.streams.initial.rebalance.delay.ms",),
    ),
    int_(
        "streams.num.standby.replicas",
        0,
        "The number of standby tasks of each stateful task of this streams group.",
        InRange(0),
        synonyms=("group.streams.num.standby.replicas",),
    ),
    int_(
        "streams.session.timeout.ms",
        45_000,
        "How long a member of this streams group may send no heartbeat before it is removed.",
        InRange(1),
        synonyms=("group.streams.session.timeout.ms",),
    ),
)
