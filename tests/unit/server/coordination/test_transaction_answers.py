"""Every cell of the coordinator's table of answers, compared with Apache Kafka's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import ProducerIdAndEpoch
from barnabas.server.coordination.timeline import Timeline
from barnabas.server.coordination.transaction.ports import MarkerJob
from barnabas.server.coordination.transaction.shard import TransactionShard
from barnabas.server.coordination.transaction.transitions import InitProducerIdArgs
from tests.configs import transaction_config
from tests.unit.server.coordination.kafka_transaction_cells import (
    DELIBERATE,
    KAFKA,
    Cell,
    Outcome,
    Producer,
    TxnRequest,
    aged,
    ask,
    reach,
)
from tests.unit.server.coordination.kit import seeded

NAME = "id"
PARTITION = TopicPartition("t", 0)
OFFSETS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)


@dataclass
class ShardCoordinator:
    """One transactional id in a shard without a log. Markers are written when the test says so."""

    jobs: list[MarkerJob] = field(default_factory=list)
    shard: TransactionShard = field(init=False)

    def __post_init__(self) -> None:
        self.shard = TransactionShard(0, transaction_config(), Timeline(), self, lambda: 2)

    def put(self, job: MarkerJob) -> None:
        self.jobs.append(job)

    def drop(self, state_partition: int) -> None:
        self.jobs.clear()

    def _code(self, decide: Callable[[WriteOperation], ErrorCode | int]) -> ErrorCode:
        op = WriteOperation(1_000, seeded())
        try:
            code = decide(op)
        except KafkaError as error:
            return error.code
        for record in op.records:
            self.shard.apply(record, 0, -1)
        if op.append_callback is not None:
            op.append_callback(WriteOperation(1_000, seeded()), ErrorCode.NONE)
        return ErrorCode(code)

    def _identity(self) -> Producer:
        txn = self.shard.transactions.get(NAME)
        return Producer(*txn.identity) if txn is not None else Producer(-1, -1)

    # -- kafka_transaction_cells.Coordinator

    def init(self, producer: Producer | None) -> tuple[ErrorCode, Producer]:
        args = InitProducerIdArgs(60_000, *producer) if producer is not None else InitProducerIdArgs(60_000)
        code = self._code(lambda op: self.shard.init_producer_id(op, NAME, args, 100).error_code)
        return code, self._identity()

    def add(self, producer: Producer) -> ErrorCode:
        return self._add(producer, PARTITION)

    def add_offsets(self, producer: Producer) -> ErrorCode:
        return self._add(producer, OFFSETS)

    def _add(self, producer: Producer, partition: TopicPartition) -> ErrorCode:
        identity = ProducerIdAndEpoch(*producer)
        return self._code(lambda op: self.shard.add_partitions(op, NAME, identity, [partition], 2))

    def verify(self, producer: Producer) -> ErrorCode:
        identity = ProducerIdAndEpoch(*producer)
        return self._code(lambda op: self.shard.verify_partitions(op, NAME, identity, [PARTITION])[PARTITION])

    def end(self, producer: Producer, *, commit: bool, version: int) -> tuple[ErrorCode, Producer]:
        identity = ProducerIdAndEpoch(*producer)
        code = self._code(
            lambda op: self.shard.end_txn(op, NAME, identity, commit=commit, version=version).error_code,
        )
        return code, self._identity()

    def write_markers(self) -> None:
        job = self.jobs.pop()
        assert self._code(lambda op: self.shard.markers_written(op, job) or ErrorCode.NONE) is ErrorCode.NONE

    def state(self) -> tuple[str, Producer]:
        txn = self.shard.transactions.get(NAME)
        return ("none" if txn is None else txn.state.label), self._identity()


def outcome_of(cell: Cell, state_version: int) -> Outcome:
    coordinator = ShardCoordinator()
    current = reach(coordinator, cell.state, state_version)
    state, before = coordinator.state()
    assert (state, before) == (cell.state, current if cell.state != "none" else Producer(-1, -1))
    code = ask(coordinator, cell.request, aged(current, cell.age))
    state, after = coordinator.state()
    if state == cell.state and after == before and (code is not ErrorCode.NONE or cell.request in _SILENT):
        return Outcome(code)
    return Outcome(code, state, after.epoch - max(before.epoch, 0))


_SILENT = {TxnRequest.VERIFY, TxnRequest.COMMIT_V1, TxnRequest.ABORT_V1, TxnRequest.COMMIT_V2, TxnRequest.ABORT_V2}
"""Requests that may succeed without a change."""


@pytest.mark.parametrize("state_version", [1, 2])
@pytest.mark.parametrize("cell", KAFKA, ids=str)
def test_the_answer_is_that_of_kafka(cell: Cell, state_version: int) -> None:
    """`state_version` is the transaction version of the EndTxn that led to the state."""
    expected, _ = DELIBERATE.get(cell, (KAFKA[cell], ""))
    assert outcome_of(cell, state_version) == expected


def test_deliberate_differences_are_differences() -> None:
    assert [cell for cell, (ours, _) in DELIBERATE.items() if KAFKA[cell] == ours] == []


def test_the_table_covers_each_request_state_and_age() -> None:
    states = {cell.state for cell in KAFKA}
    ages = {"other", "older", "last", "current", "newer"}
    expected = {Cell(request, state, age) for request in TxnRequest for state in states for age in ages}
    expected = {cell for cell in expected if cell.request is not TxnRequest.INIT}
    expected |= {Cell(TxnRequest.INIT, state, "new") for state in states}
    assert len(states) == 7
    assert set(KAFKA) == expected
