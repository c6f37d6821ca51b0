"""Table: FetchSnapshot (key 59) reads a part of a metadata snapshot (KIP-630)."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Records,
    Request,
    Response,
    array,
    int16,
    int32,
    int64,
    nested,
    records,
    string,
    uint16,
    uuid,
)


class SnapshotId(MessageStruct):
    end_offset: int = int64()
    epoch: int = int32()


class PartitionSnapshot(MessageStruct):
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = nested(SnapshotId)
    position: int = int64()
    replica_directory_id: UUID = uuid("1+", tag=0, ignorable=True)


class TopicSnapshot(MessageStruct):
    name: str = string()
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot)


class FetchSnapshotRequest(Request, key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = string(null="0+", default=None, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=0x7FFFFFFF)
    topics: list[TopicSnapshot] = array(TopicSnapshot)


class LeaderIdAndEpoch(MessageStruct):
    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionSnapshotResponse(MessageStruct):
    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = nested(SnapshotId)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Records | None = records()


class TopicSnapshotResponse(MessageStruct):
    name: str = string()
    partitions: list[PartitionSnapshotResponse] = array(PartitionSnapshotResponse)


class NodeEndpoint(MessageStruct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class FetchSnapshotResponse(Response, key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    topics: list[TopicSnapshotResponse] = array(TopicSnapshotResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
