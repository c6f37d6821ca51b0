"""Shell: DescribeQuorum (key 55) on the controllers' listener, versions 0 to 2.

- 0: leader, voters and observers of the metadata quorum with their log end offsets (KIP-595)
- 1: the time of each replica's last fetch, and when it was last caught up, by the leader's clock (KIP-836)
- 2: directory ids, the voters' listeners, and error messages (KIP-853)

Only the leader knows the progress of the replicas; other nodes answer NOT_LEADER_OR_FOLLOWER. Any partition but
`__cluster_metadata-0` is UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import METADATA_TOPIC
from barnabas.protocol.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)
from barnabas.server.broker.handlers.quorum.port import QuorumPort
from barnabas.server.broker.quorum.parts import listeners, only_partition
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine.raft import QuorumInfo, QuorumReplicaState


async def handle(port: QuorumPort, ctx: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    view = port.quorum.describe()
    if view is None:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return DescribeQuorumResponse(error_code=code, error_message=code.message)
    return describe(view, ctx.api_version, request)


def describe(view: QuorumInfo, version: int, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The response of the leader, whose state is `view`."""
    if only_partition(request.topics) is None:
        return _unknown(request)
    topic = TopicDataResponse(topic_name=METADATA_TOPIC, partitions=[_partition(view, version)])
    return DescribeQuorumResponse(error_message=None, topics=[topic], nodes=_nodes(view) if version >= 2 else [])


def _partition(view: QuorumInfo, version: int) -> PartitionDataResponse:
    return PartitionDataResponse(
        partition_index=0,
        error_message=None,
        leader_id=view.leader_id,
        leader_epoch=view.leader_epoch,
        high_watermark=view.high_watermark,
        current_voters=[_replica(replica, version) for replica in view.voters],
        observers=[_replica(replica, version) for replica in view.observers],
    )


def _replica(replica: QuorumReplicaState, version: int) -> ReplicaState:
    state = ReplicaState(
        replica_id=replica.key.id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )
    if version >= 2:
        state.replica_directory_id = replica.key.directory_id
    return state


def _nodes(view: QuorumInfo) -> list[Node]:
    return [
        Node(node_id=voter.key.id, listeners=listeners(Listener, voter.endpoints)) for voter in view.voter_set.members
    ]


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            TopicDataResponse(
                topic_name=topic.topic_name,
                partitions=[
                    PartitionDataResponse(
                        partition_index=partition.partition_index, error_code=code, error_message=code.message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
