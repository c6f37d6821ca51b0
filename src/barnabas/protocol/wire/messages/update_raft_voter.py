"""Table: UpdateRaftVoter (key 82) lets a voter update its own endpoints and supported versions (KIP-853)."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    array,
    int16,
    int32,
    nested,
    string,
    uint16,
    uuid,
)


class Listener(MessageStruct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(MessageStruct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class UpdateRaftVoterRequest(Request, key=82, versions="0", flexible="0+"):
    cluster_id: str | None = string(null="0+")
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()
    listeners: list[Listener] = array(Listener)
    kraft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature)


class CurrentLeader(MessageStruct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


class UpdateRaftVoterResponse(Response, key=82, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader = nested(CurrentLeader, tag=0)
