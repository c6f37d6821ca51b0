"""Codec: batches of the metadata log, between record batches (bytes) and the values of `server/raft`.

The payload of a raft `Batch` is one record batch with its header. The record batch that a leader proposes has neither
base offset nor leader epoch; both are taken from the raft `Batch`, and lie outside the CRC. A control batch of the
leader has no payload and is encoded here; a control batch that was read has its bytes and their decoded records.
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
_OTHER_CONTROL_RECORD: Final = LeaderChangeControl(-1, (), ())
"""Stands for control records that the quorum does not use, so that the records after them keep their offsets."""


def parse_batches(data: Buffer, *, check: bool = True) -> list[RaftBatch]:
    """The complete batches in `data`; a partial batch at the end is ignored. `check` verifies the CRCs.

    Raises CorruptBatchError. The payloads are views of `data`.
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
    """The bytes of a batch on disk and on the wire. Control records that are encoded here get `timestamp_ms`."""
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
    """The records of the control batch at `position`. Raises CorruptBatchError."""
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
            return _OTHER_CONTROL_RECORD


def _pairs(keys: tuple[ReplicaKey, ...]) -> tuple[tuple[int, UUID], ...]:
    return tuple((key.id, key.directory_id) for key in keys)


def _keys(pairs: tuple[tuple[int, UUID], ...]) -> tuple[ReplicaKey, ...]:
    return tuple(ReplicaKey(node_id, directory_id) for node_id, directory_id in pairs)
