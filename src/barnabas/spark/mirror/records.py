"""Codec: the records of MirrorMaker's internal topics <-> values. Numbers are big-endian.

    text        int16 length, UTF-8

    topic            key                                      value
    heartbeats       text source alias, text target alias     int16 0, int64 timestamp
    checkpoints      text group, text topic, int32 partition  int16 0, int64 upstream, int64 downstream, text metadata
    offset syncs     text topic, int32 partition              int64 upstream, int64 downstream
    mm2-offsets      JSON ["MirrorSourceConnector", {...}]     JSON {"offset": N}

The topic of a checkpoint is that of the target cluster, the topic of an offset sync that of the source cluster. The
bytes are those of `Heartbeat`, `Checkpoint`, `OffsetSync` in Kafka's `connect/mirror`, and of its `JsonConverter`.
Decoding raises MirrorRecordError.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Final

from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.errors import MirrorRecordError

SOURCE_CONNECTOR: Final = "MirrorSourceConnector"
"""The name of the connector that copies records; part of the keys of `mm2-offsets`."""
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_VERSION_LONG: Final = struct.Struct(">hq")
_TWO_LONGS: Final = struct.Struct(">qq")
_VERSION: Final = 0
_TEXT_MAX: Final = 0x7FFF


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life that the pair source->target writes into the target cluster."""

    source_alias: str
    target_alias: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The committed offset of a group in the source cluster, and what it is in the target cluster."""

    group: str
    partition: TopicPartition
    """In the target cluster."""
    upstream: int
    downstream: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """The record at `upstream` of a source partition is the record at `downstream` of its copy."""

    partition: TopicPartition
    """In the source cluster."""
    upstream: int
    downstream: int


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The last upstream offset that was copied of a source partition; None after its position was removed."""

    source_alias: str
    partition: TopicPartition
    offset: int | None
    leader_epoch: int | None = None
    """That of the source partition when the copying up to the offset was planned; MirrorMaker has none, and ignores
    it."""


def encode_heartbeat(heartbeat: Heartbeat) -> tuple[bytes, bytes]:
    """The key and the value."""
    return (
        _text(heartbeat.source_alias) + _text(heartbeat.target_alias),
        _VERSION_LONG.pack(_VERSION, heartbeat.timestamp_ms),
    )


def decode_heartbeat(key: bytes, value: bytes) -> Heartbeat:
    keys, values = _Reader("heartbeat", key), _Reader("heartbeat", value)
    source, target = keys.read_text(), keys.read_text()
    keys.check_end()
    values.check_version()
    return Heartbeat(source, target, values.read_long())


def encode_checkpoint(checkpoint: Checkpoint) -> tuple[bytes, bytes]:
    """The key and the value."""
    return (
        _text(checkpoint.group) + _text(checkpoint.partition.topic) + _INT.pack(checkpoint.partition.partition),
        _SHORT.pack(_VERSION)
        + _TWO_LONGS.pack(checkpoint.upstream, checkpoint.downstream)
        + _text(checkpoint.metadata),
    )


def decode_checkpoint(key: bytes, value: bytes) -> Checkpoint:
    keys, values = _Reader("checkpoint", key), _Reader("checkpoint", value)
    group, topic, partition = keys.read_text(), keys.read_text(), keys.read_int()
    keys.check_end()
    values.check_version()
    return Checkpoint(
        group, TopicPartition(topic, partition), values.read_long(), values.read_long(), values.read_text()
    )


def encode_offset_sync(sync: OffsetSync) -> tuple[bytes, bytes]:
    """The key and the value."""
    key = _text(sync.partition.topic) + _INT.pack(sync.partition.partition)
    return key, _TWO_LONGS.pack(sync.upstream, sync.downstream)


def decode_offset_sync(key: bytes, value: bytes) -> OffsetSync:
    keys, values = _Reader("offset sync", key), _Reader("offset sync", value)
    partition = TopicPartition(keys.read_text(), keys.read_int())
    keys.check_end()
    return OffsetSync(partition, values.read_long(), values.read_long())


def encode_source_offset(position: SourceOffset) -> tuple[bytes, bytes | None]:
    """The key and the value.

    The names in the key have the order in which Kafka's connector writes them, so that compaction keeps one record.
    """
    where = {
        "cluster": position.source_alias,
        "partition": position.partition.partition,
        "topic": position.partition.topic,
    }
    key = _json([SOURCE_CONNECTOR, where])
    epoch = {} if position.leader_epoch is None else {"leader_epoch": position.leader_epoch}
    return key, None if position.offset is None else _json({"offset": position.offset, **epoch})


def decode_source_offset(key: bytes, value: bytes | None) -> SourceOffset | None:
    """None for a record of another connector, which is in the same topic."""
    try:
        connector, where = json.loads(key)
        if connector != SOURCE_CONNECTOR:
            return None
        partition = TopicPartition(str(where["topic"]), int(where["partition"]))
        found = None if value is None else json.loads(value)
        offset, epoch = (None, None) if found is None else (int(found["offset"]), found.get("leader_epoch"))
        return SourceOffset(str(where["cluster"]), partition, offset, epoch)
    except (ValueError, TypeError, KeyError) as error:
        raise MirrorRecordError(f"a record of the offsets topic has the key {key!r}, which is not valid") from error


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > _TEXT_MAX:
        raise MirrorRecordError(f"a text of {len(data)} bytes is longer than the {_TEXT_MAX} of Kafka's records")
    return _SHORT.pack(len(data)) + data


class _Reader:
    """Reads the fields of a key or value one after the other."""

    def __init__(self, kind: str, data: bytes) -> None:
        self._kind = kind
        self._data = data
        self._at = 0

    def _take(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length]
        if length < 0 or len(found) < length:
            raise MirrorRecordError(f"a {self._kind} record is cut short: {self._data!r}")
        self._at += length
        return found

    def read_int(self) -> int:
        (number,) = _INT.unpack(self._take(4))
        return int(number)

    def read_long(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def read_text(self) -> str:
        (length,) = _SHORT.unpack(self._take(2))
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise MirrorRecordError(f"a {self._kind} record has a text that is not UTF-8: {self._data!r}") from error

    def check_version(self) -> None:
        (version,) = _SHORT.unpack(self._take(2))
        if version != _VERSION:
            raise MirrorRecordError(f"a {self._kind} record has version {version}; only version {_VERSION} is known")

    def check_end(self) -> None:
        if self._at != len(self._data):
            raise MirrorRecordError(f"the key of a {self._kind} record has {len(self._data) - self._at} extra bytes")
