"""Codec: control records, which brokers and Raft leaders write between data records.

A control batch has attribute bit 5 set and holds (almost always) one record. Its key is

    version int16 (0) | type int16

and its value one of the messages below. They are encoded by hand, because this package must not import `wire`. All but
EndTxn are "flexible": compact lengths (length + 1, unsigned varint) and a count of tagged fields (0) at the end of each
struct.

    ABORT, COMMIT     version int16 (0) | coordinatorEpoch int32                            (EndTxnMarker)
    LEADER_CHANGE     version int16 | leaderId int32 | voters [voterId int32, (v1) directoryId uuid] | grantingVoters
    SNAPSHOT_HEADER   version int16 | lastContainedLogTimestamp int64
    SNAPSHOT_FOOTER   version int16
    KRAFT_VERSION     version int16 | kraftVersion int16
    KRAFT_VOTERS      version int16 | voters [id int32, directoryId uuid, endpoints [name, host, port uint16],
                      minSupportedVersion int16, maxSupportedVersion int16]
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, TypeAlias, assert_never
from uuid import UUID

from msgspec import Struct, field

from barnabas.core.ids import NO_LEADER_EPOCH
from barnabas.protocol.records.batch import Record
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.errors import CorruptBatchError

NO_DIRECTORY: Final = UUID(int=0)

_KEY: Final = struct.Struct(">hh")
_END_TXN: Final = struct.Struct(">hi")
_I16: Final = struct.Struct(">h")
_U16: Final = struct.Struct(">H")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_NO_TAGS: Final = b"\x00"


class ControlType(IntEnum):
    """Kafka's ControlRecordType."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxn(Struct, frozen=True):
    """The end of one producer's transaction in this partition."""

    commit: bool
    coordinator_epoch: int


class LeaderChange(Struct, frozen=True):
    """The first record of a Raft leader's epoch. Voters are (voter id, directory id) pairs."""

    leader_id: int
    voters: tuple[tuple[int, UUID], ...] = ()
    granting_voters: tuple[tuple[int, UUID], ...] = ()
    version: int = 0
    """The message's version. Version 0 has no directory ids; Kafka 4.3 writes it (LEADER_CHANGE_CURRENT_VERSION)."""


class SnapshotHeader(Struct, frozen=True):
    """The first record of a snapshot."""

    last_contained_log_timestamp: int


class SnapshotFooter(Struct, frozen=True):
    """The last record of a snapshot; without it the snapshot is incomplete."""


class KRaftVersion(Struct, frozen=True):
    """The new kraft.version (KIP-853: with 1 the voters can change)."""

    kraft_version: int


class Voter(Struct, frozen=True):
    """One member of the quorum; endpoints are (listener name, host, port)."""

    voter_id: int
    directory_id: UUID
    endpoints: tuple[tuple[str, str, int], ...] = ()
    min_supported_version: int = 0
    max_supported_version: int = 0


class KRaftVoters(Struct, frozen=True):
    """The new set of voters."""

    voters: tuple[Voter, ...] = field(default=())


ControlValue: TypeAlias = EndTxn | LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters


def build_end_txn_marker(
    marker: EndTxn,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The batch that ends a transaction: transactional, control, without a sequence (withEndTransactionMarker)."""
    return build_batch(
        [control_record(marker, timestamp)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def build_control_batch(
    value: ControlValue, *, timestamp: int, base_offset: int = 0, leader_epoch: int = NO_LEADER_EPOCH
) -> bytes:
    """A control batch without a producer, for the records of the Raft log and of its snapshots."""
    return build_batch(
        [control_record(value, timestamp)], base_offset=base_offset, control=True, leader_epoch=leader_epoch
    )


def control_record(value: ControlValue, timestamp: int) -> SimpleRecord:
    """The control record with `value`."""
    return SimpleRecord(_KEY.pack(0, control_type(value)), _encode(value), timestamp)


def control_type(value: ControlValue) -> ControlType:
    match value:
        case EndTxn(commit=commit):
            return ControlType.COMMIT if commit else ControlType.ABORT
        case LeaderChange():
            return ControlType.LEADER_CHANGE
        case SnapshotHeader():
            return ControlType.SNAPSHOT_HEADER
        case SnapshotFooter():
            return ControlType.SNAPSHOT_FOOTER
        case KRaftVersion():
            return ControlType.KRAFT_VERSION
        case KRaftVoters():
            return ControlType.KRAFT_VOTERS
        case _:
            assert_never(value)


def parse_control(record: Record) -> ControlValue | None:
    """Decode a control record. Returns None for an unknown type, which readers must skip.

    Raises CorruptBatchError if the key or value is too short.
    """
    key, value = record.key, record.value
    if key is None or len(key) < _KEY.size or value is None:
        raise CorruptBatchError(f"the control record at offset {record.offset} has no type or no value")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatchError(f"the control record at offset {record.offset} has key version {version}")
    try:
        kind = ControlType(number)
    except ValueError:
        return None
    try:
        return _decode(kind, value)
    except (struct.error, IndexError, ValueError) as problem:
        raise CorruptBatchError(f"the {kind.name} record at offset {record.offset} is damaged: {problem}") from problem


def _encode(value: ControlValue) -> bytes:
    match value:
        case EndTxn(coordinator_epoch=epoch):
            return _END_TXN.pack(0, epoch)
        case LeaderChange(leader_id=leader, voters=voters, granting_voters=granting, version=version):
            head = _I16.pack(version) + _I32.pack(leader)
            return head + _encode_voter_ids(voters, version) + _encode_voter_ids(granting, version) + _NO_TAGS
        case SnapshotHeader(last_contained_log_timestamp=timestamp):
            return _I16.pack(0) + _I64.pack(timestamp) + _NO_TAGS
        case SnapshotFooter():
            return _I16.pack(0) + _NO_TAGS
        case KRaftVersion(kraft_version=kraft_version):
            return _I16.pack(0) + _I16.pack(kraft_version) + _NO_TAGS
        case KRaftVoters(voters=quorum):
            return _I16.pack(0) + _compact(len(quorum)) + b"".join(map(_encode_voter, quorum)) + _NO_TAGS
        case _:
            assert_never(value)


def _compact(length: int) -> bytes:
    """A compact length: the length plus one, as an unsigned varint."""
    raw = length + 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _encode_text(text: str) -> bytes:
    raw = text.encode()
    return _compact(len(raw)) + raw


def _encode_voter_ids(voters: tuple[tuple[int, UUID], ...], version: int) -> bytes:
    parts = [_compact(len(voters))]
    for voter_id, directory in voters:
        parts.append(_I32.pack(voter_id) + (directory.bytes if version >= 1 else b"") + _NO_TAGS)
    return b"".join(parts)


def _encode_voter(voter: Voter) -> bytes:
    parts = [_I32.pack(voter.voter_id), voter.directory_id.bytes, _compact(len(voter.endpoints))]
    for name, host, port in voter.endpoints:
        parts += (_encode_text(name), _encode_text(host), _U16.pack(port), _NO_TAGS)
    parts += (_I16.pack(voter.min_supported_version), _I16.pack(voter.max_supported_version), _NO_TAGS, _NO_TAGS)
    return b"".join(parts)


def _decode(kind: ControlType, value: bytes) -> ControlValue:
    if kind is ControlType.ABORT or kind is ControlType.COMMIT:
        _, epoch = _END_TXN.unpack_from(value)
        return EndTxn(kind is ControlType.COMMIT, epoch)
    reader = _Reader(value)
    version = reader.number(_I16)
    match kind:
        case ControlType.LEADER_CHANGE:
            leader = reader.number(_I32)
            voters = reader.voter_ids(version)
            return LeaderChange(leader, voters, reader.voter_ids(version), version)
        case ControlType.SNAPSHOT_HEADER:
            return SnapshotHeader(reader.number(_I64))
        case ControlType.SNAPSHOT_FOOTER:
            return SnapshotFooter()
        case ControlType.KRAFT_VERSION:
            return KRaftVersion(reader.number(_I16))
        case ControlType.KRAFT_VOTERS:
            return KRaftVoters(tuple(reader.voter() for _ in range(reader.length())))
        case _:
            assert_never(kind)


class _Reader:
    """A cursor over a flexible message. Raises ValueError, IndexError or struct.error at its end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: struct.Struct) -> int:
        value: int = form.unpack_from(self._data, self._at)[0]
        self._at += form.size
        return value

    def _unsigned(self) -> int:
        value = 0
        for shift in (0, 7, 14, 21, 28):
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a varint is longer than five bytes")

    def length(self) -> int:
        """Read a compact length, at most the number of remaining bytes."""
        length = self._unsigned() - 1
        if not 0 <= length <= len(self._data) - self._at:
            raise ValueError(f"a length of {length} does not fit")
        return length

    def take(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise ValueError(f"{count} bytes were expected")
        self._at += count
        return self._data[self._at - count : self._at]

    def skip_tags(self) -> None:
        for _ in range(self._unsigned()):
            self._unsigned()
            self.take(self._unsigned())

    def voter_ids(self, version: int) -> tuple[tuple[int, UUID], ...]:
        found = []
        for _ in range(self.length()):
            voter_id = self.number(_I32)
            directory = UUID(bytes=self.take(16)) if version >= 1 else NO_DIRECTORY
            self.skip_tags()
            found.append((voter_id, directory))
        return tuple(found)

    def voter(self) -> Voter:
        voter_id, directory = self.number(_I32), UUID(bytes=self.take(16))
        endpoints = []
        for _ in range(self.length()):
            name, host = self.take(self.length()).decode(), self.take(self.length()).decode()
            endpoints.append((name, host, self.number(_U16)))
            self.skip_tags()
        oldest, newest = self.number(_I16), self.number(_I16)
        self.skip_tags()
        self.skip_tags()
        return Voter(voter_id, directory, tuple(endpoints), oldest, newest)
