"""librdkafka's transactional producer against an embedded broker: commit, abort, fencing, offsets, isolation."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing import EmbeddedBroker
from tests.progress import Standstill, wait_until
from tests.system.transactions.exactly_once import read_committed

CALL_S = 60.0


def producer(broker: EmbeddedBroker, name: str, **settings: object) -> Producer:
    made = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "log_level": 0, **settings}
    )
    made.init_transactions(CALL_S)
    return made


def transact(made: Producer, topic: str, *values: str, commit: bool = True) -> None:
    made.begin_transaction()
    for value in values:
        made.produce(topic, value)
    made.flush(CALL_S)
    if commit:
        made.commit_transaction(CALL_S)
    else:
        made.abort_transaction(CALL_S)


def read(broker: EmbeddedBroker, topic: str, isolation: str = "read_committed") -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[str] = []
    standstill = Standstill(f"the end of {topic} is read")
    while True:
        standstill.check(len(values))
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            break
        values.append((message.value() or b"").decode())
    consumer.close()
    return values


def test_read_committed_consumer_sees_only_committed_records(broker: EmbeddedBroker, topic: str) -> None:
    writer = producer(broker, topic)
    transact(writer, topic, "a", "b")
    transact(writer, topic, "x", "y", commit=False)
    transact(writer, topic, "c")
    assert read(broker, topic) == ["a", "b", "c"]
    assert read(broker, topic, "read_uncommitted") == ["a", "b", "x", "y", "c"]


def test_open_transaction_blocks_read_committed_consumers_until_it_ends(broker: EmbeddedBroker, topic: str) -> None:
    writer = producer(broker, topic)
    transact(writer, topic, "a")
    writer.begin_transaction()
    writer.produce(topic, "b")
    writer.flush(CALL_S)
    plain = Producer({"bootstrap.servers": broker.bootstrap_servers})
    plain.produce(topic, "outside")
    plain.flush(CALL_S)
    assert read(broker, topic) == ["a"], "what stands behind an open transaction is not stable yet"
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "offsets"})
    low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=CALL_S)
    reader.close()
    assert (low, high) == (0, 2), "the last stable offset is where the open transaction begins"
    writer.commit_transaction(CALL_S)
    assert read(broker, topic) == ["a", "b", "outside"]


def test_second_producer_of_a_transactional_id_fences_the_first(broker: EmbeddedBroker, topic: str) -> None:
    zombie = producer(broker, topic)
    zombie.begin_transaction()
    zombie.produce(topic, "of the zombie")
    zombie.flush(CALL_S)
    heir = producer(broker, topic)
    transact(heir, topic, "of the heir")
    with pytest.raises(KafkaException) as failed:
        zombie.commit_transaction(CALL_S)
    assert failed.value.args[0].fatal() or failed.value.args[0].txn_requires_abort()
    assert read(broker, topic) == ["of the heir"]
    transact(heir, topic, "again")
    assert read(broker, topic) == ["of the heir", "again"]


def test_transaction_is_aborted_after_its_timeout(broker: EmbeddedBroker, topic: str) -> None:
    slow = producer(broker, topic, **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
    slow.begin_transaction()
    slow.produce(topic, "late")
    slow.flush(CALL_S)
    plain = Producer({"bootstrap.servers": broker.bootstrap_servers})
    plain.produce(topic, "after")
    plain.flush(CALL_S)
    wait_until(lambda: read(broker, topic) == ["after"], "the coordinator has aborted the transaction")
    with pytest.raises(KafkaException):
        slow.commit_transaction(CALL_S)
    assert read(broker, topic) == ["after"]


def test_transactional_offsets_take_effect_at_commit(broker: EmbeddedBroker, topic: str) -> None:
    source = f"{topic}-in"
    feed = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for i in range(10):
        feed.produce(source, str(i))
    feed.flush(CALL_S)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    batch = consumer.consume(10, timeout=CALL_S)
    assert [m.value() for m in batch] == [str(i).encode() for i in range(10)]
    writer = producer(broker, topic)

    def copy(upto: int, commit: bool) -> None:
        writer.begin_transaction()
        for i in range(upto):
            writer.produce(topic, f"copy-{i}")
        writer.send_offsets_to_transaction(
            [TopicPartition(source, 0, upto)], consumer.consumer_group_metadata(), CALL_S
        )
        if commit:
            writer.commit_transaction(CALL_S)
        else:
            writer.abort_transaction(CALL_S)

    def committed() -> int:
        return int(consumer.committed([TopicPartition(source, 0)], timeout=CALL_S)[0].offset)

    copy(4, commit=False)
    assert committed() < 0
    copy(6, commit=True)
    assert committed() == 6
    consumer.close()
    assert read(broker, topic) == [f"copy-{i}" for i in range(6)]


def test_member_of_an_old_generation_cannot_commit_offsets_in_a_transaction(broker: EmbeddedBroker, topic: str) -> None:
    """KIP-447: the generation travels with the offsets."""
    source = f"{topic}-in"
    feed = Producer({"bootstrap.servers": broker.bootstrap_servers})
    feed.produce(source, "a")
    feed.flush(CALL_S)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([source])
    assert consumer.consume(1, timeout=CALL_S)
    stale = consumer.consumer_group_metadata()
    consumer.close()  # leaves: the generation is over
    writer = producer(broker, topic)
    writer.begin_transaction()
    writer.produce(topic, "orphan")
    with pytest.raises(KafkaException) as failed:
        writer.send_offsets_to_transaction([TopicPartition(source, 0, 1)], stale, CALL_S)
    assert failed.value.args[0].txn_requires_abort()
    writer.abort_transaction(CALL_S)
    assert read(broker, topic) == []


def test_many_partitions_in_one_transaction(broker: EmbeddedBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 8, 1)])[topic].result(CALL_S)
    writer = producer(broker, topic)
    for commit in (True, False, True):
        writer.begin_transaction()
        for p in range(8):
            writer.produce(topic, f"{p}-{commit}", partition=p)
        if commit:
            writer.commit_transaction(CALL_S)
        else:
            writer.abort_transaction(CALL_S)
    found = read_committed(broker.bootstrap_servers, topic, 8)
    assert found == {p: [f"{p}-True", f"{p}-True"] for p in range(8)}
