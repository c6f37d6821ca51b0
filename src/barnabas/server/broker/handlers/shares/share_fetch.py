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
from collections.abc import Callable

from msgspec import Struct, field

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.work import Pauses
from barnabas.protocol.transport.ports import Peer
from barnabas.protocol.wire.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from barnabas.server.broker.features import require_share_groups
from barnabas.server.broker.handlers.shares.port import SharesPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.share_sessions import FINAL_EPOCH, MemberKey, PartitionKey
from barnabas.server.broker.shares import AcknowledgeResults, check_member
from barnabas.server.replication.purgatory import DelayedOperation, Purgatory
from barnabas.server.replication.rules.share_values import AcquireRequest
from barnabas.server.replication.shares.partition import ShareRead

RECORD_LIMIT_MODE = 1
_COORDINATOR_UNAVAILABLE = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
_CLIENT_ERRORS = {
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_REQUEST: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class _Pass(Struct):
    """One pass over the partitions of the session: the acquired records, and the wait for more."""

    client: Peer
    may_read: Callable[[str], bool] | None = None
    """As in `RequestContext`."""
    reads: dict[PartitionKey, ShareRead | KafkaError] = field(default_factory=dict)
    purgatories: list[Purgatory] = field(default_factory=list)
    acquired: int = 0
    operation: DelayedOperation = field(default_factory=DelayedOperation)
    """Added to the purgatories of each partition before the partition is read, so that no change is missed."""

    def watch(self, *purgatories: Purgatory) -> None:
        self.purgatories += purgatories
        for purgatory in purgatories:
            purgatory.add(self.operation)

    def close(self) -> None:
        for purgatory in self.purgatories:
            purgatory.discard(self.operation)


_UNITS = 2
"""The units of work (`core/work`) of the read of one share partition."""
_MANY_ENTRIES = 500
"""The response to more share partitions is encoded in a thread."""


async def handle(port: SharesPort, ctx: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
    require_share_groups(port.metadata)
    shares = port.shares
    requested, acks = await _requested(request)
    forgotten = [(topic.topic_id, p) for topic in request.forgotten_topics_data for p in topic.partitions]
    try:
        member = check_member(request.group_id, request.member_id)
        if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "A request that renews acquisition locks must not fetch records."
            )
        wanted = shares.sessions.open(
            member,
            request.share_session_epoch,
            requested,
            forgotten,
            ctx.client.connection_id,
            acknowledges=bool(acks),
        )
    except KafkaError as error:
        return ShareFetchResponse(error_code=error.code, error_message=str(error))
    acknowledged = await shares.acknowledge(member, acks, renews=request.is_renew_ack)
    done = _Pass(ctx.client)
    if request.share_session_epoch == FINAL_EPOCH:
        await shares.close(member)
    elif not request.is_renew_ack and request.max_bytes > 0:
        done = await _fetch(port, ctx, request, member, wanted)
    settings = shares.partitions.config(member[0])
    return await _respond(port, ctx, acknowledged, done, settings.partition.share_record_lock_duration_ms)


async def _requested(
    request: ShareFetchRequest,
) -> tuple[list[PartitionKey], dict[PartitionKey, list[AcknowledgementBatch]]]:
    """The partitions of a request, and the acknowledgements of those that have some."""
    partitions: list[PartitionKey] = []
    acks: dict[PartitionKey, list[AcknowledgementBatch]] = {}
    pauses = Pauses()
    for topic in request.topics:
        for p in topic.partitions:
            key = (topic.topic_id, p.partition_index)
            partitions.append(key)
            if p.acknowledgement_batches:
                acks[key] = p.acknowledgement_batches
            await pauses.after(1)
    return partitions, acks


async def _fetch(
    port: SharesPort, ctx: RequestContext, request: ShareFetchRequest, member: MemberKey, wanted: list[PartitionKey]
) -> _Pass:
    deadline = ctx.deadline(request.max_wait_ms)
    loop = asyncio.get_running_loop()
    while True:
        done = _Pass(ctx.client, ctx.may_read)
        try:
            await _acquire_all(port, request, member, wanted, done)
            failed = any(isinstance(read, KafkaError) for read in done.reads.values())
            if done.acquired or failed or not wanted or loop.time() >= deadline:
                return done
            await done.operation.wait(1, deadline)
        finally:
            done.close()


async def _acquire_all(
    port: SharesPort, request: ShareFetchRequest, member: MemberKey, wanted: list[PartitionKey], done: _Pass
) -> None:
    """Acquire records of each partition, in order, until MaxRecords or MaxBytes is reached."""
    shares, partitions = port.shares, port.partitions
    group_id, member_id = member
    bytes_left = min(request.max_bytes, port.config.current.fetch_max_bytes)
    most = request.max_records if request.max_records > 0 else 1
    pauses = Pauses()
    for topic_id, index in wanted:
        await pauses.after(_UNITS)
        if done.acquired >= most or bytes_left <= 0:
            break
        name = partitions.topic_name(topic_id)
        try:
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            if done.may_read is not None and not done.may_read(name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            partition = partitions.require(name, index)
            found = await shares.partitions.get(group_id, partition)
            wish = AcquireRequest(
                member_id,
                most - done.acquired,
                max(request.batch_size, 1),
                strict=request.share_acquire_mode == RECORD_LIMIT_MODE,
            )
            done.watch(found.delayed_fetches, partition.consumer_fetches)
            read = await found.fetch(wish, bytes_left, port.disk)
        except KafkaError as error:
            if error.code in _COORDINATOR_UNAVAILABLE:
                continue  # the share coordinator is moving; the member sends the next request soon
            done.reads[topic_id, index] = KafkaError(_CLIENT_ERRORS.get(error.code, error.code), error.detail)
            continue
        if read.acquired:
            done.reads[topic_id, index] = read
            done.acquired += sum(piece.last - piece.first + 1 for piece in read.acquired)
            bytes_left -= len(read.data)
            usage = done.client.usage
            used = usage.partitions.get(partition) or usage.start(done.client, partition)
            used.bytes_out += len(read.data)


async def _respond(
    port: SharesPort, ctx: RequestContext, acknowledged: AcknowledgeResults, done: _Pass, lock_ms: int
) -> ShareFetchResponse:
    topics: dict[object, ShareFetchableTopicResponse] = {}
    nodes: dict[int, NodeEndpoint] = {}
    pauses = Pauses()
    keys = dict.fromkeys([*done.reads, *acknowledged])
    ctx.has_many_entries = len(keys) > _MANY_ENTRIES
    for key in keys:
        topic_id, index = key
        answer = PartitionData(partition_index=index, records=b"")
        problem = acknowledged.get(key)
        if problem is not None:
            answer.acknowledge_error_code, answer.acknowledge_error_message = problem.code, str(problem)
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
            leader = port.metadata.current_leader(topic_id, index, ctx.client.listener)
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
                address = leader.address
                if address is not None:
                    nodes[leader.leader_id] = NodeEndpoint(
                        node_id=leader.leader_id, host=address.host, port=address.port, rack=address.rack
                    )
        topics.setdefault(topic_id, ShareFetchableTopicResponse(topic_id=topic_id)).partitions.append(answer)
        await pauses.after(1)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=lock_ms, responses=list(topics.values()), node_endpoints=list(nodes.values())
    )
