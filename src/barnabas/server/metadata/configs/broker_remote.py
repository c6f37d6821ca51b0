"""Table: broker configs of tiered storage (KIP-405).

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the descriptions are our own.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange, NonEmpty
from barnabas.server.metadata.configs.rows import CLUSTER, LONG_MAX, LOW, boolean, double, int_, long, string

REMOTE_KEYS: Final[tuple[ConfigKey, ...]] = (
    int_(
        "remote.fetch.max.wait.ms",
        500,
        "How long a fetch waits for data from tiered storage.",
        InRange(1),
        update_mode=CLUSTER,
    ),
    long(
        "remote.list.offsets.request.timeout.ms",
        30_000,
        "How long a lookup of offsets waits for tiered storage.",
        InRange(1),
        update_mode=CLUSTER,
    ),
    long(
        "remote.log.index.file.cache.total.size.bytes",
        1_073_741_824,
        "How many bytes of index files of remote segments are kept on local disk.",
        InRange(1),
        importance=LOW,
        update_mode=CLUSTER,
    ),
    long(
        "remote.log.index.file.cache.ttl.ms",
        900_000,
        "How long an unused index file of a remote segment stays on local disk.",
        InRange(-1),
        importance=LOW,
        internal=True,
    ),
    int_(
        "remote.log.manager.copier.thread.pool.size",
        10,
        "How many segments are copied to tiered storage at the same time.",
        InRange(1),
        update_mode=CLUSTER,
    ),
    long(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG_MAX,
        "The maximum bytes per second copied to tiered storage.",
        InRange(1),
        update_mode=CLUSTER,
    ),
    int_(
        "remote.log.manager.copy.quota.window.num",
        11,
        "The number of samples kept to measure copying to tiered storage.",
        InRange(1),
    ),
    int_(
        "remote.log.manager.copy.quota.window.size.seconds",
        1,
        "The time span of each sample that measures copying to tiered storage.",
        InRange(1),
    ),
    int_(
        "remote.log.manager.expiration.thread.pool.size",
        10,
        "How many partitions expire remote segments at the same time.",
        InRange(1),
        update_mode=CLUSTER,
    ),
    long(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG_MAX,
        "The maximum bytes per second read from tiered storage.",
        InRange(1),
        update_mode=CLUSTER,
    ),
    int_(
        "remote.log.manager.fetch.quota.window.num",
        11,
        "The number of samples kept to measure reading from tiered storage.",
        InRange(1),
    ),
    int_(
        "remote.log.manager.fetch.quota.window.size.seconds",
        1,
        "The time span of each sample that measures reading from tiered storage.",
        InRange(1),
    ),
    int_(
        "remote.log.manager.follower.thread.pool.size",
        2,
        "How many followers' tiered-storage tasks run at the same time.",
        InRange(1),
        update_mode=CLUSTER,
    ),
    long(
        "remote.log.manager.task.interval.ms",
        30_000,
        "How often each partition's tiered-storage tasks run.",
        InRange(1),
        importance=LOW,
    ),
    long(
        "remote.log.manager.task.retry.backoff.max.ms",
        30_000,
        "The maximum pause before a failed tiered-storage task is retried.",
        InRange(1),
        importance=LOW,
        internal=True,
    ),
    long(
        "remote.log.manager.task.retry.backoff.ms",
        500,
        "The first pause before a failed tiered-storage task is retried.",
        InRange(1),
        importance=LOW,
        internal=True,
    ),
    double(
        "remote.log.manager.task.retry.jitter",
        0.2,
        "The random variation of the pauses before a failed task is retried.",
        InRange(0, 0.5),
        importance=LOW,
        internal=True,
    ),
    int_(
        "remote.log.manager.thread.pool.size",
        2,
        "How many of the remaining tiered-storage tasks run at the same time.",
        InRange(1),
    ),
    int_(
        "remote.log.metadata.custom.metadata.max.bytes",
        128,
        "The maximum bytes of custom metadata that a storage plug-in may attach to a remote segment.",
        InRange(0),
        importance=LOW,
    ),
    string(
        "remote.log.metadata.manager.class.name",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "The class that stores the metadata of remote segments.",
        NonEmpty(),
    ),
    string(
        "remote.log.metadata.manager.class.path",
        None,
        "The class path of the class that stores the metadata of remote segments.",
    ),
    string(
        "remote.log.metadata.manager.impl.prefix",
        "rlmm.config.",
        "The prefix of the configs that are passed to the class that stores the metadata of remote segments.",
        NonEmpty(),
    ),
    string(
        "remote.log.metadata.manager.listener.name",
        None,
        "The listener through which the metadata of remote segments is read and written.",
        NonEmpty(),
    ),
    int_(
        "remote.log.reader.max.pending.tasks", 100, "The maximum number of queued reads of tiered storage.", InRange(1)
    ),
    int_(
        "remote.log.reader.threads",
        10,
        "How many reads of tiered storage run at the same time.",
        InRange(1),
        update_mode=CLUSTER,
    ),
    string("remote.log.storage.manager.class.name", None, "The class that stores remote segments.", NonEmpty()),
    string("remote.log.storage.manager.class.path", None, "The class path of the class that stores remote segments."),
    string(
        "remote.log.storage.manager.impl.prefix",
        "rsm.config.",
        "The prefix of the configs that are passed to the class that stores remote segments.",
        NonEmpty(),
    ),
    boolean("remote.log.storage.system.enable", False, "Whether tiered storage is enabled on the broker."),
)
