"""Shell: Produce (key 0), versions 3 to 13.

- 3: record batches of format 2; the transactional id (KIP-98)
- 4: KAFKA_STORAGE_ERROR
- 5: the log start offset in the response
- 6: as 5
- 7: batches compressed with zstd (KIP-110)
- 8: errors of single records (KIP-467)
- 9: flexible
- 10: the new leader and its address on NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951)
- 11: TRANSACTION_ABORTABLE (KIP-890)
- 12: transaction protocol 2: the leader adds the partition to the transaction (KIP-890)
- 13: topic ids in place of names (KIP-516)

Appends one batch to each partition. With `acks=1` the response is sent after the leader's append, with `acks=-1` when
every in-sync replica has the records. With `acks=0` there is no response, and an error closes the connection, which
makes the producer refresh its metadata. All appends are made before the first await, so the order of a connection's
requests is the order in the log. While a request waits for replicas the next request of the connection is appended.

A request with very many partitions, or whose batches take long to check (`broker/checking`), is the exception. Its
batches are appended one after the other, with pauses; they are checked off the event loop. The connection starts no
other request until this one is answered, as in Kafka.

A batch with the transactional flag must belong to an open transaction. `broker/verification.py` verifies this with
the transaction coordinator, and keeps a producer's requests in order meanwhile.

Versions 0 to 2 are advertised, because librdkafka needs them (KAFKA-18659), but rejected.

The budget of a request, from received bytes to written response, is counted by `bench/produce_path.py` and described in
docs/PERFORMANCE.md: this module takes 8 of the 121 Python calls for one batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import INTERNAL_TOPICS, TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.core.work import Pauses
from barnabas.protocol.records.batch import CODEC_MASK, HEADER_SIZE, TRANSACTIONAL_FLAG
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.errors import RecordValidationError
from barnabas.protocol.transport.ports import CloseConnectionError
from barnabas.protocol.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.server.broker.checking.checker import FREE_RECORDS, Outcome, ProducedBatch, RequestChecks, light_cost
from barnabas.server.broker.handlers.data.port import DataPort
from barnabas.server.broker.produced_transactions import (
    ATTRIBUTES_AT,
    BUFFERS,
    SEVERAL_PRODUCERS,
    TOPIC_IDS_SINCE,
    Rejected,
    each_partition,
    has_several_producers,
    name_of,
    producer_id_of,
    verify,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.replication.partition import Partition

log = get_logger("barnabas.server.broker")

INVALID_OFFSET = -1
ZSTD_SINCE = 7
ENTRIES_AT_ONCE = 500
"""A request with more partitions is appended in slices, with pauses."""
_APPEND_UNITS = 3
"""What the append of one batch counts (`core/work`)."""
_BEFORE_APPEND = frozenset(
    {
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that are found before the log is read; their responses have no log start offset."""
_LEADER_CHANGED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

_Outcomes = Mapping[int, Outcome]
_Waiting = list[tuple[PartitionProduceResponse, Partition, int]]
"""The response of each appended batch, its partition, and the offset after the batch, which must be committed."""


async def handle(port: DataPort, ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    acks = request.acks
    waiting: _Waiting = []
    cost = light_cost(_batches(request))
    light = cost is not None and (cost <= FREE_RECORDS or port.checker.take(cost))
    entries = 0
    for topic in request.topic_data:
        entries += len(topic.partition_data)
    many = entries > ENTRIES_AT_ONCE
    if many:
        ctx.runs_alone = ctx.has_many_entries = True
        await asyncio.sleep(0)  # decoding has taken long
    checks = None if light else _checks(port, ctx, request)
    if many and checks is None:
        checks = RequestChecks({}, ctx.now_ms)
    if checks is not None and cost is None:
        checks.try_inline(port.checker)
    try:
        outcomes: _Outcomes = {} if checks is None else checks.outcomes
        if checks is not None and not checks.complete:
            ctx.runs_alone = True
            if request.transactional_id is not None:
                await _check_all(port, request, checks)
                ctx.now_ms = port.clock.now_ms()
        if request.transactional_id is not None:
            async with port.transaction_verifier.in_order(request.transactional_id):
                if has_several_producers(port, ctx, request):
                    response = _reject_all(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, SEVERAL_PRODUCERS)
                else:
                    rejected = await verify(port, ctx, request, request.transactional_id)
                    if checks is not None and (many or not checks.complete):
                        response = await _append_in_slices(port, ctx, request, waiting, rejected, checks)
                    else:
                        response = _append_all(port, ctx, request, waiting, rejected, outcomes)
        elif checks is None or (checks.complete and not many):
            response = _append_all(port, ctx, request, waiting, {}, outcomes)
        else:
            response = await _append_in_slices(port, ctx, request, waiting, {}, checks)
    finally:
        if checks is not None:
            checks.close(port.checker)
            outcomes = {}
    if acks == 0:
        _close_on_error(response)
        return None
    for answer, partition, end in waiting:
        if partition.must_flush:
            await _flush(port, answer, partition, end)
    if acks == -1:
        for answer, partition, end in waiting:
            code = partition.try_committed(end)
            if code is None:
                traffic = partition.context.traffic
                traffic.waiting_produces += 1
                try:
                    code = await partition.wait_committed(end, ctx.deadline(request.timeout_ms), for_client=True)
                finally:
                    traffic.waiting_produces -= 1
            if code is not ErrorCode.NONE:
                answer.error_code = code
                answer.base_offset = INVALID_OFFSET
    if ctx.api_version >= 10:
        not_led = [
            (topic, answer)
            for topic in response.responses
            for answer in topic.partition_responses
            if answer.error_code in _LEADER_CHANGED
        ]
        if not_led:
            response.node_endpoints = await _add_current_leaders(port, ctx, not_led)
    return response


def _batches(request: ProduceRequest) -> list[Buffer]:
    """The batches of all partitions that have one."""
    return [
        data.records
        for topic in request.topic_data
        for data in topic.partition_data
        if isinstance(data.records, BUFFERS)
    ]


def _checks(port: DataPort, ctx: RequestContext, request: ProduceRequest) -> RequestChecks:
    """The checks of the batches that this broker will append."""
    batches: dict[int, ProducedBatch] = {}
    for place, (topic, data) in enumerate(each_partition(request)):
        name = name_of(port, ctx, topic)
        partition = None if name is None else port.partitions.get(name, data.index)
        rules = None if partition is None or name in INTERNAL_TOPICS else partition.client_rules
        if rules is not None and isinstance(data.records, BUFFERS) and len(data.records) >= HEADER_SIZE:
            batches[place] = ProducedBatch(data.records, rules)
    return RequestChecks(batches, ctx.now_ms)


async def _check_all(port: DataPort, request: ProduceRequest, checks: RequestChecks) -> None:
    for place, _ in enumerate(each_partition(request)):
        await checks.decide(place, port.checker)


async def _append_in_slices(
    port: DataPort,
    ctx: RequestContext,
    request: ProduceRequest,
    waiting: _Waiting,
    rejected: Rejected,
    checks: RequestChecks,
) -> ProduceResponse:
    """As `_append_all`, with pauses, and one check after the other: a result can have the size of its batch."""
    response = _empty_response(request)
    place = 0
    pauses = Pauses()
    for topic, answers in zip(request.topic_data, response.responses, strict=True):
        for data in topic.partition_data:
            outcome = await checks.finish(place, port.checker)
            ctx.now_ms = port.clock.now_ms()  # LogAppendTime never decreases within a partition
            name = name_of(port, ctx, topic)
            answer = _produce(port, ctx, request, name, data, waiting, rejected, outcome)
            answers.partition_responses.append(answer)
            checks.forget(place)
            place += 1
            await pauses.after(1 if answer.error_code else _APPEND_UNITS)
    return response


def _append_all(
    port: DataPort,
    ctx: RequestContext,
    request: ProduceRequest,
    waiting: _Waiting,
    rejected: Rejected,
    outcomes: _Outcomes,
) -> ProduceResponse:
    responses: list[TopicProduceResponse] = []
    place = 0
    for topic in request.topic_data:
        name = name_of(port, ctx, topic)
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            outcome = outcomes.get(place) if outcomes else None
            answers.append(_produce(port, ctx, request, name, data, waiting, rejected, outcome))
            place += 1
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    return ProduceResponse(responses=responses)


def _empty_response(request: ProduceRequest) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[])
            for topic in request.topic_data
        ]
    )


def _reject_all(request: ProduceRequest, code: ErrorCode, message: str) -> ProduceResponse:
    response = _empty_response(request)
    for topic, answers in zip(request.topic_data, response.responses, strict=True):
        for data in topic.partition_data:
            answer = PartitionProduceResponse(index=data.index, error_code=code, base_offset=INVALID_OFFSET)
            answer.error_message = message
            answers.partition_responses.append(answer)
    return response


def _produce(
    port: DataPort,
    ctx: RequestContext,
    request: ProduceRequest,
    name: str | None,
    data: PartitionProduceData,
    waiting: _Waiting,
    rejected: Rejected,
    outcome: Outcome,
) -> PartitionProduceResponse:
    partition: Partition | None = None
    try:
        if request.acks not in (-1, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = port.partitions.require(name, data.index)
        if name in INTERNAL_TOPICS and ctx.client_id != "__admin_client":
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to the internal topic {name}.")
        if not isinstance(data.records, BUFFERS):
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "A Produce request must contain a record batch for each partition."
            )
        records = data.records
        attributes = records[ATTRIBUTES_AT] if len(records) > ATTRIBUTES_AT else 0
        if attributes & TRANSACTIONAL_FLAG:
            # The batch decides, not the request (CVE-2018-17196): an open transaction without a transactional id would
            # hold back the last stable offset for ever.
            if request.transactional_id is None:
                raise KafkaError(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "The request has a transactional batch but no transactional id.",
                )
            problem = rejected.get(TopicPartition(name, data.index)) if rejected else None
            if problem is not None:
                return _refused(ctx, partition, data, problem)
        if ctx.api_version < ZSTD_SINCE and attributes & CODEC_MASK == CompressionType.ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                "Batches compressed with zstd need Produce version 7 or later (KIP-110).",
            )
        if isinstance(outcome, KafkaError):
            return _refused(ctx, partition, data, outcome)
        info = partition.append(records, request.acks, ctx.now_ms, checked=outcome)
    except KafkaError as error:
        return _refused(ctx, partition, data, error)
    if not info.duplicate:
        usage = ctx.client.usage
        used = usage.partitions.get(partition) or usage.start(ctx.client, partition, producer_id_of(records))
        used.bytes_in += info.size
        used.records_in += info.last_offset - info.first_offset + 1
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )
    waiting.append((answer, partition, info.next_offset))
    return answer


def _refused(
    ctx: RequestContext, partition: Partition | None, data: PartitionProduceData, error: KafkaError
) -> PartitionProduceResponse:
    """The response about a batch that is not appended.

    The error is not raised: it may be a value that a variable of the caller refers to, and its traceback would refer to
    the caller's frame. Such a cycle keeps the request until the garbage collector finds it.
    """
    _count_failure(ctx, partition, data, error.code)
    invalid = error.record_errors if isinstance(error, RecordValidationError) else ()
    return PartitionProduceResponse(
        index=data.index,
        error_code=error.code,
        base_offset=INVALID_OFFSET,
        log_start_offset=_log_start(partition, error.code),
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in invalid
        ],
        error_message=str(error) if isinstance(error, RecordValidationError) else error.detail,
    )


def _count_failure(
    ctx: RequestContext, partition: Partition | None, data: PartitionProduceData, code: ErrorCode
) -> None:
    if ctx.errors is None:
        ctx.errors = []
    ctx.errors.append(code)
    if partition is not None:
        partition.traffic.failed_appends += 1
        partition.traffic.bytes_rejected += len(data.records) if isinstance(data.records, BUFFERS) else 0


def _log_start(partition: Partition | None, code: ErrorCode) -> int:
    """The log start offset of an error response. The producer learns from it whether its earlier batches have been
    deleted (`ReplicaManager.appendRecordsToLeader`). Errors that were found before the log was read have -1.
    """
    if partition is None or partition.log is None or code in _BEFORE_APPEND:
        return -1
    return partition.log.log_start_offset


async def _flush(port: DataPort, answer: PartitionProduceResponse, partition: Partition, end: int) -> None:
    """Wait until the log is flushed up to `end`, so that with `flush.messages=1` a batch is acknowledged after the
    fsync. An error of the fsync is stored in `answer`."""
    try:
        if partition.log is not None:
            await port.flusher.flushed(partition.log, end)
    except KafkaError as error:
        answer.error_code = error.code
        answer.base_offset = INVALID_OFFSET


def _close_on_error(response: ProduceResponse) -> None:
    """Raises CloseConnectionError if a partition of `response` has an error. With acks=0 no response is sent; closing
    the connection makes the producer refresh its metadata (`KafkaApis.handleProduceRequest`).
    """
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                code = ErrorCode(answer.error_code)
                raise CloseConnectionError(
                    f"Produce with acks=0 to {topic.name or topic.topic_id}-{answer.index} failed: {code.name}"
                )


async def _add_current_leaders(
    port: DataPort, ctx: RequestContext, not_led: Iterable[tuple[TopicProduceResponse, PartitionProduceResponse]]
) -> list[NodeEndpoint]:
    """Add the current leaders of partitions that this broker does not lead (KIP-951), which saves Metadata requests.
    Returns the addresses of the leaders."""
    nodes: dict[int, NodeEndpoint] = {}
    pauses = Pauses()
    for topic, answer in not_led:
        await pauses.after(1)
        topics = port.metadata.image.topics
        state = (
            topics.partition(topic.name, answer.index)
            if ctx.api_version < TOPIC_IDS_SINCE
            else topics.partition_by_id(topic.topic_id, answer.index)
        )
        if state is None:
            continue
        answer.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
        address = port.metadata.address(state.leader, ctx.client.listener)
        if address is not None:
            nodes[state.leader] = NodeEndpoint(
                node_id=state.leader, host=address.host, port=address.port, rack=address.rack
            )
    return list(nodes.values())
