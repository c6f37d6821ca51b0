"""Table: topic configs.

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the descriptions are our own. The configs
`mirror.*` are of cluster links (KIP-1279), which Kafka 4.3 does not have.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange, ListOf, OneOf, RangeOrSpecial
from barnabas.protocol.records.compression import TOPIC_COMPRESSION_TYPES
from barnabas.server.metadata.configs.rows import (
    LONG_MAX,
    ThrottledReplicas,
    boolean,
    double,
    int_,
    list_,
    long,
    string,
)

TOPIC_KEYS: Final[tuple[ConfigKey, ...]] = (
    list_(
        "cleanup.policy",
        ("delete",),
        "The cleanup of old segments: delete, compact (keep the newest record of each key), both, or empty for none.",
        ListOf(("compact", "delete")),
        synonyms=("log.cleanup.policy",),
    ),
    int_(
        "compression.gzip.level",
        -1,
        "The compression level of gzip: 1 (fast) to 9 (small), or -1 for gzip's own default.",
        RangeOrSpecial(-1, 1, 9),
        synonyms=("compression.gzip.level",),
    ),
    int_(
        "compression.lz4.level",
        9,
        "The compression level of lz4: 1 (fast) to 17 (small).",
        InRange(1, 17),
        synonyms=("compression.lz4.level",),
    ),
    string(
        "compression.type",
        "producer",
        'The codec of stored batches; "producer" keeps the codec that the producer used.',
        OneOf(TOPIC_COMPRESSION_TYPES),
        synonyms=("compression.type",),
    ),
    int_(
        "compression.zstd.level",
        3,
        "The compression level of zstd: negative is faster, 22 is smallest.",
        InRange(-131_072, 22),
        synonyms=("compression.zstd.level",),
    ),
    long(
        "delete.retention.ms",
        86_400_000,
        "How long tombstones and transaction markers are kept in a compacted topic after they are cleaned.",
        InRange(0),
        synonyms=("log.cleaner.delete.retention.ms",),
    ),
    long(
        "file.delete.delay.ms",
        60_000,
        "How long a deleted segment's files stay on disk under the .deleted suffix.",
        InRange(0),
        synonyms=("log.segment.delete.delay.ms",),
    ),
    long(
        "flush.messages",
        LONG_MAX,
        "The number of records after which data is flushed to disk; by default the operating system flushes.",
        InRange(1),
        synonyms=("log.flush.interval.messages",),
    ),
    long(
        "flush.ms",
        LONG_MAX,
        "The time after which data is flushed to disk; by default the operating system flushes.",
        InRange(0),
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    list_(
        "follower.replication.throttled.replicas",
        (),
        "The replicas whose fetching as followers is throttled, as partition:broker pairs, or * for all.",
        ThrottledReplicas(),
    ),
    int_(
        "index.interval.bytes",
        4096,
        "The number of bytes of the log between two entries of the offset index.",
        InRange(0),
        synonyms=("log.index.interval.bytes",),
    ),
    int_(
        "internal.segment.bytes",
        None,
        "Overrides segment.bytes, without its lower bound. Only for tests.",
        internal=True,
    ),
    list_(
        "leader.replication.throttled.replicas",
        (),
        "The replicas whose responses to followers are throttled, as partition:broker pairs, or * for all.",
        ThrottledReplicas(),
    ),
    long(
        "local.retention.bytes",
        -2,
        "With tiered storage, the maximum bytes of a partition that stay on local disk; -2 means retention.bytes.",
        InRange(-2),
        synonyms=("log.local.retention.bytes",),
    ),
    long(
        "local.retention.ms",
        -2,
        "With tiered storage, how long segments stay on local disk; -2 means retention.ms.",
        InRange(-2),
        synonyms=("log.local.retention.ms",),
    ),
    long(
        "max.compaction.lag.ms",
        LONG_MAX,
        "The maximum time that a record stays uncompacted; then the active segment is rolled and cleaned.",
        InRange(1),
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    ),
    int_(
        "max.decompressed.message.bytes",
        2_147_483_639,
        "The maximum size of a record of a compressed batch, after decompression.",
        InRange(1),
        synonyms=("max.decompressed.message.bytes",),
        internal=True,
    ),
    int_(
        "max.message.bytes",
        1_048_588,
        "The maximum size of a record batch, after compression.",
        InRange(0),
        synonyms=("message.max.bytes",),
    ),
    long(
        "message.timestamp.after.max.ms",
        3_600_000,
        "The maximum time by which a record's CreateTime may be later than the broker's clock.",
        InRange(0),
        synonyms=("log.message.timestamp.after.max.ms",),
    ),
    long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "The maximum time by which a record's CreateTime may be earlier than the broker's clock.",
        InRange(0),
        synonyms=("log.message.timestamp.before.max.ms",),
    ),
    string(
        "message.timestamp.type",
        "CreateTime",
        "Whether timestamps are the producer's (CreateTime) or the broker's clock at append (LogAppendTime).",
        OneOf(("CreateTime", "LogAppendTime")),
        synonyms=("log.message.timestamp.type",),
    ),
    double(
        "min.cleanable.dirty.ratio",
        0.5,
        "The minimum ratio of uncompacted to total bytes of a log at which the log is cleaned.",
        InRange(0, 1),
        synonyms=("log.cleaner.min.cleanable.ratio",),
    ),
    long(
        "min.compaction.lag.ms",
        0,
        "The minimum time that a record stays uncompacted.",
        InRange(0),
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    ),
    int_(
        "min.insync.replicas",
        1,
        "The minimum number of in-sync replicas for a write with acks=all to be accepted.",
        InRange(1),
        synonyms=("min.insync.replicas",),
    ),
    string(
        "mirror.name",
        None,
        "The cluster link of which the topic is a mirror. Set by the link's coordinator.",
        internal=True,
    ),
    string(
        "mirror.state",
        "active",
        "What the cluster link does with the topic: active, paused, stopping, or stopped (the topic takes writes).",
        OneOf(("active", "paused", "stopping", "stopped")),
        internal=True,
    ),
    boolean(
        "mirror.support.unclean.leader.election",
        False,
        "Whether a mirror cuts off records that the source has lost by an unclean leader election, or fails.",
        internal=True,
    ),
    boolean(
        "preallocate",
        False,
        "Whether the file of a new segment is allocated at its full size.",
        synonyms=("log.preallocate",),
    ),
    boolean(
        "remote.log.copy.disable",
        False,
        "Whether the topic stops copying segments to remote storage; copied segments stay readable.",
    ),
    boolean(
        "remote.log.delete.on.disable",
        False,
        "Whether the remote segments are deleted when tiered storage is disabled for the topic.",
    ),
    boolean("remote.storage.enable", False, "Whether the topic uses tiered storage for older segments."),
    long(
        "retention.bytes",
        -1,
        "The maximum size of a partition, above which its oldest segments are deleted; -1 means unlimited.",
        synonyms=("log.retention.bytes",),
    ),
    long(
        "retention.ms",
        604_800_000,
        "How long records are kept before their segment is deleted; -1 means unlimited.",
        InRange(-1),
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    int_(
        "segment.bytes",
        1_073_741_824,
        "The size at which the active segment is rolled.",
        InRange(1_048_576),
        stored=InRange(
            14
        ),  # Kafka 3.9's; its followers refuse a fetch response that is larger than their segment.bytes
        synonyms=("log.segment.bytes",),
    ),
    int_(
        "segment.index.bytes",
        10_485_760,
        "The size at which a segment's offset index is allocated, and its maximum.",
        InRange(4),
        synonyms=("log.index.size.max.bytes",),
    ),
    long(
        "segment.jitter.ms",
        0,
        "The maximum random time that is subtracted from segment.ms, so that segments do not all roll at once.",
        InRange(0),
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    long(
        "segment.ms",
        604_800_000,
        "The age at which the active segment is rolled, even if it is not full.",
        InRange(1),
        synonyms=("log.roll.ms", "log.roll.hours"),
    ),
    boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may become leader as a last resort, which can lose records.",
        synonyms=("unclean.leader.election.enable",),
    ),
)
