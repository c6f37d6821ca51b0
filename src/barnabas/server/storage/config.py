"""Value: the topic configs that a log uses, with types. Names, defaults and meanings are Kafka's (`LogConfig`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import TimestampType
from barnabas.protocol.records.compression import Codec, topic_codec
from barnabas.protocol.records.validate import Origin, ValidationRules

LONG_MAX: Final = (1 << 63) - 1
INT_MAX: Final = (1 << 31) - 1


class LogConfig(Struct, frozen=True):
    """The effective configs of one topic. Immutable: `Log.update_config` replaces it.

    The name of each field is Kafka's name with underscores instead of dots.
    """

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    internal_segment_bytes: int | None = None
    """Overrides segment.bytes, below its minimum of 1 MiB. For tests (KIP-1030)."""
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @classmethod
    def from_config(cls, values: Mapping[str, Any]) -> LogConfig:
        """Build a config from Kafka's names (`segment.bytes`) and values, typed or as text. Other names are ignored.

        Raises KafkaError(INVALID_CONFIG) for text that is not of the type, and for an unknown compression.type.
        """
        chosen: dict[str, Any] = {}
        for name in _PARSERS.keys() & values.keys():
            value = values[name]
            if value is None:
                continue
            try:
                chosen[name.replace(".", "_")] = _PARSERS[name](value)
            except (TypeError, ValueError) as e:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={value!r} is not a valid value: {e}") from None
        config = cls(**chosen)
        try:
            topic_codec(config.compression_type)
        except ValueError as e:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"compression.type: {e}") from None
        return config

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
        """The rules by which `protocol.records.validate` checks the batches of this topic."""
        codec = topic_codec(self.compression_type)
        level = {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }.get(codec or Codec.NONE)
        stamped = self.message_timestamp_type == "LogAppendTime"
        return ValidationRules(
            topic=topic,
            compact=self.compact,
            max_message_bytes=self.max_message_bytes,
            compression_type=codec,
            compression_level=level,
            timestamp_type=TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME,
            timestamp_before_max_ms=self.message_timestamp_before_max_ms,
            timestamp_after_max_ms=self.message_timestamp_after_max_ms,
            origin=origin,
        )


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"


def _words(value: Any) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else list(value)
    return tuple(word.strip() for word in words if word.strip())


def _parser(annotation: str) -> Any:
    if annotation.startswith("tuple"):
        return _words
    return {"bool": _bool, "float": float, "str": str}.get(annotation, int)


_PARSERS: Final[Mapping[str, Any]] = {
    name.replace("_", "."): _parser(str(annotation)) for name, annotation in LogConfig.__annotations__.items()
}
