"""Table: the keys and values of control records: transaction markers, leader changes, voters of the metadata log."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import (
    Message,
    MessageStruct,
    array,
    int16,
    int32,
    int64,
    nested,
    string,
    uint16,
    uuid,
)


class ControlRecordTypeSchema(Message, versions="0"):
    type: int = int16()


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: int = int32()


class LeaderChangeVoter(MessageStruct):
    voter_id: int = int32()
    voter_directory_id: UUID = uuid("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: int = int16()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: int = int16()
    kraft_version: int = int16()


class Endpoint(MessageStruct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(MessageStruct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class Voter(MessageStruct):
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    kraft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature)


class VotersRecord(Message, versions="0", flexible="0+"):
    version: int = int16()
    voters: list[Voter] = array(Voter)
