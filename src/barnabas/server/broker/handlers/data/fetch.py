"""Shell: Fetch (key 1), versions 4 to 18.

- 4: isolation level, last stable offset and aborted transactions (KIP-98)
- 5: log start offset
- 6: KAFKA_STORAGE_ERROR
- 7: incremental fetch sessions (KIP-227)
- 8: as 7
- 9: the leader epoch that the client knows, to fence requests by old metadata (KIP-320)
- 10: batches compressed with zstd (KIP-110); older versions get them too, as from Kafka 4
- 11: the client's rack; the preferred read replica (KIP-392)
- 12: flexible; the last fetched epoch, answered with the diverging epoch (KIP-595)
- 13: topic ids in place of names (KIP-516)
- 14: as 13, for tiered storage (KIP-405)
- 15: the follower's broker epoch, in ReplicaState (KIP-903)
- 16: leaders and their addresses on NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951)
- 17: the follower's directory id, for voters of the metadata quorum (KIP-853)
- 18: the follower's high watermark, for the metadata quorum (KIP-1166)

Reads record batches from the partitions of the request or of its session. While there are fewer than `min_bytes`, the
request waits until `max_wait_ms` have passed. An error, a diverging epoch or a preferred read replica completes the
request at once. The response holds the buffers that were read, without a copy.

The first partition that has records returns at least one whole batch, however large (KIP-74). Beyond this the limits of
the request, of each partition and of `fetch.max.bytes` hold.

Records that are only in the object store are read from there for consumers (KIP-405), for at most
remote.fetch.max.wait.ms; followers get OFFSET_MOVED_TO_TIERED_STORAGE. The fields for the metadata quorum (ClusterId,
ReplicaDirectoryId, HighWatermark) are ignored here; `handlers/quorum/forwards.py` serves them on the controllers'
listener.
"""

from __future__ import annotations

from functools import partial

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from barnabas.server.broker.fetching.delayed_fetch import DelayedFetch
from barnabas.server.broker.fetching.reads import build_params
from barnabas.server.broker.fetching.session import PartitionKey, RequestedPartition
from barnabas.server.broker.handlers.data.port import DataPort
from barnabas.server.broker.request_context import RequestContext

TOPIC_IDS_SINCE = 13
LEADER_HINTS_SINCE = 16
UNSENT_BYTES_MAX = 128 * 1024 * 1024
"""When so many bytes of responses wait in memory for all clients together, responses shrink to one batch; at twice as
many, connections are closed (`protocol/transport/limits.py`). Kafka needs no such bound, because its responses refer to
files (sendfile)."""


async def handle(port: DataPort, ctx: RequestContext, request: FetchRequest) -> FetchResponse:
    by_id = ctx.api_version >= TOPIC_IDS_SINCE
    params = build_params(port, ctx, request)
    ctx.is_exempt = from_follower = params.from_follower
    context = port.fetch_sessions.open(
        request.session_id,
        request.session_epoch,
        _requested(request, by_id=by_id),
        _forgotten(request, by_id=by_id),
        ctx.now_ms,
        uses_topic_ids=by_id,
        privileged=from_follower,
    )
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context)
    # When too many bytes wait for slow clients, responses shrink to one batch.
    max_bytes = min(request.max_bytes, max(UNSENT_BYTES_MAX - port.unsent_bytes(), 0))
    if not from_follower:
        max_bytes = min(max_bytes, port.config.current.fetch_max_bytes)
        if port.quotas.is_active:
            max_bytes = port.quotas.limit_fetch_bytes(ctx, max_bytes)
    fetch = DelayedFetch(port, context, params, max_bytes, ctx.client, ctx.may_read)
    await fetch.run(request.min_bytes, ctx.deadline(request.max_wait_ms))
    ctx.errors = fetch.errors
    answers = list(fetch.answers.items())
    session_id, included = context.finish(answers, port.clock.now_ms())
    sent = [answer for answer, is_included in zip(answers, included, strict=True) if is_included]
    if context.session is not None and port.quotas.is_active:
        ctx.on_replaced = partial(context.session.on_replaced, [key for key, _ in sent])
    return _respond(port, ctx, session_id, sent)


def _requested(request: FetchRequest, *, by_id: bool) -> list[tuple[PartitionKey, RequestedPartition]]:
    return [
        (
            (topic.topic_id if by_id else topic.topic, p.partition),
            RequestedPartition(
                p.fetch_offset, p.partition_max_bytes, p.current_leader_epoch, p.last_fetched_epoch, p.log_start_offset
            ),
        )
        for topic in request.topics
        for p in topic.partitions
    ]


def _forgotten(request: FetchRequest, *, by_id: bool) -> list[PartitionKey]:
    return [
        (topic.topic_id if by_id else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


def _respond(
    port: DataPort, ctx: RequestContext, session_id: int, answers: list[tuple[PartitionKey, PartitionData]]
) -> FetchResponse:
    topics: list[FetchableTopicResponse] = []
    nodes: dict[int, NodeEndpoint] = {}
    previous: object = None
    for (topic, _), answer in answers:
        if topic != previous:  # adjacent partitions of one topic share its entry, as in Kafka
            previous = topic
            topics.append(
                FetchableTopicResponse(topic=topic, partitions=[])
                if isinstance(topic, str)
                else FetchableTopicResponse(topic_id=topic, partitions=[])
            )
        topics[-1].partitions.append(answer)
        if ctx.api_version < LEADER_HINTS_SINCE:
            answer.current_leader = LeaderIdAndEpoch()
        leader = answer.current_leader.leader_id
        if leader >= 0:
            address = port.metadata.address(leader, ctx.client.listener)
            if address is not None:
                nodes[leader] = NodeEndpoint(node_id=leader, host=address.host, port=address.port, rack=address.rack)
    return FetchResponse(session_id=session_id, responses=topics, node_endpoints=list(nodes.values()))
