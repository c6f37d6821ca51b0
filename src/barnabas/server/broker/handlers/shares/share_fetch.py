"""Shell: ShareFetch (key 78), versions 1 to 2.

- 1: a member acknowledges records and acquires more (KIP-932)
- 2: the record-limit mode (KIP-1206); IsRenewAck renews acquisition locks and fetches nothing (KIP-1222)

The acknowledgements are applied first. Then records are acquired for the member, for `share.record.lock.duration.ms`,
and read. If there is nothing to acquire the request waits for records, for expiring locks, or until MaxWaitMs have
passed.

MaxRecords bounds the number of acquired records of all partitions together. The batch that reaches this number is
acquired whole, unless the request is in record-limit mode. Session epoch -1 closes the member's share session
(`broker/share_sessions.py`); records that the member still holds are then released. While the feature `share.version`
is 0 the response is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct, field

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from barnabas.server.broker.features import require_share_groups
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services
from barnabas.server.broker.share_sessions import FINAL_EPOCH, MemberKey, PartitionKey
from barnabas.server.broker.shares import Refusals, check_member, new_leader
from barnabas.server.replication.purgatory import DelayedOperation, Purgatory
from barnabas.server.replication.rules.share_values import Wish
from barnabas.server.replication.shares.partition import ShareRead

RECORD_LIMIT_MODE = 1
_MOVING = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
_TOLD = {
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_REQUEST: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class _Pass(Struct):
    """One look at all wanted partitions."""

    reads: dict[PartitionKey, ShareRead | KafkaError] = field(default_factory=dict)
    watches: list[Purgatory] = field(default_factory=list)
    acquired: int = 0
    waiter: DelayedOperation = field(default_factory=DelayedOperation)
    """Watches each partition from before it is looked at: what comes meanwhile is not missed."""

    def watch(self, *watches: Purgatory) -> None:
        self.watches += watches
        for each in watches:
            each.add(self.waiter)

    def close(self) -> None:
        for each in self.watches:
            each.discard(self.waiter)


async def handle(services: Services, ctx: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
    require_share_groups(services)
    shares = services.shares
    asked = {
        (topic.topic_id, p.partition_index): p.acknowledgement_batches
        for topic in request.topics
        for p in topic.partitions
    }
    forgotten = [(topic.topic_id, p) for topic in request.forgotten_topics_data for p in topic.partitions]
    acks = {key: batches for key, batches in asked.items() if batches}
    try:
        member = check_member(request.group_id, request.member_id)
        if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A request that renews locks must not fetch.")
        wanted = shares.sessions.open(
            member,
            request.share_session_epoch,
            asked,
            forgotten,
            ctx.client.connection_id,
            acknowledges=bool(acks),
        )
    except KafkaError as error:
        return ShareFetchResponse(error_code=error.code, error_message=str(error))
    acknowledged = await shares.acknowledge(member, acks, renews=request.is_renew_ack)
    done = _Pass()
    if request.share_session_epoch == FINAL_EPOCH:
        await shares.close(member)
    elif not request.is_renew_ack and request.max_bytes > 0:
        done = await _fetch(services, ctx, request, member, wanted)
    settings = shares.partitions.settings(member[0])
    return _respond(services, ctx, acknowledged, done, settings.partition.share_record_lock_duration_ms)


async def _fetch(
    services: Services, ctx: RequestContext, request: ShareFetchRequest, member: MemberKey, wanted: list[PartitionKey]
) -> _Pass:
    deadline = ctx.deadline(request.max_wait_ms)
    loop = asyncio.get_running_loop()
    while True:
        done = _Pass()
        try:
            await _acquire_all(services, request, member, wanted, done)
            failed = any(isinstance(read, KafkaError) for read in done.reads.values())
            if done.acquired or failed or not wanted or loop.time() >= deadline:
                return done
            await done.waiter.wait(1, deadline)
        finally:
            done.close()


async def _acquire_all(
    services: Services, request: ShareFetchRequest, member: MemberKey, wanted: list[PartitionKey], done: _Pass
) -> None:
    """Every partition, in order, until the member has what it asked for."""
    shares, partitions = services.shares, services.partitions
    group_id, member_id = member
    room = min(request.max_bytes, services.config.fetch_max_bytes)
    most = request.max_records if request.max_records > 0 else 1
    for topic_id, index in wanted:
        if done.acquired >= most or room <= 0:
            break
        name = partitions.topic_name(topic_id)
        try:
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            partition = partitions.require(name, index)
            found = await shares.partitions.get(group_id, partition)
            wish = Wish(
                member_id,
                most - done.acquired,
                max(request.batch_size, 1),
                strict=request.share_acquire_mode == RECORD_LIMIT_MODE,
            )
            done.watch(found.delayed_fetches, partition.consumer_fetches)
            read = await found.fetch(wish, room, services.disk)
        except KafkaError as error:
            if error.code in _MOVING:
                continue  # its share coordinator is on its way; the member asks again soon
            done.reads[topic_id, index] = KafkaError(_TOLD.get(error.code, error.code), error.detail)
            continue
        if read.acquired:
            done.reads[topic_id, index] = read
            done.acquired += sum(piece.last - piece.first + 1 for piece in read.acquired)
            room -= len(read.data)


def _respond(
    services: Services, ctx: RequestContext, acknowledged: Refusals, done: _Pass, lock_ms: int
) -> ShareFetchResponse:
    topics: dict[object, ShareFetchableTopicResponse] = {}
    nodes: dict[int, NodeEndpoint] = {}
    for key in dict.fromkeys([*done.reads, *acknowledged]):
        topic_id, index = key
        answer = PartitionData(partition_index=index, records=b"")
        refusal = acknowledged.get(key)
        if refusal is not None:
            answer.acknowledge_error_code, answer.acknowledge_error_message = refusal.code, str(refusal)
        read = done.reads.get(key)
        if isinstance(read, KafkaError):
            answer.error_code, answer.error_message = read.code, str(read)
        elif read is not None:
            answer.records = read.data
            answer.acquired_records = [
                AcquiredRecords(first_offset=piece.first, last_offset=piece.last, delivery_count=piece.deliveries)
                for piece in read.acquired
            ]
        if ErrorCode.NOT_LEADER_OR_FOLLOWER in (answer.error_code, answer.acknowledge_error_code):
            leader = new_leader(services, ctx, (topic_id, index))
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
                address = leader[2]
                if address is not None:
                    nodes[leader[0]] = NodeEndpoint(
                        node_id=leader[0], host=address.host, port=address.port, rack=address.rack
                    )
        topics.setdefault(topic_id, ShareFetchableTopicResponse(topic_id=topic_id)).partitions.append(answer)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=lock_ms, responses=list(topics.values()), node_endpoints=list(nodes.values())
    )
