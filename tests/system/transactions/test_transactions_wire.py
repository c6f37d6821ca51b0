"""Transactions on the wire, request by request: both protocols, what is refused, two-phase commit over a restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.wire.messages.end_txn import EndTxnRequest
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.testing import EmbeddedBroker
from tests.system.broker.wire_client import WireClient


class Producer:
    """A transactional producer of any age, over one connection at a time."""

    def __init__(self, broker: EmbeddedBroker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.client = WireClient(broker.bootstrap_servers)
        self.id = -1
        self.epoch = -1
        self.sequence = 0

    def reconnect(self) -> WireClient:
        """A new connection; the old one stays open, as after a time-out of the client. Returns the old one."""
        old, self.client = self.client, WireClient(self.broker.bootstrap_servers)
        return old

    def init(self, version: int = 5, **options: object) -> ErrorCode:
        self.client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[self.name]), 4)
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000, **options)  # type: ignore[arg-type]
        while True:
            answer = self.client.call(request, version)
            if answer.error_code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                break
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        self.ongoing = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
        return ErrorCode(answer.error_code)

    def add(self, *topics: str) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics],
        )
        while True:
            answer = self.client.call(request, 3).results_by_topic_v3_and_below[0].results_by_partition[0]
            if answer.partition_error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                return ErrorCode(answer.partition_error_code)

    def send(self, topic: str, value: bytes, version: int = 12, epoch: int | None = None) -> ErrorCode:
        records = build_batch(
            [SimpleRecord(None, value, int(time.time() * 1000))],
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=5000, topic_data=[data])
        answer = self.client.call(request, version).responses[0].partition_responses[0]
        if answer.error_code == 0:
            self.sequence += 1
        return ErrorCode(answer.error_code)

    def end(self, commit: bool, version: int = 5, client: WireClient | None = None) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit
        )
        answer = (client or self.client).call(request, version)
        if answer.error_code == 0 and version >= 5:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        if answer.error_code == 0:
            self.wait_complete()
        return ErrorCode(answer.error_code)

    def wait_complete(self) -> None:
        """EndTxn is answered when the decision is made; now every partition has its marker as well."""
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        while not self.client.call(request, 0).transaction_states[0].transaction_state.startswith("Complete"):
            pass


def create(client: WireClient, *topics: str) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1) for topic in topics]
    )
    assert {topic.error_code for topic in client.call(request, 5).topics} == {0}


def committed(client: WireClient, topic: str) -> list[bytes]:
    """What a read_committed consumer gives its user: data below the LSO that is not of an aborted transaction."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=1,
        topics=[FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])],
    )
    (part,) = client.call(request, 11).responses[0].partitions
    assert part.error_code == 0
    pending = sorted((txn.first_offset, txn.producer_id) for txn in part.aborted_transactions or ())
    aborted: set[int] = set()
    values = []
    for position, header in iter_batches(part.records):
        while pending and pending[0][0] <= header.base_offset:
            aborted.add(pending.pop(0)[1])
        if header.is_control:
            aborted.discard(header.producer_id)
        elif header.producer_id not in aborted or not header.is_transactional:
            values += [record.value or b"" for record in iter_records(part.records, position, header)]
    return values


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap_servers) as connected:
        yield connected


def test_protocol_2_adds_partitions_on_produce_and_raises_the_epoch(
    broker: EmbeddedBroker, client: WireClient, topic: str
) -> None:
    create(client, topic)
    producer = Producer(broker, topic)
    assert producer.init() is ErrorCode.NONE
    for round_number in range(4):
        assert producer.epoch == round_number
        assert producer.send(topic, b"%d" % round_number) is ErrorCode.NONE
        assert producer.end(round_number % 2 == 0) is ErrorCode.NONE
    assert committed(client, topic) == [b"0", b"2"]


def test_late_write_of_the_previous_transaction_is_rejected(
    broker: EmbeddedBroker, client: WireClient, topic: str
) -> None:
    create(client, topic)
    producer = Producer(broker, topic)
    producer.init()
    producer.send(topic, b"a")
    producer.end(True)
    producer.sequence = 1
    assert producer.send(topic, b"late", epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    producer.sequence = 0
    assert producer.send(topic, b"b") is ErrorCode.NONE
    assert producer.end(True) is ErrorCode.NONE
    assert committed(client, topic) == [b"a", b"b"]


@pytest.mark.parametrize(("version", "code"), [(11, ErrorCode.TRANSACTION_ABORTABLE), (9, ErrorCode.INVALID_TXN_STATE)])
def test_older_client_must_add_the_partition_before_a_write(
    broker: EmbeddedBroker, client: WireClient, topic: str, version: int, code: ErrorCode
) -> None:
    create(client, topic)
    producer = Producer(broker, topic)
    producer.init(4)
    assert producer.send(topic, b"not added", version) is code
    assert producer.add(topic) is ErrorCode.NONE
    assert producer.send(topic, b"a", version) is ErrorCode.NONE
    assert producer.end(True, 4) is ErrorCode.NONE
    assert producer.add(topic) is ErrorCode.NONE
    assert producer.send(topic, b"b", version) is ErrorCode.NONE
    assert producer.end(True, 4) is ErrorCode.NONE
    assert producer.send(topic, b"after the end", version) is code, "it would hang for ever"
    assert committed(client, topic) == [b"a", b"b"]


def test_delayed_end_txn_of_an_old_client_ends_no_later_transaction(
    broker: EmbeddedBroker, client: WireClient, topic: str
) -> None:
    """Jepsen, 2024: EndTxn is sent, times out in the network, is sent again over a new connection and succeeds; the
    next transaction begins; the first one arrives."""
    create(client, topic)
    producer = Producer(broker, topic)
    producer.init(4)
    producer.add(topic)
    producer.send(topic, b"a", 9)
    stuck = producer.reconnect()
    assert producer.end(True, 4) is ErrorCode.NONE
    assert producer.add(topic) is ErrorCode.NONE
    assert producer.send(topic, b"b", 9) is ErrorCode.NONE
    assert producer.end(True, 4, stuck) is ErrorCode.INVALID_TXN_STATE
    assert committed(client, topic) == [b"a"], "the second transaction is still open"
    assert producer.end(False, 4) is ErrorCode.NONE
    assert committed(client, topic) == [b"a"]


def test_marker_of_an_earlier_coordinator_epoch_is_rejected(
    broker: EmbeddedBroker, client: WireClient, topic: str
) -> None:
    create(client, topic)
    producer = Producer(broker, topic)
    producer.init()
    assert producer.send(topic, b"a") is ErrorCode.NONE

    def mark(epoch: int, coordinator_epoch: int, version: int = 0) -> ErrorCode:
        marker = WritableTxnMarker(
            producer_id=producer.id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        )
        result = client.call(WriteTxnMarkersRequest(markers=[marker]), 2).markers[0]
        return ErrorCode(result.topics[0].partitions[0].error_code)

    assert mark(producer.epoch, 5, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH, "of protocol 2, it must be later"
    assert mark(producer.epoch, 5) is ErrorCode.NONE
    assert mark(producer.epoch, 4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert mark(producer.epoch - 1, 5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(client, topic) == []


def test_offsets_of_an_open_transaction_are_unstable(broker: EmbeddedBroker, client: WireClient, topic: str) -> None:
    create(client, topic)
    client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[topic]), 4)

    def stable() -> tuple[ErrorCode, int]:
        group = OffsetFetchRequestGroup(
            group_id=topic, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        )
        while True:
            answer = client.call(OffsetFetchRequest(groups=[group], require_stable=True), 8).groups[0]
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
        (p,) = answer.topics[0].partitions
        return ErrorCode(p.error_code), p.committed_offset

    def commit(producer: Producer, offset: int, version: int) -> ErrorCode:
        request = TxnOffsetCommitRequest(
            transactional_id=producer.name,
            group_id=topic,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        return ErrorCode(client.call(request, version).topics[0].partitions[0].error_code)

    new = Producer(broker, f"{topic}-new")
    new.init()
    assert commit(new, 5, 5) is ErrorCode.NONE, "it takes its partition in by itself"
    assert stable()[0] is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert new.end(True) is ErrorCode.NONE
    while (found := stable())[0] is ErrorCode.UNSTABLE_OFFSET_COMMIT:
        pass
    assert found == (ErrorCode.NONE, 5)

    old = Producer(broker, f"{topic}-old")
    old.init(4)
    assert commit(old, 6, 3) is ErrorCode.INVALID_TXN_STATE
    add = AddOffsetsToTxnRequest(
        transactional_id=old.name, producer_id=old.id, producer_epoch=old.epoch, group_id=topic
    )
    assert client.call(add, 3).error_code == 0
    assert commit(old, 6, 3) is ErrorCode.NONE
    assert old.end(False, 4) is ErrorCode.NONE
    while (found := stable())[0] is ErrorCode.UNSTABLE_OFFSET_COMMIT:
        pass
    assert found == (ErrorCode.NONE, 5)


def test_offsets_are_added_before_their_topic_exists() -> None:
    """Clients before 4.0 ask for the group's coordinator only after this request, and repeat it until it succeeds."""
    with EmbeddedBroker() as fresh:
        old = Producer(fresh, "first")
        assert old.init(4) is ErrorCode.NONE
        add = AddOffsetsToTxnRequest(
            transactional_id=old.name, producer_id=old.id, producer_epoch=old.epoch, group_id="new-group"
        )
        assert old.client.call(add, 3).error_code == 0
        assert old.end(True, 4) is ErrorCode.NONE
        assert old.init(4) is ErrorCode.NONE


def test_unknown_partition_fails_the_whole_add_partitions_request(
    broker: EmbeddedBroker, client: WireClient, topic: str
) -> None:
    create(client, topic)
    producer = Producer(broker, topic)
    producer.init(4)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=topic,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 9])],
    )
    results = client.call(request, 3).results_by_topic_v3_and_below[0].results_by_partition
    assert [ErrorCode(r.partition_error_code) for r in results] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_prepared_transaction_survives_restarts_and_is_ended_by_a_new_producer(tmp_path: Path) -> None:
    """KIP-939. Two databases' worth of commits: one that the outside coordinator had decided, one that it had not."""
    settings = {"transaction.two.phase.commit.enable": "true"}
    data = str(tmp_path / "data")
    with EmbeddedBroker(settings, data_dir=data) as broker, WireClient(broker.bootstrap_servers) as client:
        create(client, "kept")
        for name in ("decided", "undecided"):
            producer = Producer(broker, name)
            assert producer.init(6, enable_2pc=True) is ErrorCode.NONE
            assert producer.send("kept", name.encode()) is ErrorCode.NONE
        assert committed(client, "kept") == []
    with EmbeddedBroker(settings, data_dir=data) as broker, WireClient(broker.bootstrap_servers) as client:
        assert committed(client, "kept") == []
        for name in ("decided", "undecided"):
            heir = Producer(broker, name)
            assert heir.init(6, enable_2pc=True, keep_prepared_txn=True) is ErrorCode.NONE
            assert heir.ongoing[1] == 0
            assert heir.end(name == "decided") is ErrorCode.NONE
            assert heir.send("kept", b"next of " + name.encode()) is ErrorCode.NONE
            assert heir.end(True) is ErrorCode.NONE
        while len(values := committed(client, "kept")) < 3:
            pass
        assert values == [b"decided", b"next of decided", b"next of undecided"]


def test_batches_of_two_producers_in_one_request_are_rejected_as_by_kafka(broker: EmbeddedBroker, topic: str) -> None:
    """The whole request fails, with the partitions that have no transactional batch."""
    one, two = Producer(broker, f"{topic}-one"), Producer(broker, f"{topic}-two")
    create(one.client, topic, f"{topic}-2", f"{topic}-plain")
    assert (one.init(), two.init()) == (ErrorCode.NONE, ErrorCode.NONE)

    def written(producer: Producer | None) -> bytes:
        options = {"producer_id": producer.id, "producer_epoch": 0, "base_sequence": 0} if producer else {}
        return build_batch([SimpleRecord(None, b"v", 0)], transactional=producer is not None, **options)

    topics = {topic: written(one), f"{topic}-2": written(two), f"{topic}-plain": written(None)}
    request = ProduceRequest(
        transactional_id=one.name,
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
            for name, records in topics.items()
        ],
    )
    for version in (8, 11, 12):
        answers = [t.partition_responses[0] for t in one.client.call(request, version).responses]
        assert [(a.error_code, a.base_offset, a.log_start_offset) for a in answers] == [
            (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1, -1)
        ] * 3
