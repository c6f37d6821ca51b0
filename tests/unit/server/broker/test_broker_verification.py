"""The gate before transactional writes: who is asked about, what answers mean, and what a marker in between does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.server.broker.verification import Protocol890, TransactionGate, Write
from barnabas.server.replication.partition import Partition
from barnabas.server.storage.producers.state import ProducerEntry

TP = TopicPartition("t", 0)
PRODUCER = 7


@dataclass
class FakePartition:
    """What the gate looks at in a partition."""

    name: TopicPartition = TP
    is_leader: bool = True
    leader_epoch: int = 3
    known: ProducerEntry | None = None

    def producer(self, producer_id: int) -> ProducerEntry | None:
        return self.known


@dataclass
class Coordinator:
    """Answers with the next of `codes` (the last one for ever); `before` runs while it is being asked."""

    codes: list[ErrorCode] = field(default_factory=lambda: [ErrorCode.NONE])
    asked: list[bool] = field(default_factory=list)
    before: Callable[[], None] = lambda: None
    unreachable: bool = False

    async def ask(self, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        self.asked.append(transaction.verify_only)
        await asyncio.sleep(0)
        self.before()
        if self.unreachable:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return AddPartitionsToTxnResult(
            topic_results=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=p, partition_error_code=code)
                        for p in topic.partitions
                    ],
                )
                for topic in transaction.topics
            ]
        )


def write(partition: FakePartition | None = None, sequence: int = 0, epoch: int = 0) -> Write:
    return Write(cast("Partition", partition or FakePartition()), PRODUCER, epoch, sequence)


def admit(gate: TransactionGate, *writes: Write, client: Protocol890 = Protocol890.IMPLICIT, **options: Any) -> Any:
    async def run() -> dict[TopicPartition, ErrorCode]:
        refused = await gate.admit("tx", writes, client, backoff_ms=1, retry_ms=5, **options)
        return {tp: error.code for tp, error in refused.items()}

    return asyncio.run(run())


def test_clients_of_protocol_2_have_the_partition_added_and_older_ones_verified() -> None:
    coordinator = Coordinator()
    gate = TransactionGate(coordinator)
    assert admit(gate, write()) == {}
    assert admit(gate, write(), client=Protocol890.ABORTABLE) == {}
    assert admit(gate, write(), client=Protocol890.LEGACY) == {}
    assert coordinator.asked == [False, True, True]


def test_nobody_is_asked_about_an_open_transaction_nor_where_verification_is_off() -> None:
    coordinator = Coordinator()
    gate = TransactionGate(coordinator)
    open_there = FakePartition(known=ProducerEntry(PRODUCER, 0, txn_first_offset=5))
    assert admit(gate, write(open_there)) == {}
    assert admit(gate, write(), client=Protocol890.LEGACY, verify=False) == {}
    assert admit(gate, write(FakePartition(is_leader=False))) == {}, "the append will say that better"
    assert coordinator.asked == []
    assert admit(gate, write(open_there, epoch=1)) == {}, "of another epoch it is another transaction"
    assert coordinator.asked == [False]


@pytest.mark.parametrize(
    ("code", "client", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, Protocol890.IMPLICIT, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, Protocol890.ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, Protocol890.LEGACY, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, Protocol890.IMPLICIT, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, Protocol890.LEGACY, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_refusals_are_said_in_the_clients_words(code: ErrorCode, client: Protocol890, told: ErrorCode) -> None:
    assert admit(TransactionGate(Coordinator([code])), write(), client=client) == {TP: told}


def test_a_coordinator_that_is_away_refuses_the_write() -> None:
    assert admit(TransactionGate(Coordinator(unreachable=True)), write()) == {TP: ErrorCode.NOT_COORDINATOR}


def test_the_transaction_before_is_waited_for_a_while() -> None:
    patient = Coordinator([ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE])
    assert admit(TransactionGate(patient), write()) == {}
    assert len(patient.asked) == 3
    endless = Coordinator([ErrorCode.CONCURRENT_TRANSACTIONS])
    assert admit(TransactionGate(endless), write()) == {TP: ErrorCode.CONCURRENT_TRANSACTIONS}


def test_a_marker_that_overtakes_the_question_makes_it_be_asked_again() -> None:
    coordinator = Coordinator()
    gate = TransactionGate(coordinator)
    markers = iter([True, False])
    coordinator.before = lambda: gate.on_marker(TP, PRODUCER) if next(markers) else None
    assert admit(gate, write()) == {}
    assert len(coordinator.asked) == 2
    coordinator.before = lambda: gate.on_marker(TP, PRODUCER)
    assert admit(gate, write()) == {TP: ErrorCode.INVALID_TXN_STATE}, "and not for ever"


def test_what_another_leader_may_have_seen_is_asked_again() -> None:
    coordinator = Coordinator()
    gate = TransactionGate(coordinator)
    partition = FakePartition()

    def moves_and_comes_back() -> None:
        if len(coordinator.asked) == 1:
            partition.leader_epoch += 2

    coordinator.before = moves_and_comes_back
    assert admit(gate, write(partition)) == {}
    assert len(coordinator.asked) == 2

    def moves() -> None:
        partition.is_leader = False

    coordinator.before = moves
    assert admit(gate, write(partition)) == {TP: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_a_marker_overtakes_a_write_that_was_admitted_while_another_is_asked_about_again() -> None:
    coordinator = Coordinator()
    gate = TransactionGate(coordinator)
    other = TopicPartition("t", 1)

    def before() -> None:
        match len(coordinator.asked):
            case 1:
                gate.on_marker(other, PRODUCER)  # so that is asked about once more, while the first one waits
            case 2:
                gate.on_marker(TP, PRODUCER)

    coordinator.before = before
    assert admit(gate, write(), write(FakePartition(name=other))) == {}
    assert len(coordinator.asked) == 3
    assert gate._guards == {}


def test_a_later_batch_must_not_become_the_first() -> None:
    gate = TransactionGate(Coordinator([ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]))
    legacy = Protocol890.LEGACY
    assert admit(gate, write(sequence=3), client=legacy) == {TP: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert admit(gate, write(sequence=8), client=legacy) == {TP: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert admit(gate, write(sequence=3), client=legacy) == {}
    unknown = FakePartition(known=None)
    assert admit(gate, write(unknown, sequence=1)) == {TP: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}


def test_writes_of_one_producer_pass_in_the_order_in_which_they_came() -> None:
    async def run() -> list[str]:
        gate = TransactionGate(Coordinator())
        passed: list[str] = []

        async def one(name: str, pauses: int) -> None:
            async with gate.in_line("tx"):
                for _ in range(pauses):
                    await asyncio.sleep(0)
                passed.append(name)

        await asyncio.gather(*(one(f"{i}", 5 - i) for i in range(5)))
        assert gate._lines == {}
        return passed

    assert asyncio.run(run()) == ["0", "1", "2", "3", "4"]
