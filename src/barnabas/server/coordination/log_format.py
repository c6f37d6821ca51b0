"""Codec: the framing of coordinator records, which is the same for all kinds of records.

    key     int16 kind    | the key's fields, version 0
    value   int16 version | the value's fields in that version        (a tombstone has no value)

The kind is the "apiKey" of Kafka's coordinator-key schemas (CoordinatorRecordSerde). Each topic numbers its own kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Packer
from typing import Final

from msgspec import Struct

from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.schema import Message, schema_of
from barnabas.server.coordination.operation import CoordinatorRecord
from barnabas.server.coordination.ports import LogRecord

_PREFIX: Final = Packer(">h")


class RecordKind(Struct, frozen=True):
    """One kind of record in a topic: its number, the schemas of its key and value, and the version that is written."""

    kind: int
    key: type[Message]
    value: type[Message]
    write_version: int = 0


class LogFormat:
    """Encodes and decodes the records of one coordinator topic."""

    def __init__(self, kinds: Sequence[RecordKind]) -> None:
        self._by_number = {kind.kind: kind for kind in kinds}
        self._by_key: dict[type[Message], RecordKind] = {}
        for kind in kinds:
            self._by_key.setdefault(kind.key, kind)

    def encode(self, record: CoordinatorRecord) -> LogRecord:
        kind = self._by_key[type(record.key)]
        key = _PREFIX.pack(kind.kind) + encode(record.key, 0)
        if record.value is None:
            return LogRecord(key, None)
        version = kind.write_version if record.version is None else record.version
        return LogRecord(key, _PREFIX.pack(version) + encode(record.value, version))

    def decode(self, record: LogRecord) -> CoordinatorRecord | None:
        """The decoded record; None if the kind of record or the version of the value is unknown. Raises WireError for
        malformed bytes."""
        (number,) = _PREFIX.unpack_from(record.key)
        kind = self._by_number.get(number)
        if kind is None:
            return None
        key = decode(kind.key, 0, record.key, _PREFIX.size)
        if record.value is None:
            return CoordinatorRecord(key, None)
        (version,) = _PREFIX.unpack_from(record.value)
        if version not in schema_of(kind.value).versions:
            return None
        return CoordinatorRecord(key, decode(kind.value, version, record.value, _PREFIX.size), version)
