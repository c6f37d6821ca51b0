"""Channels between coordinators and leaders: who is asked, what travels together, and what failures become."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.protocol.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.wire.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateData,
    ReadStateResult,
)
from barnabas.protocol.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.protocol.wire.schema import Request, Response
from barnabas.server.peers.batched_requests import BatchedRequests
from barnabas.server.peers.coordination import CoordinationChannels
from tests.golden.coordination.stage import settle
from tests.unit.server.coordination.kit import run_virtual

HERE, THERE = 1, 2
TOPIC_ID = UUID(int=7)


@dataclass
class Topics:
    """Topic -> the leader of each partition."""

    leaders: dict[str, list[int]]

    def get(self, name: str) -> Any:
        found = self.leaders.get(name)
        return found and SimpleNamespace(partitions=[SimpleNamespace(leader=leader) for leader in found])

    def partition(self, name: str, index: int) -> Any:
        topic = self.get(name)
        return topic.partitions[index] if topic and index < len(topic.partitions) else None

    def __contains__(self, name: str) -> bool:
        return name in self.leaders


@dataclass
class Others:
    """The other brokers: answers by `reply`; holds answers back while `held` is not set."""

    reply: Callable[[Any], Response]
    sent: list[tuple[int, Request, str]] = field(default_factory=list)
    held: asyncio.Event | None = None
    failure: ErrorCode | None = None

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int, purpose: str = "") -> Response:
        assert timeout_ms == 30_000
        self.sent.append((broker_id, request, purpose))
        if self.held is not None:
            await self.held.wait()
        if self.failure is not None:
            raise KafkaError(self.failure)
        return self.reply(request)


def play(
    others: Others,
    leaders: dict[str, list[int]],
    scenario: Callable[[CoordinationChannels], Awaitable[None]],
    **local: Any,
) -> None:
    async def main() -> None:
        config = SimpleNamespace(request_timeout_ms=30_000, add_partitions_to_txn_retry_backoff_ms=20)
        here = SimpleNamespace(
            node_id=HERE,
            metadata=SimpleNamespace(image=SimpleNamespace(topics=Topics(leaders))),
            broker_config=SimpleNamespace(current=config),
            **local,
        )
        channels = CoordinationChannels(others, cast("Any", here))
        owner = asyncio.get_running_loop().create_task(channels.run())
        await settle()
        try:
            await scenario(channels)
        finally:
            owner.cancel()
            await asyncio.gather(owner, return_exceptions=True)

    run_virtual(main())


async def code_of(awaitable: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        await awaitable
    return refusal.value.code


# -- transactions ------------------------------------------------------------------------------------------------------


def transaction(name: str) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(transactional_id=name, producer_id=5, producer_epoch=0)


def confirm(request: AddPartitionsToTxnRequest) -> Response:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=t.transactional_id) for t in reversed(request.transactions)
        ]
    )


def asked(others: Others) -> list[list[str]]:
    return [[t.transactional_id for t in cast("Any", request).transactions] for _, request, _ in others.sent]


def test_requests_to_a_coordinator_are_batched_while_one_is_in_flight() -> None:
    others = Others(confirm)

    async def scenario(channels: CoordinationChannels) -> None:
        others.held = asyncio.Event()
        waiting = []
        for name in ("a", "b", "c", "b", "d"):
            waiting.append(asyncio.ensure_future(channels.transactions.send(transaction(name))))
            await settle()
        waiting[2].cancel()
        others.held.set()
        await asyncio.wait(waiting)
        assert [w.result().transactional_id for w in waiting if not w.cancelled()] == ["a", "b", "b", "d"]
        assert asked(others) == [["a"], ["b", "d"], ["b"]], "an id once in a request: answers are told apart by it"
        assert {(broker, purpose) for broker, _, purpose in others.sent} == {(THERE, "transactions")}

    play(others, {TRANSACTION_STATE_TOPIC: [THERE]}, scenario)


def test_local_coordinator_is_called_directly() -> None:
    async def add_or_verify_partitions(
        asked: AddPartitionsToTxnTransaction, *, version: int, max_wait_ms: int
    ) -> AddPartitionsToTxnResult:
        return AddPartitionsToTxnResult(transactional_id=f"{asked.transactional_id} v{version} {max_wait_ms} ms")

    async def scenario(channels: CoordinationChannels) -> None:
        names = ["a", "b", "c", "d"]
        answers = [(await channels.transactions.send(transaction(name))).transactional_id for name in names]
        assert answers == [f"{name} v2 20 ms" if coordinator_partition(name, 2) == 0 else name for name in names]

    coordinator = SimpleNamespace(add_or_verify_partitions=add_or_verify_partitions)
    play(
        Others(confirm),
        {TRANSACTION_STATE_TOPIC: [HERE, THERE]},
        scenario,
        transaction_port=SimpleNamespace(transactions=coordinator),
    )


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION),
        (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_unreachable_coordinator_is_a_network_exception(failure: ErrorCode, told: ErrorCode) -> None:
    others = Others(confirm, failure=failure)

    async def scenario(channels: CoordinationChannels) -> None:
        assert await code_of(channels.transactions.send(transaction("a"))) is told
        others.failure = None
        assert (await channels.transactions.send(transaction("a"))).transactional_id == "a"

    play(others, {TRANSACTION_STATE_TOPIC: [THERE]}, scenario)


def test_unknown_coordinator_and_incomplete_responses_raise_errors() -> None:
    async def nobody(channels: CoordinationChannels) -> None:
        assert await code_of(channels.transactions.send(transaction("a"))) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(Others(confirm), {}, nobody)
    play(Others(confirm), {TRANSACTION_STATE_TOPIC: [-1]}, nobody)

    def refuse(_: Any) -> Response:
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    async def refused(channels: CoordinationChannels) -> None:
        assert await code_of(channels.transactions.send(transaction("a"))) is ErrorCode.INVALID_TXN_STATE

    play(Others(refuse), {TRANSACTION_STATE_TOPIC: [THERE]}, refused)

    async def forgotten(channels: CoordinationChannels) -> None:
        assert await code_of(channels.transactions.send(transaction("a"))) is ErrorCode.UNKNOWN_SERVER_ERROR

    play(Others(lambda _: AddPartitionsToTxnResponse()), {TRANSACTION_STATE_TOPIC: [THERE]}, forgotten)


def test_queued_requests_fail_when_the_node_stops() -> None:
    async def main() -> None:
        forever = asyncio.Event()

        async def carry(key: int, items: list[str]) -> Sequence[str]:
            await forever.wait()
            return items

        requests: BatchedRequests[int, str, str] = BatchedRequests(lambda waiting: [0], carry)
        assert await code_of(requests.ask(THERE, "early")) is ErrorCode.BROKER_NOT_AVAILABLE
        owner = asyncio.ensure_future(requests.run())
        await settle()
        waiting = [asyncio.ensure_future(requests.ask(THERE, item)) for item in ("first", "second")]
        await settle()
        owner.cancel()
        assert [await code_of(w) for w in waiting] == [ErrorCode.BROKER_NOT_AVAILABLE] * 2

    run_virtual(main())


# -- markers -----------------------------------------------------------------------------------------------------------


def test_markers_are_sent_to_the_leader_and_a_stopped_broker_is_a_network_exception() -> None:
    others = Others(lambda _: WriteTxnMarkersResponse())

    async def scenario(channels: CoordinationChannels) -> None:
        markers = channels.markers
        assert [markers.leader(TopicPartition("t", p)) for p in range(4)] == [HERE, THERE, -1, None]
        request = WriteTxnMarkersRequest()
        await markers.write(THERE, request)
        assert others.sent == [(THERE, request, "markers")]
        others.failure = ErrorCode.BROKER_NOT_AVAILABLE
        assert await code_of(markers.write(THERE, request)) is ErrorCode.NETWORK_EXCEPTION

    play(others, {"t": [HERE, THERE, -1]}, scenario)


# -- share state -------------------------------------------------------------------------------------------------------


def read_of(group: str, partition: int) -> ReadShareGroupStateRequest:
    data = ReadStateData(topic_id=TOPIC_ID, partitions=[PartitionData(partition=partition, leader_epoch=3)])
    return ReadShareGroupStateRequest(group_id=group, topics=[data])


def state_of(request: ReadShareGroupStateRequest) -> Response:
    """The start offset is ten times the partition; nothing is said of partition 9."""
    return ReadShareGroupStateResponse(
        results=[
            ReadStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    PartitionResult(partition=p.partition, start_offset=10 * p.partition)
                    for p in topic.partitions
                    if p.partition != 9
                ],
            )
            for topic in request.topics
        ]
    )


def test_share_state_is_read_for_many_share_partitions_of_a_group_at_once() -> None:
    others = Others(state_of)

    async def scenario(channels: CoordinationChannels) -> None:
        others.held = asyncio.Event()
        wanted = [("g", 0), ("g", 1), ("h", 2), ("g", 3), ("g", 9)]
        waiting = []
        for one in wanted:
            waiting.append(asyncio.ensure_future(channels.share_coordinators.send("key", read_of(*one))))
            await settle()
        others.held.set()
        answers: list[Any] = await asyncio.gather(*waiting, return_exceptions=True)
        starts = [
            answer.code if isinstance(answer, KafkaError) else answer.results[0].partitions[0].start_offset
            for answer in answers
        ]
        assert starts == [0, 10, 20, 30, ErrorCode.UNKNOWN_SERVER_ERROR]
        messages = [
            (request.group_id, [p.partition for topic in request.topics for p in topic.partitions])
            for _, request, _ in cast("list[tuple[int, Any, str]]", others.sent)
        ]
        assert messages == [("g", [0]), ("g", [1, 3, 9]), ("h", [2])]

    play(others, {SHARE_STATE_TOPIC: [THERE]}, scenario)


# -- where partitions end ----------------------------------------------------------------------------------------------


def test_end_offsets_come_from_the_leaders_and_failures_are_left_out() -> None:
    def ends(request: ListOffsetsRequest) -> Response:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=p.partition_index,
                            offset=100 + p.partition_index,
                            error_code=0 if p.partition_index < 3 else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    others = Others(ends)
    here = SimpleNamespace(is_leader=True, high_watermark=5)
    hosted = SimpleNamespace(get=lambda topic, partition: here)

    async def scenario(channels: CoordinationChannels) -> None:
        partitions = [TopicPartition("t", p) for p in range(6)]
        found = await channels.log_ends.ends(partitions)
        assert found == {partitions[0]: 5, partitions[1]: 101, partitions[2]: 102}
        others.failure = ErrorCode.REQUEST_TIMED_OUT
        assert await channels.log_ends.ends(partitions) == {partitions[0]: 5}

    play(others, {"t": [HERE, THERE, THERE, THERE, -1]}, scenario, partitions=hosted)
