"""Codec: Fetch of the metadata log and FetchSnapshot, between the wire messages and the values of `server/raft`.

The handlers check the cluster id and the partition of a request (`parts.py`) before they call `parse_*_request`. A
response contains the batches as they are on disk. The CRC of each received batch is verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, error_code
from barnabas.core.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from barnabas.protocol.wire.messages import fetch
from barnabas.protocol.wire.messages import fetch_snapshot as snapshot
from barnabas.server.broker.quorum.batches import parse_batches
from barnabas.server.broker.quorum.parts import NO_EPOCH, node_endpoints, only_partition, parse_node_endpoints
from barnabas.server.raft.machine import messages as raft
from barnabas.server.raft.machine.values import OffsetAndEpoch, RaftBatch, ReplicaKey

# ---- Fetch


def fetch_request(request: raft.FetchRequest, cluster_id: str) -> fetch.FetchRequest:
    """The request in version 15 (Kafka 3.5) or later; earlier versions have the replica id in another field."""
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=request.epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        partition_max_bytes=request.max_bytes,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=request.replica.id),
        max_wait_ms=request.max_wait_ms,
        min_bytes=0,
        max_bytes=request.max_bytes,
        topics=[fetch.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def parse_fetch_request(request: fetch.FetchRequest, version: int, max_bytes: int) -> raft.FetchRequest:
    """Decode a request; `max_bytes` is the largest response that this node sends."""
    partition: fetch.FetchPartition = request.topics[0].partitions[0]
    replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
    return raft.FetchRequest(
        ReplicaKey(replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        request.max_wait_ms,
        min(request.max_bytes, max_bytes),
        partition.high_watermark,
    )


def fetch_response(response: raft.FetchResponse, version: int) -> fetch.FetchResponse:
    diverging, snapshot_id = response.diverging, response.snapshot_id
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=response.error,
        high_watermark=response.high_watermark,
        last_stable_offset=response.high_watermark,
        log_start_offset=response.log_start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=response.leader_id, leader_epoch=response.epoch),
        aborted_transactions=None,
        records=[batch.payload for batch in response.batches],
    )
    if diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
    if snapshot_id is not None:
        partition.snapshot_id = fetch.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
    topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    nodes = node_endpoints(fetch.NodeEndpoint, response.leader_id, response.endpoints if version >= 16 else ())
    return fetch.FetchResponse(responses=[topic], node_endpoints=nodes)


def parse_fetch_response(response: fetch.FetchResponse) -> raft.FetchResponse:
    partition = only_partition(response.responses)
    if response.error_code or partition is None:
        return raft.FetchResponse(
            error_code(response.error_code) if response.error_code else ErrorCode.INVALID_REQUEST, NO_EPOCH
        )
    leader, parted, started = partition.current_leader, partition.diverging_epoch, partition.snapshot_id
    return raft.FetchResponse(
        error_code(partition.error_code),
        leader.leader_epoch,
        leader.leader_id,
        partition.high_watermark,
        partition.log_start_offset,
        OffsetAndEpoch(parted.epoch, parted.end_offset) if parted.epoch >= 0 else None,
        OffsetAndEpoch(started.epoch, started.end_offset) if started.epoch >= 0 and started.end_offset >= 0 else None,
        tuple(_parse_records(partition.records)),
        endpoints=parse_node_endpoints(response.node_endpoints, leader.leader_id),
    )


def _parse_records(records: Buffer | Sequence[Buffer] | None) -> list[RaftBatch]:
    """The batches of a response. Raises CorruptBatchError."""
    return [] if not records else parse_batches(cast("Buffer", records))


# ---- FetchSnapshot


def snapshot_request(request: raft.FetchSnapshotRequest, cluster_id: str) -> snapshot.FetchSnapshotRequest:
    partition = snapshot.PartitionSnapshot(
        partition=0,
        current_leader_epoch=request.epoch,
        snapshot_id=_snapshot_id(request.snapshot_id),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return snapshot.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=request.replica.id,
        max_bytes=request.max_bytes,
        topics=[snapshot.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def parse_snapshot_request(request: snapshot.FetchSnapshotRequest) -> raft.FetchSnapshotRequest:
    partition: snapshot.PartitionSnapshot = request.topics[0].partitions[0]
    return raft.FetchSnapshotRequest(
        ReplicaKey(request.replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        OffsetAndEpoch(partition.snapshot_id.epoch, partition.snapshot_id.end_offset),
        partition.position,
        request.max_bytes,
    )


def snapshot_response(
    response: raft.FetchSnapshotResponse, requested: OffsetAndEpoch, version: int
) -> snapshot.FetchSnapshotResponse:
    partition = snapshot.PartitionSnapshotResponse(
        index=0,
        error_code=response.error,
        snapshot_id=_snapshot_id(response.snapshot_id or requested),
        current_leader=snapshot.LeaderIdAndEpoch(leader_id=response.leader_id, leader_epoch=response.epoch),
        size=response.size,
        position=response.position,
        unaligned_records=response.data,
    )
    return snapshot.FetchSnapshotResponse(
        topics=[snapshot.TopicSnapshotResponse(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=node_endpoints(
            snapshot.NodeEndpoint, response.leader_id, response.endpoints if version >= 1 else ()
        ),
    )


def parse_snapshot_response(response: snapshot.FetchSnapshotResponse) -> raft.FetchSnapshotResponse:
    topics = response.topics
    if response.error_code or len(topics) != 1 or len(topics[0].partitions) != 1 or topics[0].name != METADATA_TOPIC:
        return raft.FetchSnapshotResponse(
            error_code(response.error_code) if response.error_code else ErrorCode.INVALID_REQUEST, NO_EPOCH
        )
    partition = topics[0].partitions[0]
    leader = partition.current_leader
    return raft.FetchSnapshotResponse(
        error_code(partition.error_code),
        leader.leader_epoch,
        leader.leader_id,
        OffsetAndEpoch(partition.snapshot_id.epoch, partition.snapshot_id.end_offset),
        partition.size,
        partition.position,
        cast("Buffer", partition.unaligned_records or b""),
        endpoints=parse_node_endpoints(response.node_endpoints, leader.leader_id),
    )


def _snapshot_id(snapshot_id: OffsetAndEpoch) -> snapshot.SnapshotId:
    return snapshot.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
