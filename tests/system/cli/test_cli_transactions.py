"""`barnabas transactions` and `kafka-transactions`: an open transaction, a hanging one, and their ends."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.testing import EmbeddedBroker
from tests.system.broker.wire_client import WireClient
from tests.system.cli.conftest import Cli


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """It believes its clients, so that a transaction can be left hanging as in the days before KIP-890."""
    with EmbeddedBroker({"transaction.partition.verification.enable": "false"}) as running:
        yield running


def hang(broker: EmbeddedBroker, topic: str, producer_id: int) -> None:
    now = int(time.time() * 1000)
    records = build_batch(
        [SimpleRecord(None, b"hanging", now)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=1, records=records)])
    with WireClient(broker.bootstrap_servers) as client:
        request = ProduceRequest(transactional_id="nobody", acks=-1, timeout_ms=5000, topic_data=[data])
        answer = client.call(request, 9).responses[0].partition_responses[0]
    assert answer.error_code == 0


def test_an_open_transaction_is_seen_and_fenced(cli: Cli, broker: EmbeddedBroker, topic: str) -> None:
    name = f"billing-{topic}"
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, "a", partition=0)
    assert producer.flush(20) == 0

    (listed,) = cli("transactions", "list", "--pattern", "billing-.*", "--json").json
    assert (listed["transactional_id"], listed["state"]) == (name, "Ongoing")
    assert cli("transactions", "list", "--longer-than", "600000", "--json").json == []
    assert name in cli("transactions", "list", "--state", "Ongoing").out
    assert cli("transactions", "list", "--state", "Nonsense").code == 1
    described = cli("transactions", "describe", name, "--json").json
    assert (described["state"], described["partitions"]) == ("Ongoing", [f"{topic}-0"])
    assert described["lasted_ms"] >= 0
    assert f"{topic}-0" in cli("transactions", "describe", name).out
    assert cli("transactions", "describe", "nobody-knows").code == 1
    heading, row = cli("kafka-transactions", "describe", "--transactional-id", name).lines
    assert heading.split("\t")[1].strip() == "TransactionalId"
    assert row.split("\t")[4].strip() == "Ongoing"
    assert name in cli("kafka-transactions", "list").out

    assert cli("transactions", "fence", name, "--yes").code == 0
    assert cli("transactions", "describe", name, "--json").json["state"] == "Empty"
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)


def test_a_hanging_transaction_is_found_and_aborted(cli: Cli, broker: EmbeddedBroker, topic: str) -> None:
    hang(broker, topic, 4711)
    (producer,) = cli("transactions", "describe-producers", topic, "1", "--json").json
    assert (producer["producer_id"], producer["open_since"]) == (4711, 0)
    assert "4711" in cli("kafka-transactions", "describe-producers", "--topic", topic, "--partition", "1").out
    assert cli("transactions", "find-hanging", "--topic", topic, "--json").json == [], "it is young"
    (found,) = cli("transactions", "find-hanging", "--topic", topic, "--older-than", "-1", "--json").json
    assert (found["partition"], found["producer_id"], found["open_since"]) == (1, 4711, 0)

    assert cli("transactions", "abort", topic, "1", "--start-offset", "7", "--yes").code == 1
    assert cli("transactions", "abort", topic, "1", "--yes").code == 2
    assert cli("transactions", "abort", topic, "1", "--start-offset", "0", "--dry-run").code == 0
    assert cli("transactions", "abort", topic, "1", "--start-offset", "0", "--yes").code == 0
    assert cli("transactions", "find-hanging", "--topic", topic, "--older-than", "-1", "--json").json == []


def test_kafkas_tool_aborts_one_too(cli: Cli, broker: EmbeddedBroker, topic: str) -> None:
    hang(broker, topic, 4712)
    where = ("--topic", topic, "--partition", "1")
    old = cli("kafka-transactions", "find-hanging", "--topic", topic, "--max-transaction-timeout", "-1")
    assert old.lines[1].split("\t")[2].strip() == "4712"
    assert cli("kafka-transactions", "abort", *where).code != 0
    assert cli("kafka-transactions", "abort", *where, "--start-offset", "0").code == 0
    assert (
        cli("kafka-transactions", "find-hanging", "--topic", topic, "--max-transaction-timeout", "-1").lines[1:] == []
    )
