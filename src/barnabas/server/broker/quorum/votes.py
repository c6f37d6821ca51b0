"""Codec: Vote, BeginQuorumEpoch and EndQuorumEpoch, between the wire messages and the values of `server/raft`.

The handlers check the cluster id and the partition of a request (`parts.py`) before they call `parse_*_request`. In
versions that do not contain the voter's id the voter is this node.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, error_code
from barnabas.core.ids import METADATA_TOPIC
from barnabas.protocol.wire.messages import begin_quorum_epoch as begin
from barnabas.protocol.wire.messages import end_quorum_epoch as end
from barnabas.protocol.wire.messages import vote
from barnabas.server.broker.quorum.parts import (
    NO_EPOCH,
    listeners,
    node_endpoints,
    only_partition,
    parse_listeners,
    parse_node_endpoints,
)
from barnabas.server.raft.machine import messages as raft
from barnabas.server.raft.machine.values import NO_NODE, OffsetAndEpoch, ReplicaKey

# ---- Vote


def vote_request(request: raft.VoteRequest, cluster_id: str) -> vote.VoteRequest:
    partition = vote.PartitionData(
        partition_index=0,
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=request.voter.directory_id,
        last_offset_epoch=request.last.epoch,
        last_offset=request.last.offset,
        pre_vote=request.pre_vote,
    )
    topic = vote.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=request.voter.id, topics=[topic])


def parse_vote_request(request: vote.VoteRequest, node_id: int) -> raft.VoteRequest:
    partition: vote.PartitionData = request.topics[0].partitions[0]
    return raft.VoteRequest(
        partition.replica_epoch,
        ReplicaKey(partition.replica_id, partition.replica_directory_id),
        ReplicaKey(request.voter_id if request.voter_id >= 0 else node_id, partition.voter_directory_id),
        OffsetAndEpoch(partition.last_offset_epoch, partition.last_offset),
        partition.pre_vote,
    )


def vote_response(response: raft.VoteResponse, version: int) -> vote.VoteResponse:
    partition = vote.PartitionDataResponse(
        partition_index=0,
        error_code=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.epoch,
        vote_granted=response.granted,
    )
    topic = vote.TopicDataResponse(topic_name=METADATA_TOPIC, partitions=[partition])
    nodes = node_endpoints(vote.NodeEndpoint, response.leader_id, response.endpoints if version >= 1 else ())
    return vote.VoteResponse(topics=[topic], node_endpoints=nodes)


def parse_vote_response(response: vote.VoteResponse) -> raft.VoteResponse:
    partition = only_partition(response.topics)
    if response.error_code or partition is None:
        return raft.VoteResponse(_top_level_error(response.error_code), NO_EPOCH)
    return raft.VoteResponse(
        error_code(partition.error_code),
        partition.leader_epoch,
        partition.leader_id,
        partition.vote_granted,
        parse_node_endpoints(response.node_endpoints, partition.leader_id),
    )


# ---- BeginQuorumEpoch


def begin_request(request: raft.BeginQuorumEpochRequest, cluster_id: str) -> begin.BeginQuorumEpochRequest:
    partition = begin.PartitionData(
        partition_index=0,
        voter_directory_id=request.voter.directory_id,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    return begin.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=request.voter.id,
        topics=[begin.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=listeners(begin.LeaderEndpoint, request.endpoints),
    )


def parse_begin_request(request: begin.BeginQuorumEpochRequest, node_id: int) -> raft.BeginQuorumEpochRequest:
    partition: begin.PartitionData = request.topics[0].partitions[0]
    return raft.BeginQuorumEpochRequest(
        partition.leader_epoch,
        partition.leader_id,
        ReplicaKey(request.voter_id if request.voter_id >= 0 else node_id, partition.voter_directory_id),
        parse_listeners(request.leader_endpoints),
    )


def begin_response(response: raft.BeginQuorumEpochResponse, version: int) -> begin.BeginQuorumEpochResponse:
    partition = begin.PartitionDataResponse(
        partition_index=0, error_code=response.error, leader_id=response.leader_id, leader_epoch=response.epoch
    )
    return begin.BeginQuorumEpochResponse(
        topics=[begin.TopicDataResponse(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=node_endpoints(
            begin.NodeEndpoint, response.leader_id, response.endpoints if version >= 1 else ()
        ),
    )


def parse_begin_response(response: begin.BeginQuorumEpochResponse) -> raft.BeginQuorumEpochResponse:
    partition = only_partition(response.topics)
    if response.error_code or partition is None:
        return raft.BeginQuorumEpochResponse(_top_level_error(response.error_code), NO_EPOCH)
    return raft.BeginQuorumEpochResponse(
        error_code(partition.error_code),
        partition.leader_epoch,
        partition.leader_id,
        parse_node_endpoints(response.node_endpoints, partition.leader_id),
    )


# ---- EndQuorumEpoch


def end_request(request: raft.EndQuorumEpochRequest, cluster_id: str) -> end.EndQuorumEpochRequest:
    partition = end.PartitionData(
        partition_index=0,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[key.id for key in request.successors],
        preferred_candidates=[
            end.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id) for key in request.successors
        ],
    )
    return end.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[end.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=listeners(end.LeaderEndpoint, request.endpoints),
    )


def parse_end_request(request: end.EndQuorumEpochRequest) -> raft.EndQuorumEpochRequest:
    partition: end.PartitionData = request.topics[0].partitions[0]
    successors = [
        ReplicaKey(candidate.candidate_id, candidate.candidate_directory_id)
        for candidate in partition.preferred_candidates
    ]
    return raft.EndQuorumEpochRequest(
        partition.leader_epoch,
        partition.leader_id,
        tuple(successors or (ReplicaKey(node_id) for node_id in partition.preferred_successors)),
        parse_listeners(request.leader_endpoints),
    )


def end_response(response: raft.EndQuorumEpochResponse, version: int) -> end.EndQuorumEpochResponse:
    partition = end.PartitionDataResponse(
        partition_index=0, error_code=response.error, leader_id=response.leader_id, leader_epoch=response.epoch
    )
    return end.EndQuorumEpochResponse(
        topics=[end.TopicDataResponse(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=node_endpoints(end.NodeEndpoint, response.leader_id, response.endpoints if version >= 1 else ()),
    )


def parse_end_response(response: end.EndQuorumEpochResponse) -> raft.EndQuorumEpochResponse:
    partition = only_partition(response.topics)
    if response.error_code or partition is None:
        return raft.EndQuorumEpochResponse(_top_level_error(response.error_code), NO_EPOCH, NO_NODE)
    return raft.EndQuorumEpochResponse(
        error_code(partition.error_code),
        partition.leader_epoch,
        partition.leader_id,
        parse_node_endpoints(response.node_endpoints, partition.leader_id),
    )


def _top_level_error(code: int) -> ErrorCode:
    """The top-level error; INVALID_REQUEST for a response without an error that is about another partition."""
    return error_code(code) if code else ErrorCode.INVALID_REQUEST
