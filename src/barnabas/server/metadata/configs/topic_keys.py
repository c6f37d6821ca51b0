"""Table: topic configs.

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the sentences are ours.
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
        "What happens to old segments: delete, compact (keep the newest record of each key), both, or nothing.",
        ListOf(("compact", "delete")),
        synonyms=("log.cleanup.policy",),
    ),
    int_(
        "compression.gzip.level",
        -1,
        "The effort spent when the broker compresses with gzip: 1 (fast) to 9 (small), or -1 for gzip's own default.",
        RangeOrSpecial(-1, 1, 9),
        synonyms=("compression.gzip.level",),
    ),
    int_(
        "compression.lz4.level",
        9,
        "The effort spent when the broker compresses with lz4: 1 (fast) to 17 (small).",
        InRange(1, 17),
        synonyms=("compression.lz4.level",),
    ),
    string(
        "compression.type",
        "producer",
        'The codec batches are stored in; "producer" keeps whatever the producer chose.',
        OneOf(TOPIC_COMPRESSION_TYPES),
        synonyms=("compression.type",),
    ),
    int_(
        "compression.zstd.level",
        3,
        "The effort spent when the broker compresses with zstd: negative is faster, 22 is smallest.",
        InRange(-131_072, 22),
        synonyms=("compression.zstd.level",),
    ),
    long(
        "delete.retention.ms",
        86_400_000,
        "How long tombstones and transaction markers stay readable in a compacted topic after they have become clean.",
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
        "Force data to disk after this many records; the default leaves it to the operating system.",
        InRange(1),
        synonyms=("log.flush.interval.messages",),
    ),
    long(
        "flush.ms",
        LONG_MAX,
        "Force data to disk when it has waited this long; the default leaves it to the operating system.",
        InRange(0),
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    list_(
        "follower.replication.throttled.replicas",
        (),
        "Replicas whose fetching is throttled, as partition:broker pairs, or * for all.",
        ThrottledReplicas(),
    ),
    int_(
        "index.interval.bytes",
        4096,
        "How many bytes of log lie between two entries of the offset index.",
        InRange(0),
        synonyms=("log.index.interval.bytes",),
    ),
    int_(
        "internal.segment.bytes",
        None,
        "Overrides segment.bytes without its lower bound; for tests with tiny segments only.",
        internal=True,
    ),
    list_(
        "leader.replication.throttled.replicas",
        (),
        "Replicas whose serving to followers is throttled, as partition:broker pairs, or * for all.",
        ThrottledReplicas(),
    ),
    long(
        "local.retention.bytes",
        -2,
        "With tiered storage, how many bytes of a partition stay on local disk; -2 follows retention.bytes.",
        InRange(-2),
        synonyms=("log.local.retention.bytes",),
    ),
    long(
        "local.retention.ms",
        -2,
        "With tiered storage, how long segments stay on local disk; -2 follows retention.ms.",
        InRange(-2),
        synonyms=("log.local.retention.ms",),
    ),
    long(
        "max.compaction.lag.ms",
        LONG_MAX,
        "The longest a record may stay uncompacted, which forces the active segment to roll and be cleaned.",
        InRange(1),
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    ),
    int_(
        "max.message.bytes",
        1_048_588,
        "The largest batch accepted, measured after compression.",
        InRange(0),
        synonyms=("message.max.bytes",),
    ),
    long(
        "message.timestamp.after.max.ms",
        3_600_000,
        "How far a record's CreateTime may lie in the broker's future before it is refused.",
        InRange(0),
        synonyms=("log.message.timestamp.after.max.ms",),
    ),
    long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a record's CreateTime may lie in the broker's past before it is refused.",
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
        "The share of a log that must be uncompacted before the cleaner works on it.",
        InRange(0, 1),
        synonyms=("log.cleaner.min.cleanable.ratio",),
    ),
    long(
        "min.compaction.lag.ms",
        0,
        "How long a record is safe from compaction.",
        InRange(0),
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    ),
    int_(
        "min.insync.replicas",
        1,
        "How many replicas must be in sync for a write with acks=all to be accepted.",
        InRange(1),
        synonyms=("min.insync.replicas",),
    ),
    boolean(
        "preallocate",
        False,
        "Whether a new segment's file is allocated at full size at once.",
        synonyms=("log.preallocate",),
    ),
    boolean(
        "remote.log.copy.disable",
        False,
        "Stops copying segments of a tiered topic to remote storage while what is there stays readable.",
    ),
    boolean(
        "remote.log.delete.on.disable",
        False,
        "Whether turning off tiered storage for the topic deletes what it keeps remotely.",
    ),
    boolean("remote.storage.enable", False, "Whether the topic's older segments move to tiered storage."),
    long(
        "retention.bytes",
        -1,
        "The most bytes a partition keeps before its oldest segments are deleted; -1 is without limit.",
        synonyms=("log.retention.bytes",),
    ),
    long(
        "retention.ms",
        604_800_000,
        "How long records are kept before their segment is deleted; -1 is for ever.",
        InRange(-1),
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    int_(
        "segment.bytes",
        1_073_741_824,
        "The size at which a segment is closed and a new one begun.",
        InRange(1_048_576),
        synonyms=("log.segment.bytes",),
    ),
    int_(
        "segment.index.bytes",
        10_485_760,
        "The largest size of a segment's offset index, and the size it is allocated at.",
        InRange(4),
        synonyms=("log.index.size.max.bytes",),
    ),
    long(
        "segment.jitter.ms",
        0,
        "The most that is randomly taken off segment.ms, so that segments do not all roll together.",
        InRange(0),
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    long(
        "segment.ms",
        604_800_000,
        "The age at which a segment is closed even when it is not full.",
        InRange(1),
        synonyms=("log.roll.ms", "log.roll.hours"),
    ),
    boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may become leader as a last resort, at the price of losing records.",
        synonyms=("unclean.leader.election.enable",),
    ),
)
