"""Verification of transactional writes: which writes are verified, which errors clients get, markers in between."""

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
from barnabas.server.broker.verification import TransactionalWrite, TransactionSupportedOperation, TransactionVerifier
from barnabas.server.replication.partition import Partition
from barnabas.server.storage.producers.state import ProducerEntry

ADD_PARTITION = TransactionSupportedOperation.ADD_PARTITION
GENERIC_ERROR_SUPPORTED = TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED
DEFAULT_ERROR = TransactionSupportedOperation.DEFAULT_ERROR
TP = TopicPartition("t", 0)
PRODUCER = 7


@dataclass
class FakePartition:
    """The attributes of a partition that the verifier reads."""

    name: TopicPartition = TP
    is_leader: bool = True
    leader_epoch: int = 3
    known: ProducerEntry | None = None

    def producer(self, producer_id: int) -> ProducerEntry | None:
        return self.known


@dataclass
class Coordinator:
    """Responds with the next of `codes`, then with the last one; `before` runs before each response."""

    codes: list[ErrorCode] = field(default_factory=lambda: [ErrorCode.NONE])
    requests: list[bool] = field(default_factory=list)
    before: Callable[[], None] = lambda: None
    unreachable: bool = False

    async def send(self, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        self.requests.append(transaction.verify_only)
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


def write(partition: FakePartition | None = None, sequence: int = 0, epoch: int = 0) -> TransactionalWrite:
    return TransactionalWrite(cast("Partition", partition or FakePartition()), PRODUCER, epoch, sequence)


def verify(
    verifier: TransactionVerifier,
    *writes: TransactionalWrite,
    supported: TransactionSupportedOperation = ADD_PARTITION,
    **options: Any,
) -> Any:
    async def run() -> dict[TopicPartition, ErrorCode]:
        refused = await verifier.verify(
            "tx",
            writes,
            supported,
            add_partitions_to_txn_retry_backoff_ms=1,
            add_partitions_to_txn_retry_backoff_max_ms=5,
            **options,
        )
        return {tp: error.code for tp, error in refused.items()}

    return asyncio.run(run())


def test_partition_is_added_for_clients_of_protocol_2_and_verified_for_older_ones() -> None:
    coordinator = Coordinator()
    verifier = TransactionVerifier(coordinator)
    assert verify(verifier, write()) == {}
    assert verify(verifier, write(), supported=GENERIC_ERROR_SUPPORTED) == {}
    assert verify(verifier, write(), supported=DEFAULT_ERROR) == {}
    assert coordinator.requests == [False, True, True]


def test_no_request_for_an_open_transaction_or_without_verification() -> None:
    coordinator = Coordinator()
    verifier = TransactionVerifier(coordinator)
    open_there = FakePartition(known=ProducerEntry(PRODUCER, 0, txn_first_offset=5))
    assert verify(verifier, write(open_there)) == {}
    assert verify(verifier, write(), supported=DEFAULT_ERROR, transaction_partition_verification_enable=False) == {}
    assert verify(verifier, write(FakePartition(is_leader=False))) == {}, "the append fails with the right error"
    assert coordinator.requests == []
    assert verify(verifier, write(open_there, epoch=1)) == {}, "another epoch is another transaction"
    assert coordinator.requests == [False]


def test_write_with_an_older_epoch_than_the_partition_has_seen_is_rejected_without_a_request() -> None:
    coordinator = Coordinator([ErrorCode.CONCURRENT_TRANSACTIONS])
    verifier = TransactionVerifier(coordinator)
    ahead = FakePartition(known=ProducerEntry(PRODUCER, 2))
    for supported in TransactionSupportedOperation:
        assert verify(verifier, write(ahead, epoch=1), supported=supported) == {TP: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert coordinator.requests == []


@pytest.mark.parametrize(
    ("code", "supported", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, ADD_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, GENERIC_ERROR_SUPPORTED, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, DEFAULT_ERROR, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ADD_PARTITION, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, DEFAULT_ERROR, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_client_gets_an_error_that_it_knows(
    code: ErrorCode, supported: TransactionSupportedOperation, expected: ErrorCode
) -> None:
    assert verify(TransactionVerifier(Coordinator([code])), write(), supported=supported) == {TP: expected}


def test_write_is_rejected_if_the_coordinator_does_not_answer() -> None:
    assert verify(TransactionVerifier(Coordinator(unreachable=True)), write()) == {TP: ErrorCode.NOT_COORDINATOR}


def test_concurrent_transactions_is_retried_for_a_while() -> None:
    patient = Coordinator([ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE])
    assert verify(TransactionVerifier(patient), write()) == {}
    assert len(patient.requests) == 3
    endless = Coordinator([ErrorCode.CONCURRENT_TRANSACTIONS])
    assert verify(TransactionVerifier(endless), write()) == {TP: ErrorCode.CONCURRENT_TRANSACTIONS}


def test_marker_during_a_request_causes_another_request() -> None:
    coordinator = Coordinator()
    verifier = TransactionVerifier(coordinator)
    markers = iter([True, False])
    coordinator.before = lambda: verifier.on_marker(TP, PRODUCER) if next(markers) else None
    assert verify(verifier, write()) == {}
    assert len(coordinator.requests) == 2
    coordinator.before = lambda: verifier.on_marker(TP, PRODUCER)
    assert verify(verifier, write()) == {TP: ErrorCode.INVALID_TXN_STATE}, "the requests are bounded"


def test_change_of_leader_epoch_causes_another_request() -> None:
    coordinator = Coordinator()
    verifier = TransactionVerifier(coordinator)
    partition = FakePartition()

    def moves_and_comes_back() -> None:
        if len(coordinator.requests) == 1:
            partition.leader_epoch += 2

    coordinator.before = moves_and_comes_back
    assert verify(verifier, write(partition)) == {}
    assert len(coordinator.requests) == 2

    def moves() -> None:
        partition.is_leader = False

    coordinator.before = moves
    assert verify(verifier, write(partition)) == {TP: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_marker_of_a_verified_write_during_a_further_request_causes_another_request() -> None:
    coordinator = Coordinator()
    verifier = TransactionVerifier(coordinator)
    other = TopicPartition("t", 1)

    def before() -> None:
        match len(coordinator.requests):
            case 1:
                verifier.on_marker(other, PRODUCER)  # so that a request is sent again, while the first write waits
            case 2:
                verifier.on_marker(TP, PRODUCER)

    coordinator.before = before
    assert verify(verifier, write(), write(FakePartition(name=other))) == {}
    assert len(coordinator.requests) == 3
    assert verifier._guards == {}


def test_later_batch_does_not_become_the_first_of_a_transaction() -> None:
    verifier = TransactionVerifier(Coordinator([ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]))
    default_error = DEFAULT_ERROR
    assert verify(verifier, write(sequence=3), supported=default_error) == {TP: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert verify(verifier, write(sequence=8), supported=default_error) == {TP: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert verify(verifier, write(sequence=3), supported=default_error) == {}
    unknown = FakePartition(known=None)
    assert verify(verifier, write(unknown, sequence=1)) == {TP: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}


def test_writes_of_one_producer_keep_their_order() -> None:
    async def run() -> list[str]:
        verifier = TransactionVerifier(Coordinator())
        passed: list[str] = []

        async def one(name: str, pauses: int) -> None:
            async with verifier.in_order("tx"):
                for _ in range(pauses):
                    await asyncio.sleep(0)
                passed.append(name)

        await asyncio.gather(*(one(f"{i}", 5 - i) for i in range(5)))
        assert verifier._queues == {}
        return passed

    assert asyncio.run(run()) == ["0", "1", "2", "3", "4"]
