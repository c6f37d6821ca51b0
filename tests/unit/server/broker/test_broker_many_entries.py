"""Requests with very many entries: their handlers let the event loop run other tasks in between."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from barnabas.core import work
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.errors import RecordValidationError
from barnabas.protocol.records.validate import ValidationRules
from barnabas.protocol.transport.ports import Peer
from barnabas.protocol.wire.messages import add_partitions_to_txn as adding
from barnabas.protocol.wire.messages import produce, share_acknowledge, share_fetch
from barnabas.server.broker.checking.checker import BatchChecker
from barnabas.server.broker.handlers.data import produce as produce_handler
from barnabas.server.broker.handlers.shares import share_acknowledge as acknowledge_handler
from barnabas.server.broker.handlers.shares import share_fetch as fetch_handler
from barnabas.server.broker.handlers.transactions import add_partitions_to_txn as adding_handler
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.share_sessions import ShareSessionCache
from barnabas.server.broker.shares import Shares
from barnabas.server.metadata.image.small import ConfigsImage
from tests.steps import longest_step

EXISTING = 2_000
REQUESTED = 10_000
TOPIC_ID = UUID(int=3)


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run the test in an event loop."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def main() -> None:
            await test(*arguments, **named)

        asyncio.run(main())

    return run


def context(api_key: int, version: int) -> RequestContext:
    return RequestContext(api_key, version, 1, "c", Peer(1, "PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1), 1_000, 0.0)


class Appended:
    """A partition that keeps the order of its appends with those of the others."""

    must_flush = False
    log = None
    traffic = SimpleNamespace(failed_appends=0, bytes_rejected=0)

    def __init__(self, index: int, order: list[int], client_rules: ValidationRules | None) -> None:
        self.name = TopicPartition("t", index)
        self.index = index
        self.order = order
        self.client_rules = client_rules

    def append(self, records: Any, acks: int, now_ms: int, *, checked: Any) -> Any:
        self.order.append(self.index)
        return SimpleNamespace(
            first_offset=7, last_offset=7, next_offset=8, log_append_time_ms=-1, log_start_offset=0, size=len(records),
            duplicate=False,
        )  # fmt: skip

    def try_committed(self, end: int) -> ErrorCode:
        return ErrorCode.NONE


class Log:
    """`Partitions` with EXISTING partitions of one topic."""

    def __init__(self) -> None:
        self.order: list[int] = []

    def get(self, topic: str, index: int) -> Appended | None:
        return Appended(index, self.order, None) if index < EXISTING else None

    def require(self, topic: str, index: int) -> Appended:
        found = self.get(topic, index)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def topic_name(self, topic_id: UUID) -> str | None:
        return None


def produce_request(count: int, codec: CompressionType) -> produce.ProduceRequest:
    batch = build_batch([SimpleRecord(None, b"x", 1)], codec=codec)
    data = [produce.PartitionProduceData(index=index, records=batch) for index in range(count)]
    return produce.ProduceRequest(
        acks=-1, timeout_ms=1_000, topic_data=[produce.TopicProduceData(name="t", partition_data=data)]
    )


class Checking(Log):
    """`Partitions` that check what is appended."""

    def get(self, topic: str, index: int) -> Appended | None:
        return Appended(index, self.order, ValidationRules("t"))


@pytest.mark.parametrize(
    ("timestamp", "size", "code"),
    [(1, 70_000_000, ErrorCode.MESSAGE_TOO_LARGE), (1 << 50, 4_000_000, ErrorCode.INVALID_TIMESTAMP)],
)
@in_loop
async def test_refused_batches_leave_no_memory(timestamp: int, size: int, code: ErrorCode) -> None:
    batch = build_batch([SimpleRecord(None, bytes(size), timestamp)], codec=CompressionType.ZSTD)
    checker = BatchChecker(None)
    services: Any = SimpleNamespace(partitions=Checking(), checker=checker, clock=SimpleNamespace(now_ms=lambda: 1_000))
    data = [produce.PartitionProduceData(index=index, records=batch) for index in range(3)]
    request = produce.ProduceRequest(
        acks=-1, timeout_ms=1_000, topic_data=[produce.TopicProduceData(name="t", partition_data=data)]
    )
    gc.collect()
    gc.disable()  # what only the collector frees is kept for minutes
    tracemalloc.start()
    try:
        for _ in range(2):
            response = await produce_handler.handle(services, context(0, 9), request)
            assert response is not None
            assert {answer.error_code for answer in response.responses[0].partition_responses} == {code}
        held, _ = tracemalloc.get_traced_memory()
        errors = [found for found in gc.get_objects() if issubclass(type(found), RecordValidationError)]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held < 1_000_000
    assert len(errors) <= 1  # the checking thread may still have the last; one in a cycle would keep the request


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD])
@in_loop
async def test_a_produce_to_very_many_partitions_is_appended_in_order_in_short_steps(codec: CompressionType) -> None:
    log = Log()
    clock = SimpleNamespace(now_ms=lambda: 1_000)
    services: Any = SimpleNamespace(partitions=log, checker=BatchChecker(None), clock=clock)
    ctx = context(0, 9)
    response, longest = await longest_step(produce_handler.handle(services, ctx, produce_request(REQUESTED, codec)))
    assert response is not None
    answers = response.responses[0].partition_responses
    assert [answer.index for answer in answers] == list(range(REQUESTED))
    assert {answer.base_offset for answer in answers[:EXISTING]} == {7}
    assert {answer.error_code for answer in answers[EXISTING:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert log.order == list(range(EXISTING))
    assert ctx.runs_alone
    assert ctx.has_many_entries
    assert longest <= work.STEP_UNITS + produce_handler._APPEND_UNITS


def test_a_produce_to_few_partitions_is_appended_before_the_first_await() -> None:
    log = Log()
    services: Any = SimpleNamespace(partitions=log, checker=BatchChecker(None))
    ctx = context(0, 9)
    count = produce_handler.ENTRIES_AT_ONCE
    handling = produce_handler.handle(services, ctx, produce_request(count, CompressionType.NONE))
    with pytest.raises(StopIteration):
        handling.send(None)
    assert log.order == list(range(count))
    assert not ctx.runs_alone


def shares_of(known: bool) -> Any:
    config = SimpleNamespace(partition=SimpleNamespace(share_record_lock_duration_ms=30_000))
    partitions = SimpleNamespace(config=lambda group: config, find=lambda *key: None)
    sessions = ShareSessionCache(10)
    shares = Shares(None, None, partitions, sessions)  # type: ignore[arg-type]
    features = SimpleNamespace(level=lambda name: 1)
    metadata = SimpleNamespace(image=SimpleNamespace(features=features))
    return SimpleNamespace(
        shares=shares,
        partitions=Log(),
        metadata=metadata,
        config=SimpleNamespace(current=SimpleNamespace(fetch_max_bytes=1_000_000)),
    )


@in_loop
async def test_a_share_fetch_of_very_many_partitions_is_answered_in_short_steps() -> None:
    services = shares_of(known=False)
    partitions = [share_fetch.FetchPartition(partition_index=index) for index in range(REQUESTED)]
    request = share_fetch.ShareFetchRequest(
        group_id="s", member_id="m", max_records=1, batch_size=1, max_bytes=1_000,
        topics=[share_fetch.FetchTopic(topic_id=TOPIC_ID, partitions=partitions)],
    )  # fmt: skip
    ctx = context(78, 1)
    response, longest = await longest_step(fetch_handler.handle(services, ctx, request))
    answers = response.responses[0].partitions
    assert [answer.partition_index for answer in answers] == list(range(REQUESTED))
    assert {answer.error_code for answer in answers} == {ErrorCode.UNKNOWN_TOPIC_ID}
    assert ctx.has_many_entries
    assert longest <= 2 * work.STEP_UNITS


@in_loop
async def test_acknowledgements_of_very_many_partitions_are_answered_in_short_steps() -> None:
    services = shares_of(known=False)
    services.shares.sessions.open(("s", "m"), 0, [(TOPIC_ID, 0)], [], 1, acknowledges=False)
    batch = share_acknowledge.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    partitions = [
        share_acknowledge.AcknowledgePartition(partition_index=index, acknowledgement_batches=[batch])
        for index in range(REQUESTED)
    ]
    request = share_acknowledge.ShareAcknowledgeRequest(
        group_id="s", member_id="m", share_session_epoch=1,
        topics=[share_acknowledge.AcknowledgeTopic(topic_id=TOPIC_ID, partitions=partitions)],
    )  # fmt: skip
    response, longest = await longest_step(acknowledge_handler.handle(services, context(79, 1), request))
    codes = [answer.error_code for answer in response.responses[0].partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * REQUESTED
    assert longest <= 2 * work.STEP_UNITS


class Transactions:
    """Counts the requests that wait at the same time."""

    def __init__(self) -> None:
        self.added: list[list[TopicPartition]] = []

    async def add_partitions(self, name: str, producer: Any, partitions: Any, **_: Any) -> ErrorCode:
        self.added.append(list(partitions))
        return ErrorCode.NONE

    async def add_or_verify_partitions(self, transaction: Any, *, version: int) -> Any:
        return adding.AddPartitionsToTxnResult(transactional_id=transaction.transactional_id)


def transaction_services(transactions: Transactions) -> Any:
    topics = SimpleNamespace(partition=lambda name, index: object() if index < EXISTING else None)
    image = SimpleNamespace(topics=topics, configs=ConfigsImage(), features=SimpleNamespace(levels={}))
    config = SimpleNamespace(current=SimpleNamespace(add_partitions_to_txn_retry_backoff_max_ms=0))
    return SimpleNamespace(metadata=SimpleNamespace(image=image), transactions=transactions, config=config)


@pytest.mark.parametrize("existing", [True, False])
@in_loop
async def test_very_many_partitions_are_added_to_a_transaction_in_short_steps(existing: bool) -> None:
    transactions = Transactions()
    last = EXISTING if existing else EXISTING + 1
    indexes = [index % last for index in range(REQUESTED)]
    request = adding.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x", v3_and_below_producer_id=1, v3_and_below_producer_epoch=0,
        v3_and_below_topics=[adding.AddPartitionsToTxnTopic(name="t", partitions=indexes)],
    )  # fmt: skip
    response, longest = await longest_step(
        adding_handler.handle(transaction_services(transactions), context(24, 3), request)
    )
    results = response.results_by_topic_v3_and_below[0].results_by_partition
    assert [result.partition_index for result in results] == indexes
    codes = {result.partition_error_code for result in results}
    if existing:
        assert codes == {ErrorCode.NONE}
        assert transactions.added == [[TopicPartition("t", index) for index in range(EXISTING)]]
    else:
        assert codes == {ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not transactions.added
    assert longest <= work.STEP_UNITS + 1


@in_loop
async def test_very_many_transactions_are_answered_in_order() -> None:
    names = [f"x{index}" for index in range(1_000)]
    topics = [adding.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    request = adding.AddPartitionsToTxnRequest(
        transactions=[
            adding.AddPartitionsToTxnTransaction(transactional_id=name, producer_id=1, producer_epoch=0, topics=topics)
            for name in names
        ]
    )
    response, longest = await longest_step(
        adding_handler.handle(transaction_services(Transactions()), context(24, 5), request)
    )
    assert [result.transactional_id for result in response.results_by_transaction] == names
    assert longest <= 5 * work.TASKS_AT_ONCE
