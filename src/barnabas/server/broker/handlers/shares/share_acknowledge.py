"""Shell: ShareAcknowledge (key 79), versions 1 to 2.

- 1: a member acknowledges records without fetching: accepts, releases or rejects them (KIP-932)
- 2: IsRenewAck renews the acquisition locks of records (KIP-1222)

Session epoch -1 closes the member's share session; records that the member still holds are then released. While the
feature `share.version` is 0 the response is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from barnabas.server.broker.features import require_share_groups
from barnabas.server.broker.handlers.shares.port import SharesPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.share_sessions import FINAL_EPOCH
from barnabas.server.broker.shares import check_member


async def handle(port: SharesPort, ctx: RequestContext, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    require_share_groups(port.metadata)
    shares = port.shares
    try:
        member = check_member(request.group_id, request.member_id)
        shares.sessions.acknowledge(member, request.share_session_epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=str(error))
    batches = {
        (topic.topic_id, p.partition_index): p.acknowledgement_batches
        for topic in request.topics
        for p in topic.partitions
    }
    results = await shares.acknowledge(member, batches, renews=request.is_renew_ack)
    if request.share_session_epoch == FINAL_EPOCH:
        await shares.close(member)
    topics: dict[object, ShareAcknowledgeTopicResponse] = {}
    nodes: dict[int, NodeEndpoint] = {}
    pauses = Pauses()
    for (topic_id, index), problem in results.items():
        answer = PartitionData(partition_index=index)
        if problem is not None:
            answer.error_code, answer.error_message = problem.code, str(problem)
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = port.metadata.current_leader(topic_id, index, ctx.client.listener)
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
                address = leader.address
                if address is not None:
                    nodes[leader.leader_id] = NodeEndpoint(
                        node_id=leader.leader_id, host=address.host, port=address.port, rack=address.rack
                    )
        topics.setdefault(topic_id, ShareAcknowledgeTopicResponse(topic_id=topic_id)).partitions.append(answer)
        await pauses.after(1)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=shares.partitions.config(member[0]).partition.share_record_lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=list(nodes.values()),
    )
