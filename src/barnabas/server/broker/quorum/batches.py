"""Codec: batches of the metadata log: record batches (bytes) on one side, `raft` batches on the other.

The payload of a raft batch is one whole record batch, header included. One that a leader proposes has no place yet: it
gets the base offset and the epoch that the raft batch says, which lie outside its CRC. A leader's control batch comes
without payload and is built here; one that was read carries its bytes and what they say.
"""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from barnabas.core.buffers import Buffer
from barnabas.protocol.records import control
from barnabas.protocol.records.batch import BatchHeader, check_crc, iter_batches, iter_records, read_header
from barnabas.protocol.records.build import build_batch
from barnabas.server.raft.machine.values import (
    ControlRecord,
    KRaftVersionControl,
    LeaderChangeControl,
    RaftBatch,
    RaftEndpoint,
    ReplicaKey,
    VoterNode,
    Voters,
)

_BASE_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")
_EPOCH_AT: Final = 12
_SOMETHING_ELSE: Final = LeaderChangeControl(-1, (), ())
"""Stands for control records that do not concern the quorum, so that those after them keep their offsets."""


def parse_batches(data: Buffer, *, check: bool = True) -> list[RaftBatch]:
    """Whole batches; a partial one at the end is left out. With `check` their CRCs are looked at.

    Raises CorruptBatchError. Payloads are views of `data`.
    """
    view = memoryview(data)
    found: list[RaftBatch] = []
    for position, header in iter_batches(view):
        if check:
            check_crc(view, position, header)
        controls = parse_controls(view, position, header) if header.is_control else ()
        payload = view[position : position + header.size]
        count = header.last_offset_delta + 1
        found.append(RaftBatch(header.base_offset, count, header.partition_leader_epoch, payload, controls))
    return found


def render_batch(batch: RaftBatch, timestamp_ms: int) -> Buffer:
    """The bytes of a batch, as they are written and sent; `timestamp_ms` is for control records built here."""
    if not batch.payload:
        records = [control.control_record(to_control(value), timestamp_ms) for value in batch.controls]
        return build_batch(records, base_offset=batch.base_offset, control=True, leader_epoch=batch.epoch)
    header = read_header(batch.payload)
    if (header.base_offset, header.partition_leader_epoch) == (batch.base_offset, batch.epoch):
        return batch.payload
    placed = bytearray(batch.payload)
    _BASE_OFFSET.pack_into(placed, 0, batch.base_offset)
    _EPOCH.pack_into(placed, _EPOCH_AT, batch.epoch)
    return placed


def parse_controls(data: Buffer, position: int, header: BatchHeader) -> tuple[ControlRecord, ...]:
    """What the control batch at `position` says, one entry a record. Raises CorruptBatchError."""
    return tuple(from_control(control.parse_control(record)) for record in iter_records(data, position, header))


def to_control(value: ControlRecord) -> control.ControlValue:
    match value:
        case LeaderChangeControl(leader_id, voters, granting):
            return control.LeaderChange(leader_id, _pairs(voters), _pairs(granting))
        case KRaftVersionControl(version):
            return control.KRaftVersion(version)
        case Voters(members):
            return control.KRaftVoters(
                tuple(
                    control.Voter(
                        voter.key.id,
                        voter.key.directory_id,
                        tuple((e.listener, e.host, e.port) for e in voter.endpoints),
                        voter.min_version,
                        voter.max_version,
                    )
                    for voter in members
                )
            )


def from_control(value: control.ControlValue | None) -> ControlRecord:
    match value:
        case control.LeaderChange(leader_id, voters, granting):
            return LeaderChangeControl(leader_id, _keys(voters), _keys(granting))
        case control.KRaftVersion(version):
            return KRaftVersionControl(version)
        case control.KRaftVoters(voters):
            found = [
                VoterNode(
                    ReplicaKey(voter.voter_id, voter.directory_id),
                    tuple(RaftEndpoint(*endpoint) for endpoint in voter.endpoints),
                    voter.min_supported_version,
                    voter.max_supported_version,
                )
                for voter in voters
            ]
            return Voters(tuple(sorted(found, key=lambda voter: voter.key)))
        case _:
            return _SOMETHING_ELSE


def _pairs(keys: tuple[ReplicaKey, ...]) -> tuple[tuple[int, UUID], ...]:
    return tuple((key.id, key.directory_id) for key in keys)


def _keys(pairs: tuple[tuple[int, UUID], ...]) -> tuple[ReplicaKey, ...]:
    return tuple(ReplicaKey(node_id, directory_id) for node_id, directory_id in pairs)
