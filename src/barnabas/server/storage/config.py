"""Value: the topic configs that a log uses, with types. Names, defaults and meanings are Kafka's (`LogConfig`)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from barnabas.protocol.records.batch import TimestampType
from barnabas.protocol.records.compression import CompressionType, topic_codec
from barnabas.protocol.records.validate import Origin, ValidationRules

LONG_MAX: Final = (1 << 63) - 1
INT_MAX: Final = (1 << 31) - 1
MIRROR_STOPPED: Final = "stopped"
"""The value of `mirror.state` with which a mirror topic has become an ordinary one."""

OF_TOTAL: Final = -2
"""The value of local.retention.ms and local.retention.bytes that stands for the value of retention.*."""


class RetentionLimits(NamedTuple):
    """How old a segment may become, and how large the log; -1: there is no limit."""

    ms: int
    bytes: int


class LogConfig(Struct, frozen=True):
    """The effective configs of one topic. Immutable: `Log.update_config` replaces it.

    The name of each field is Kafka's name with underscores instead of dots.
    """

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    internal_segment_bytes: int | None
    """Replaces segment.bytes if set. For tests, because it may be less than the minimum of segment.bytes (KIP-1030)."""
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_decompressed_message_bytes: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    mirror_name: str | None
    mirror_state: str
    mirror_support_unclean_leader_election: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    tiered: bool = False
    """Whether closed segments are copied to an object store (KIP-405): remote.storage.enable of the topic and
    remote.log.storage.system.enable of the broker."""

    @property
    def copies(self) -> bool:
        """Whether closed segments are copied to the object store now. Without, copies that exist are still read."""
        return self.tiered and not self.remote_log_copy_disable

    @property
    def limits(self) -> RetentionLimits:
        """The limits that the local segments have. Those of a tiered log are shorter than the log's: retention.* then
        applies to the copies. -2, the default of local.retention.*, stands for the value of retention.*."""
        if not self.copies:
            return RetentionLimits(self.retention_ms, self.retention_bytes)
        local_ms, local_bytes = self.local_retention_ms, self.local_retention_bytes
        return RetentionLimits(
            self.retention_ms if local_ms == OF_TOTAL else local_ms,
            self.retention_bytes if local_bytes == OF_TOTAL else local_bytes,
        )

    @property
    def is_mirror(self) -> bool:
        """Whether a cluster link writes this log, and no one else: no client, no retention, no compaction."""
        return bool(self.mirror_name) and self.mirror_state != MIRROR_STOPPED

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def segment_size(self) -> int:
        """The maximum size of a segment in bytes."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    def validation_rules(self, topic: str, origin: Origin = Origin.CLIENT) -> ValidationRules:
        """The rules by which `protocol.records.validate` checks the batches of this topic. The partitions of a topic
        share them."""
        return _validation_rules(self, topic, origin)


@lru_cache(maxsize=1024)
def _validation_rules(config: LogConfig, topic: str, origin: Origin) -> ValidationRules:
    codec = topic_codec(config.compression_type)
    level = {
        CompressionType.GZIP: config.compression_gzip_level,
        CompressionType.LZ4: config.compression_lz4_level,
        CompressionType.ZSTD: config.compression_zstd_level,
    }.get(codec or CompressionType.NONE)
    stamped = config.message_timestamp_type == "LogAppendTime"
    return ValidationRules(
        topic=topic,
        compact=config.compact,
        max_message_bytes=config.max_message_bytes,
        compression_type=codec,
        compression_level=level,
        timestamp_type=TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        origin=origin,
        max_decompressed_message_bytes=config.max_decompressed_message_bytes,
    )
