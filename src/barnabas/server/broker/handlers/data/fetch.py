"""Shell: Fetch (key 1), versions 4 to 18.

Reads batches from the partitions of the request or of its session (KIP-227), parks while there is less than
`min_bytes`, and answers with buffers that go to the socket as they were read. Any error, a diverging epoch, a better
replica to read from, or a deadline ends the wait. The first non-empty partition always gives a whole batch, however
large (KIP-74); after it the limits of the request, of each partition and of `fetch.max.bytes` hold.

What consumers and what followers get of a partition is in `fetch_readers.py`, which partitions are read at all, and
waited for, in `fetch_reading.py`.

Versions: 7 sessions, 9 leader epochs (KIP-320), 10 zstd, 11 nearest replica (KIP-392), 12 flexible and diverging epochs
(KIP-595), 13 topic ids (KIP-516), 15 replica state (KIP-903), 16 node endpoints (KIP-951), 17 and 18 for the metadata
quorum.
"""

from __future__ import annotations

import asyncio

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from barnabas.server.broker.fetch_sessions import FetchContext, Outcome, PartitionKey, Wanted
from barnabas.server.broker.handlers.data.fetch_readers import Reader, choose_reader
from barnabas.server.broker.handlers.data.fetch_reading import Reading
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services
from barnabas.server.replication.partition import NEWS_S

TOPIC_IDS_SINCE = 13
LEADER_HINTS_SINCE = 16
UNSENT_BYTES_MAX = 256 * 1024 * 1024
"""All clients together; Kafka needs no such bound, because it hands files to the kernel (sendfile)."""


async def handle(services: Services, ctx: RequestContext, request: FetchRequest) -> FetchResponse:
    by_id = ctx.api_version >= TOPIC_IDS_SINCE
    reader = choose_reader(services, ctx, request)
    context = services.fetch_sessions.open(
        request.session_id,
        request.session_epoch,
        _wanted(request, by_id=by_id),
        _forgotten(request, by_id=by_id),
        ctx.now_ms,
        uses_topic_ids=by_id,
        privileged=reader.is_follower,
    )
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context)
    # Records wait in memory for a client to take them. When too many do, answers get short: a batch each.
    room = max(UNSENT_BYTES_MAX - services.unsent_bytes(), 0)
    limit = min(request.max_bytes, room)
    if not reader.is_follower:
        limit = min(limit, services.settings.fetch_max_bytes)
    with Reading(services, context, reader, limit) as reading:
        await _read_enough(ctx, request, context, reader, reading)
    reader.finish()
    answers = list(reading.answers.items())
    return _respond(services, ctx, context.finish(_outcomes(answers), services.clock.now_ms()), answers)


async def _read_enough(
    ctx: RequestContext, request: FetchRequest, context: FetchContext, reader: Reader, reading: Reading
) -> None:
    """Until there is `min_bytes`, or something else to say, or the time is over."""
    await reading.run()
    min_bytes = min(request.min_bytes, max(reading.limit, 1))
    if reading.size < min_bytes and not reading.ready and request.max_wait_ms > 0 and not context.empty:
        deadline = ctx.deadline(request.max_wait_ms)
        loop = asyncio.get_running_loop()
        if reader.is_follower and _has_news(context, reading):
            deadline = min(deadline, loop.time() + NEWS_S)
        while reading.size < min_bytes and not reading.ready and loop.time() < deadline:
            await reading.wait(min_bytes - reading.size, deadline)
            await reading.run()
            if reader.is_follower and _has_news(context, reading):
                break


def _wanted(request: FetchRequest, *, by_id: bool) -> list[tuple[PartitionKey, Wanted]]:
    return [
        (
            (topic.topic_id if by_id else topic.topic, p.partition),
            Wanted(
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


def _has_news(context: FetchContext, reading: Reading) -> bool:
    """A follower should hear what is committed and what is deleted, even if there are no records."""
    return any(
        context.is_news(key, answer.high_watermark, answer.log_start_offset) for key, answer in reading.answers.items()
    )


def _outcomes(answers: list[tuple[PartitionKey, PartitionData]]) -> list[tuple[PartitionKey, Outcome]]:
    return [
        (
            key,
            Outcome(
                ErrorCode(answer.error_code),
                len(answer.records) if answer.records is not None else 0,
                answer.high_watermark,
                answer.log_start_offset,
                answer.diverging_epoch.epoch >= 0 or answer.preferred_read_replica >= 0,
            ),
        )
        for key, answer in answers
    ]


def _respond(
    services: Services,
    ctx: RequestContext,
    session: tuple[int, list[bool]],
    answers: list[tuple[PartitionKey, PartitionData]],
) -> FetchResponse:
    session_id, send = session
    topics: list[FetchableTopicResponse] = []
    nodes: dict[int, NodeEndpoint] = {}
    last: object = None
    for ((topic, _), answer), included in zip(answers, send, strict=True):
        if not included:
            continue
        if topic != last:  # partitions of one topic that stand together share its entry, as in Kafka
            last = topic
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
            address = services.metadata.address(leader, ctx.client.listener)
            if address is not None:
                nodes[leader] = NodeEndpoint(node_id=leader, host=address.host, port=address.port, rack=address.rack)
    return FetchResponse(session_id=session_id, responses=topics, node_endpoints=list(nodes.values()))
