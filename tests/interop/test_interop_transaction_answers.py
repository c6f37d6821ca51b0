"""Every cell of the transaction coordinator's table of answers, asked of our broker and of Apache Kafka over the wire.

The table is `tests/unit/server/coordination/kafka_transaction_cells.py`. The states Prepare... last only until the
markers are written, so their cells are asked again and again until the answer comes from that state.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.wire.messages.end_txn import EndTxnRequest
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.testing.process import BrokerProcess
from tests.interop.apache_kafka import ApacheKafka
from tests.interop.same_answers.talk import Talk
from tests.interop.test_interop_same_answers import SETTINGS
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

PARTITIONS = 100
"""So many that the markers take longer than the next request."""
ATTEMPTS = 100


class WireCoordinator:
    """One new transactional id at a broker."""

    def __init__(self, talk: Talk, topic: str, group: str) -> None:
        self._talk = talk
        self._topic = topic
        self._group = group
        self._name = secrets.token_hex(8)

    def init(self, producer: Producer | None) -> tuple[ErrorCode, Producer]:
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
        if producer is not None:
            request.producer_id, request.producer_epoch = producer
        answer = self._talk.quietly(request, 4)
        return ErrorCode(answer.error_code), Producer(answer.producer_id, answer.producer_epoch)

    def add(self, producer: Producer) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=list(range(PARTITIONS)))],
        )
        (topic,) = self._talk.quietly(request, 3).results_by_topic_v3_and_below
        (code,) = {p.partition_error_code for p in topic.results_by_partition}
        return ErrorCode(code)

    def add_offsets(self, producer: Producer) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=self._group,
        )
        return ErrorCode(self._talk.quietly(request, 3).error_code)

    def verify(self, producer: Producer) -> ErrorCode:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=self._name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=[0])],
        )
        answer = self._talk.quietly(AddPartitionsToTxnRequest(transactions=[transaction]), 5)
        (topic,) = answer.results_by_transaction[0].topic_results
        return ErrorCode(topic.results_by_partition[0].partition_error_code)

    def end(self, producer: Producer, *, commit: bool, version: int) -> tuple[ErrorCode, Producer]:
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        answer = self._talk.quietly(request, 5 if version >= 2 else 4)
        following = Producer(answer.producer_id, answer.producer_epoch) if version >= 2 else producer
        return ErrorCode(answer.error_code), following

    def write_markers(self) -> None:
        self._talk.until(lambda: not self.state()[0].startswith("Prepare"), "the markers")

    def state(self) -> tuple[str, Producer]:
        request = DescribeTransactionsRequest(transactional_ids=[self._name])
        (state,) = self._talk.quietly(request, 0).transaction_states
        if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return "none", Producer(-1, -1)
        assert state.error_code == 0, state
        return state.transaction_state, Producer(state.producer_id, state.producer_epoch)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("ours") / "ours", settings=SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ApacheKafka(tmp_path_factory.mktemp("theirs")).running() as kafka:
        yield kafka.bootstrap


def outcome_of(talk: Talk, topic: str, group: str, cell: Cell, state_version: int) -> Outcome:
    """What the coordinator did, after the markers."""
    coordinator = WireCoordinator(talk, topic, group)
    current = reach(coordinator, cell.state, state_version)
    if cell.state.startswith("Prepare"):
        return Outcome(ask(coordinator, cell.request, aged(current, cell.age)))
    before = coordinator.state()
    assert before == (cell.state, current if cell.state != "none" else Producer(-1, -1))
    code = ask(coordinator, cell.request, aged(current, cell.age))
    coordinator.write_markers()
    state, after = coordinator.state()
    if (state, after) == before:
        return Outcome(code)
    return Outcome(code, state, after.epoch - max(before[1].epoch, 0))


def settled(cell: Cell, expected: Outcome) -> Outcome:
    """The expected outcome after the markers; without the state if the state does not change."""
    state = expected.state.replace("Prepare", "Complete")
    return Outcome(expected.code, "" if state == cell.state and not expected.bump else state, expected.bump)


def answers(address: str, deliberate: dict[Cell, Outcome], waiting: frozenset[TxnRequest] = frozenset()) -> list[str]:
    """Ask every cell; the answers that are not the expected ones. A broker may answer the requests `waiting` only when
    the markers are written, and then from the state Complete..."""
    talk = Talk(address, secrets.token_hex(4))
    talk.transactions()
    topic, group = talk.topic("t", PARTITIONS), talk.group("g")
    talk.until(lambda: WireCoordinator(talk, topic, group).init(None)[0] is ErrorCode.NONE, "a producer id")
    wrong = []
    for cell, of_kafka in KAFKA.items():
        for state_version in (1, 2) if "P" in cell.state or "C" in cell.state else (2,):
            expected = settled(cell, deliberate.get(cell, of_kafka))
            found = outcome_of(talk, topic, group, cell, state_version)
            if cell.state.startswith("Prepare"):
                later = KAFKA[cell._replace(state=cell.state.replace("Prepare", "Complete"))].code
                expected = Outcome(expected.code)
                if cell.request in waiting and found.code is later:
                    continue
                for _ in range(ATTEMPTS):
                    if found.code is not later or found == expected:
                        break
                    found = outcome_of(talk, topic, group, cell, state_version)
            if found != expected:
                wrong.append(f"{cell} (after version {state_version}): {found}, expected {expected}")
    talk.hang_up()
    return wrong


def test_every_answer_of_apache_kafka_is_that_of_the_table(theirs: str) -> None:
    assert answers(theirs, {}) == []


def test_every_answer_over_the_wire_is_that_of_the_table(ours: str) -> None:
    """A request that adds partitions waits for the markers for a while, so that the producer need not repeat it. A
    VerifyOnly request needs more turns of the event loop than the markers of partitions on the same node."""
    deliberate = {cell: outcome for cell, (outcome, _) in DELIBERATE.items()}
    assert answers(ours, deliberate, frozenset({TxnRequest.ADD, TxnRequest.ADD_OFFSETS, TxnRequest.VERIFY})) == []
