"""Table: broker configs of topics, replication and fetching.

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the sentences are ours.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange
from barnabas.server.metadata.configs.rows import CLUSTER, HIGH, LONG_MAX, LOW, boolean, class_, int_, long, string

REPLICATION_KEYS: Final[tuple[ConfigKey, ...]] = (
    class_(
        "alter.config.policy.class.name", None, "Class of a policy that may refuse changes of configs.", importance=LOW
    ),
    boolean(
        "auto.create.topics.enable",
        True,
        "Whether asking for a topic that does not exist may create it.",
        importance=HIGH,
    ),
    boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether leadership is moved back to preferred replicas by itself.",
        importance=HIGH,
    ),
    boolean("controlled.shutdown.enable", True, "Whether a broker hands over its leaderships before it stops."),
    class_("create.topic.policy.class.name", None, "Class of a policy that may refuse new topics.", importance=LOW),
    int_("default.replication.factor", 1, "The replication factor of a new topic whose creator did not say."),
    int_(
        "delete.records.purgatory.purge.interval.requests",
        1,
        "After how many completed requests the DeleteRecords purgatory is purged.",
    ),
    boolean("delete.topic.enable", True, "Whether topics can be deleted.", importance=HIGH),
    int_(
        "fetch.max.bytes",
        57_671_680,
        "The most bytes in one fetch response, whatever the client asks for.",
        InRange(1024),
    ),
    int_(
        "fetch.purgatory.purge.interval.requests",
        1000,
        "After how many completed requests the fetch purgatory is purged.",
    ),
    boolean(
        "follower.fetch.last.tiered.offset.enable",
        False,
        "Whether an empty follower skips what is in tiered storage and starts after it.",
        update_mode=CLUSTER,
    ),
    long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "The most bytes per second this broker fetches for throttled replicas; can only be set dynamically.",
        InRange(0),
        update_mode=CLUSTER,
        internal=True,
    ),
    long(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller looks for leadership to move back to preferred replicas.",
        InRange(1),
        importance=HIGH,
    ),
    long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "The most bytes per second this broker serves for throttled replicas; can only be set dynamically.",
        InRange(0),
        update_mode=CLUSTER,
        internal=True,
    ),
    int_(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "How many incremental fetch sessions the broker keeps.",
        InRange(0),
    ),
    int_(
        "max.request.partition.size.limit",
        2000,
        "How many partitions one DescribeTopicPartitions response lists at most.",
        InRange(1),
    ),
    int_(
        "min.insync.replicas",
        1,
        "Broker default of the topic config of the same name.",
        InRange(1),
        importance=HIGH,
        update_mode=CLUSTER,
    ),
    int_("num.partitions", 1, "The number of partitions of a new topic whose creator did not say.", InRange(1)),
    int_(
        "num.replica.fetchers",
        1,
        "How many fetchers copy from one source broker at the same time.",
        InRange(1),
        importance=HIGH,
        update_mode=CLUSTER,
    ),
    int_(
        "producer.purgatory.purge.interval.requests",
        1000,
        "After how many completed requests the produce purgatory is purged.",
    ),
    long(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "The most bytes per second spent on moving replicas between data directories; can only be set dynamically.",
        InRange(0),
        update_mode=CLUSTER,
        internal=True,
    ),
    int_("replica.fetch.backoff.ms", 1000, "The pause of a follower after a fetch of a partition failed.", InRange(0)),
    int_(
        "replica.fetch.max.bytes",
        1_048_576,
        "How many bytes of one partition a follower asks for; the first batch is given whole even if it is larger.",
        InRange(0),
    ),
    int_(
        "replica.fetch.min.bytes",
        1,
        "How many bytes must be there before the leader answers a follower's fetch early.",
        importance=HIGH,
    ),
    int_(
        "replica.fetch.response.max.bytes",
        10_485_760,
        "How many bytes a follower asks for in one fetch; the first batch is given whole even if it is larger.",
        InRange(0),
    ),
    int_(
        "replica.fetch.wait.max.ms",
        500,
        "How long the leader holds a follower's fetch that finds no data; less than replica.lag.time.max.ms.",
        importance=HIGH,
    ),
    long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        "How often high watermarks are written to their checkpoint file.",
        importance=HIGH,
    ),
    long(
        "replica.lag.time.max.ms",
        30_000,
        "How long a follower may stay behind the leader's end before it leaves the in-sync replicas.",
        importance=HIGH,
    ),
    string(
        "replica.selector.class",
        None,
        "How the leader chooses which replica a consumer should read from; when unset, always the leader.",
    ),
    int_(
        "replica.socket.receive.buffer.bytes",
        65_536,
        "The socket receive buffer of a follower's connection to a leader.",
        importance=HIGH,
    ),
    int_(
        "replica.socket.timeout.ms",
        30_000,
        "How long a follower waits for a leader's answer; at least replica.fetch.wait.max.ms.",
        importance=HIGH,
    ),
    int_(
        "replication.quota.window.num",
        11,
        "How many samples are kept to measure replication traffic.",
        InRange(1),
        importance=LOW,
    ),
    int_(
        "replication.quota.window.size.seconds",
        1,
        "The length of one sample in measuring replication traffic.",
        InRange(1),
        importance=LOW,
    ),
    int_(
        "share.fetch.purgatory.purge.interval.requests",
        1000,
        "After how many completed requests the share-fetch purgatory is purged.",
    ),
    boolean(
        "unclean.leader.election.enable",
        False,
        "Broker default of the topic config of the same name.",
        importance=HIGH,
        update_mode=CLUSTER,
    ),
    long(
        "unclean.leader.election.interval.ms",
        300_000,
        "How often the controller looks for leaderless partitions that allow an unclean election.",
        InRange(1),
        internal=True,
    ),
)
