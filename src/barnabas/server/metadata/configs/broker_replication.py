"""Table: broker configs of topics, replication and fetching.

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the descriptions are our own.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange
from barnabas.server.metadata.configs.rows import CLUSTER, HIGH, LONG_MAX, LOW, boolean, class_, int_, long, string

REPLICATION_KEYS: Final[tuple[ConfigKey, ...]] = (
    class_(
        "alter.config.policy.class.name",
        None,
        "The class of a policy that can reject changes of configs.",
        importance=LOW,
    ),
    boolean(
        "auto.create.topics.enable",
        True,
        "Whether a Metadata request for an unknown topic can create the topic.",
        importance=HIGH,
    ),
    boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether the controller moves leaderships back to preferred replicas automatically.",
        importance=HIGH,
    ),
    boolean(
        "controlled.shutdown.enable", True, "Whether a broker moves its leaderships to other brokers before it stops."
    ),
    class_("create.topic.policy.class.name", None, "The class of a policy that can reject new topics.", importance=LOW),
    int_("default.replication.factor", 1, "The replication factor of a new topic if the request has none."),
    int_(
        "delete.records.purgatory.purge.interval.requests",
        1,
        "After how many completed requests the DeleteRecords purgatory is purged.",
    ),
    boolean("delete.topic.enable", True, "Whether topics can be deleted.", importance=HIGH),
    int_(
        "fetch.max.bytes",
        57_671_680,
        "The maximum bytes in one fetch response, even if the client requests more.",
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
        "Whether an empty follower starts after the records in tiered storage instead of copying them.",
        update_mode=CLUSTER,
    ),
    long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "The maximum bytes per second that this broker fetches for throttled replicas. Dynamic only.",
        InRange(0),
        update_mode=CLUSTER,
        internal=True,
    ),
    long(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller checks whether to move leaderships back to preferred replicas.",
        InRange(1),
        importance=HIGH,
    ),
    long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "The maximum bytes per second that this broker sends for throttled replicas. Dynamic only.",
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
    int_("num.partitions", 1, "The number of partitions of a new topic if the request has none.", InRange(1)),
    int_(
        "num.replica.fetchers",
        1,
        "The number of fetchers for each source broker.",
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
        "The maximum bytes per second for moves of replicas between data directories. Dynamic only.",
        InRange(0),
        update_mode=CLUSTER,
        internal=True,
    ),
    int_("replica.fetch.backoff.ms", 1000, "The pause of a follower after a fetch of a partition failed.", InRange(0)),
    int_(
        "replica.fetch.max.bytes",
        1_048_576,
        "The maximum bytes of one partition in a follower's fetch; the first batch is complete even if it is larger.",
        InRange(0),
    ),
    int_(
        "replica.fetch.min.bytes",
        1,
        "The minimum bytes that the leader collects for a follower's fetch before replica.fetch.wait.max.ms.",
        importance=HIGH,
    ),
    int_(
        "replica.fetch.response.max.bytes",
        10_485_760,
        "The maximum bytes in the response to a follower's fetch; the first batch is complete even if it is larger.",
        InRange(0),
    ),
    int_(
        "replica.fetch.wait.max.ms",
        500,
        "The maximum wait of a follower's fetch for data at the leader; less than replica.lag.time.max.ms.",
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
        "The maximum time that a follower may lag behind the leader's end offset and remain an in-sync replica.",
        importance=HIGH,
    ),
    string(
        "replica.selector.class",
        None,
        "The class that selects the replica from which a consumer reads; if unset, the leader.",
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
        "How long a follower waits for the leader's response; at least replica.fetch.wait.max.ms.",
        importance=HIGH,
    ),
    int_(
        "replication.quota.window.num",
        11,
        "The number of samples kept to measure replication traffic.",
        InRange(1),
        importance=LOW,
    ),
    int_(
        "replication.quota.window.size.seconds",
        1,
        "The time span of each sample that measures replication traffic.",
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
        "How often the controller checks for partitions without a leader that allow an unclean election.",
        InRange(1),
        internal=True,
    ),
)
