"""Shell: Fetch (key 1), versions 4 to 18.

Reads batches from the partitions of the request or of its session (KIP-227), parks while there is less than
`min_bytes`, and answers with buffers that go to the socket as they were read. Any error, a diverging epoch, a better
replica to read from, or a deadline ends the wait. The first non-empty partition always gives a whole batch, however
large (KIP-74); after it the limits of the request, of each partition and of `fetch.max.bytes` hold.

What consumers and what followers get of a partition is in `fetch_readers.py`.

Versions: 7 sessions, 9 leader epochs (KIP-320), 10 zstd, 11 nearest replica (KIP-392), 12 flexible and diverging epochs
(KIP-595), 13 topic ids (KIP-516), 15 replica state (KIP-903), 16 node endpoints (KIP-951), 17 and 18 for the metadata
quorum.
"""

from __future__ import annotations

import asyncio

from barnabas.broker.fetch_sessions import FetchContext, Outcome, PartitionKey, Wanted
from barnabas.broker.handlers.data.fetch_readers import Reader, choose_reader
from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.namedtuple import NamedTuple
from barnabas.replication.parking import ReadWatch, wait_readable
from barnabas.replication.partition import NEWS_S
from barnabas.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

TOPIC_IDS_SINCE = 13
LEADER_HINTS_SINCE = 16
UNSENT_BYTES_MAX = 256 * 1024 * 1024
"""All clients together; Kafka needs no such bound, because it hands files to the kernel (sendfile)."""
_BREATH = 2048
"""Partitions read before other requests may run."""
_NOT_READ = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Errors that Kafka finds before it reads: their empty list of aborted transactions is not null."""
_LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class _Pass(NamedTuple):
    """One reading of all wanted partitions."""

    answers: list[PartitionData]
    size: int
    ready: bool
    """Something other than bytes demands an answer now."""
    watches: list[ReadWatch]


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
    wanted = context.wanted
    # Records wait in memory for a client to take them. When too many do, answers get short: a batch each.
    room = max(UNSENT_BYTES_MAX - services.unsent_bytes(), 0)
    limit = min(request.max_bytes, room)
    if not reader.is_follower:
        limit = min(limit, services.settings.fetch_max_bytes)
    done = await _read_all(services, wanted, limit, reader)
    min_bytes = min(request.min_bytes, max(limit, 1))
    if done.size < min_bytes and not done.ready and request.max_wait_ms > 0 and wanted:
        deadline = ctx.deadline(request.max_wait_ms)
        loop = asyncio.get_running_loop()
        if reader.is_follower and _has_news(context, wanted, done):
            deadline = min(deadline, loop.time() + NEWS_S)
        while done.size < min_bytes and not done.ready and loop.time() < deadline:
            await wait_readable(done.watches, min_bytes - done.size, deadline)
            done = await _read_all(services, wanted, limit, reader)
            if reader.is_follower and _has_news(context, wanted, done):
                break
    reader.finish()
    return _respond(
        services, ctx, context.finish(_outcomes(wanted, done.answers), services.clock.now_ms()), wanted, done
    )


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


def _has_news(context: FetchContext, wanted: list[tuple[PartitionKey, Wanted]], done: _Pass) -> bool:
    """A follower should hear what is committed and what is deleted, even if there are no records."""
    return any(
        context.is_news(key, answer.high_watermark, answer.log_start_offset)
        for (key, _), answer in zip(wanted, done.answers, strict=True)
    )


async def _read_all(services: Services, wanted: list[tuple[PartitionKey, Wanted]], limit: int, reader: Reader) -> _Pass:
    """Read every partition, in order, until the limit is used up; what comes after it gets no bytes, but a
    watermark.
    """
    partitions = services.partitions
    answers: list[PartitionData] = []
    watches: list[ReadWatch] = []
    size = 0
    ready = False
    reader.begin()
    for (topic, index), want in wanted:
        if len(answers) % _BREATH == _BREATH - 1:
            await asyncio.sleep(0)
        name = topic if isinstance(topic, str) else partitions.topic_name(topic)
        try:
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            partition = partitions.require(name, index)
            room = limit - size
            result = reader.read(partition, want, min(want.max_bytes, room) if room > 0 else 0, min_one_batch=size == 0)
            if result.pending is not None:  # not in the page cache: the loop must not wait for the disk
                result = await partition.read_from_disk(result, services.disk)
        except KafkaError as error:
            ready = True
            answers.append(_failed(services, name, index, error.code))
            continue
        watches.append(reader.watch(partition))
        answer = PartitionData(
            partition_index=index,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=result.preferred_read_replica,
            records=result.data,
        )
        if result.aborted is not None:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset) for txn in result.aborted
            ]
        if result.diverging is not None:
            ready = True
            answer.diverging_epoch = EpochEndOffset(
                epoch=result.diverging.leader_epoch, end_offset=result.diverging.end_offset
            )
        if result.preferred_read_replica >= 0:
            ready = True
        size += len(result.data)
        answers.append(answer)
    return _Pass(answers, size, ready, watches)


def _failed(services: Services, name: str | None, index: int, code: ErrorCode) -> PartitionData:
    answer = PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=[] if code in _NOT_READ else None,
        records=b"",
    )
    if code in _LEADER_MOVED and name is not None:
        state = services.metadata.image.topics.partition(name, index)
        if state is not None:
            answer.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
    return answer


def _outcomes(
    wanted: list[tuple[PartitionKey, Wanted]], answers: list[PartitionData]
) -> list[tuple[PartitionKey, Outcome]]:
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
        for (key, _), answer in zip(wanted, answers, strict=True)
    ]


def _respond(
    services: Services,
    ctx: RequestContext,
    session: tuple[int, list[bool]],
    wanted: list[tuple[PartitionKey, Wanted]],
    done: _Pass,
) -> FetchResponse:
    session_id, send = session
    topics: list[FetchableTopicResponse] = []
    nodes: dict[int, NodeEndpoint] = {}
    last: object = None
    for ((topic, _), _), answer, included in zip(wanted, done.answers, send, strict=True):
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
