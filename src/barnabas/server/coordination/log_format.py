"""Codec: how coordinators frame their records, whatever the records are.

    key     int16 kind    | the key's fields, version 0
    value   int16 version | the value's fields in that version        (no value: a tombstone)

The kind is the "apiKey" of Kafka's coordinator-key schemas (CoordinatorRecordSerde); kinds are numbered per topic.
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
    """One line of a topic's table of records: its number, and the schemas of its key and value."""

    kind: int
    key: type[Message]
    value: type[Message]
    write_version: int = 0


class LogFormat:
    """The records of one coordinator topic."""

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
        """None for a kind this table does not have, or a value of a version newer than this code knows.

        Raises WireError for bytes that are not what they claim to be.
        """
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
