"""`topics why`, `groups why`, and maintenance of a running broker: each question has a reason behind it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.testing import EmbeddedBroker
from tests.system.broker.wire_client import WireClient
from tests.system.cli.conftest import Cli


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """It cleans nothing by itself while it is being asked why, and believes its clients, so that a transaction can be
    left hanging as in the days before KIP-890."""
    settings = {"log.cleaner.backoff.ms": "600000", "transaction.partition.verification.enable": "false"}
    with EmbeddedBroker(settings) as running:
        yield running


def why(cli: Cli, topic: str) -> dict[str, Any]:
    (facts,) = cli("topics", "why", f"{topic}:0", "--json").json
    found: dict[str, Any] = facts
    return found


def make(cli: Cli, *settings: str) -> str:
    name = f"why-{uuid.uuid4().hex[:8]}"
    given = [word for setting in settings for word in ("-c", setting)]
    assert cli("topics", "create", name, "-p", "1", *given).code == 0
    return name


def fill(broker: EmbeddedBroker, topic: str, count: int = 3000, keys: int = 50) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 100_000})
    for i in range(count):
        producer.produce(topic, b"x" * 1000, f"k{i % keys}")
    assert producer.flush(30) == 0


@pytest.fixture
def transaction(broker: EmbeddedBroker) -> Iterator[Producer]:
    name = f"billing-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    yield producer
    producer.abort_transaction(30)


def test_a_stuck_last_stable_offset(cli: Cli, broker: EmbeddedBroker, transaction: Producer) -> None:
    topic = make(cli)
    assert why(cli, topic)["why"]["readers"] == [
        "No transaction holds readers back: read_committed consumers read up to the high watermark, 0."
    ]
    transaction.produce(topic, b"open")
    transaction.flush(30)
    fill(broker, topic, 10)
    facts = why(cli, topic)
    (held,) = facts["open_transactions"]
    assert (facts["last_stable_offset"], facts["high_watermark"], facts["open_transaction_count"]) == (0, 11, 1)
    assert (held["transaction_state"], held["in_transaction"], held["timeout_ms"]) == ("Ongoing", True, 60_000)
    assert held["transactional_id"].startswith("billing-")
    assert held["started_ms"] <= held["first_timestamp"] + 5_000
    stops, who, end = facts["why"]["readers"]
    assert stops == "read_committed consumers stop at offset 0, 11 records before the high watermark, 11."
    assert who.startswith(f"Producer {held['producer_id']}, epoch 0, has a transaction open since offset 0, begun ")
    assert f"`barnabas transactions fence {held['transactional_id']}` ends it now." in end
    shown = cli("topics", "why", topic)
    assert (shown.code, end in shown.out) == (0, True)


def test_why_reports_a_transaction_without_a_coordinator(cli: Cli, broker: EmbeddedBroker) -> None:
    """A leftover of a producer that no coordinator knows; what is advised ends it."""
    topic = make(cli)
    records = build_batch(
        [SimpleRecord(b"k", b"v", 1_000)], producer_id=999_999, producer_epoch=4, base_sequence=0, transactional=True
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    with WireClient(broker.bootstrap_servers) as client:
        request = ProduceRequest(transactional_id="lost", acks=-1, timeout_ms=5_000, topic_data=[data])
        assert client.call(request, 9).responses[0].partition_responses[0].error_code == 0
    stops, who, advice = why(cli, topic)["why"]["readers"]
    assert stops.startswith("read_committed consumers stop at offset 0, 1 record before")
    assert who.startswith("Producer 999999, epoch 4, has a transaction open since offset 0, begun ")
    abort = f"barnabas transactions abort {topic} 0 --start-offset 0"
    assert advice.endswith(f"Abort it in this partition: `{abort}`.")
    assert cli(*abort.split()[1:], "--yes").code == 0
    assert why(cli, topic)["last_stable_offset"] == 2


def test_why_reports_a_clean_log_and_compaction_on_request_runs(cli: Cli, broker: EmbeddedBroker) -> None:
    topic = make(cli, "cleanup.policy=compact", "segment.bytes=1048576", "min.cleanable.dirty.ratio=1.0")
    fill(broker, topic)
    facts = why(cli, topic)
    compaction = facts["compaction"]
    assert (compaction["verdict"], compaction["limit"]) == ("NOT_DIRTY_ENOUGH", "ACTIVE_SEGMENT")
    first, limit = facts["why"]["compaction"]
    assert first.startswith("The log is not due: 100 % of the cleanable bytes are dirty")
    assert limit.endswith(
        "cannot be compacted: the active segment begins there, and an active segment is never compacted."
    )
    assert facts["why"]["retention"] == [
        "No segment is deleted for its age or size: cleanup.policy does not include delete."
    ]
    (untouched,) = cli("logs", "compact", "-t", topic, "--json").json
    assert (untouched["done"], untouched["outcome"]) == (False, "not dirty enough (--force)")
    (done,) = cli("logs", "compact", "-t", f"{topic}:0", "--force", "--json").json
    assert (done["outcome"], done["records_kept"], done["failed"]) == ("compacted", 50, False)
    assert done["records_read"] == done["cleaned_offset"] == compaction["first_uncleanable_offset"]
    assert done["bytes_after"] < done["bytes_before"] / 2
    after = why(cli, topic)
    assert after["compaction"]["last_pass"]["records_kept"] == 50
    assert after["why"]["compaction"][-1].startswith("The last pass ended ")
    (again,) = cli("logs", "compact", "-t", topic, "--json").json
    assert again["outcome"] == "nothing to do: all dirty records are in the active segment (--roll --force)"
    (rolled,) = cli("logs", "compact", "-t", topic, "--roll", "--force", "--json").json
    assert (rolled["outcome"], rolled["cleaned_offset"]) == ("compacted", 3000)
    assert "compacted" in cli("logs", "compact", "-t", topic, "--force").out


def test_too_young_and_unstable(cli: Cli, broker: EmbeddedBroker, transaction: Producer) -> None:
    topic = make(cli, "cleanup.policy=compact", "segment.bytes=1048576", "min.compaction.lag.ms=3600000")
    fill(broker, topic)
    assert why(cli, topic)["why"]["compaction"] == [
        "The dirty records, from offset 0 on, are younger than min.compaction.lag.ms, 1 h."
    ]
    held = make(cli, "cleanup.policy=compact", "segment.bytes=1048576")
    transaction.produce(held, b"open", b"k")
    transaction.flush(30)
    fill(broker, held)
    (sentence,) = why(cli, held)["why"]["compaction"]
    assert sentence.startswith("The dirty records, from offset 0 on, are not stable: producer ")
    assert sentence.endswith("has had a transaction open since offset 0.")


def test_retention_now(cli: Cli, broker: EmbeddedBroker) -> None:
    topic = make(cli, "segment.bytes=1048576", "retention.bytes=10485760")
    fill(broker, topic)
    sentences = why(cli, topic)["why"]["retention"]
    assert sentences[0].startswith("The oldest segment, closed, holds the offsets 0 to ")
    assert sentences[1].startswith("By its age, the segment is deleted in 6 d 23 h")
    assert sentences[2].startswith("By size, the segment is deleted when the log, now ")
    (kept,) = cli("logs", "enforce-retention", "-t", topic, "--json").json
    assert (kept["done"], kept["outcome"]) == (False, "nothing deleted: within retention.ms and retention.bytes")
    assert cli("configs", "alter", "--topic", topic, "--set", "retention.bytes=1048576").code == 0
    (would,) = cli("logs", "enforce-retention", "-t", topic, "--dry-run", "--json").json
    assert (would["done"], would["outcome"]) == (False, "would be deleted: beyond retention.bytes")
    assert why(cli, topic)["retention"]["verdict"] == "TOO_MUCH"
    (done,) = cli("logs", "enforce-retention", "-t", topic, "--json").json
    assert (done["outcome"], done["segments_deleted"]) == (
        "segments deleted",
        would["segments_before"] - done["segments_after"],
    )
    assert done["log_start_offset"] == why(cli, topic)["log_start_offset"] > 0


def test_a_member_that_does_not_rejoin(cli: Cli, broker: EmbeddedBroker, filled: str) -> None:
    group = f"classic-{uuid.uuid4().hex[:8]}"
    base = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    lazy, eager = Consumer({**base, "client.id": "lazy"}), Consumer({**base, "client.id": "eager"})
    try:
        lazy.subscribe([filled])
        while not lazy.assignment():
            lazy.poll(0.1)
        (settled,) = cli("groups", "why", group, "--json").json
        assert (settled["state"], settled["phase"], settled["reason"].endswith(" joined")) == ("Stable", "", True)
        eager.subscribe([filled])
        found = settled
        while found["phase"] != "join":  # the lazy one is polled no more, so it cannot rejoin
            eager.poll(0.1)
            (found,) = cli("groups", "why", group, "--json").json
        pending = [(m["client_id"], m["pending"]) for m in found["members"] if m["pending"]]
        assert pending == [("lazy", "rejoin")]
        assert 0 < found["phase_left_ms"] <= 300_000
        assert "has not rejoined; 4 min 5" in found["why"]["members"][0]
        assert "has not rejoined" in cli("groups", "why", group).out
    finally:
        eager.close()
        lazy.close()


def test_a_pending_revocation(cli: Cli, broker: EmbeddedBroker, topic: str) -> None:
    group = f"consumer-{uuid.uuid4().hex[:8]}"

    def beat(client: WireClient, member: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **fields)
        response: ConsumerGroupHeartbeatResponse = client.call(request, 1)
        assert response.error_code == 0, response
        return response

    joining: dict[str, Any] = {
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    with WireClient(broker.bootstrap_servers) as client:
        beat(client, "one", 0, **joining)
        beat(client, "two", 0, **joining)
        found: dict[str, Any] = {"phase": ""}
        while found["phase"] != "reconcile":  # group.consumer.assignment.interval.ms
            (found,) = cli("groups", "why", group, "--json").json
        beat(client, "one", 1)
        beat(client, "two", 1)
        (found,) = cli("groups", "why", group, "--json").json
    one, two = found["members"]
    assert (one["pending"], two["pending"], found["reason"]) == ("revoke", "release", "member two joined")
    assert 0 < one["rebalance_left_ms"] <= 30_000
    (given,) = one["to_revoke"]
    assert two["awaited"] == [{**given, "member_id": "one"}]
    what = f"{topic}-{given['partition']}"
    assert f"has not released the partitions that it must revoke: {what}; " in found["why"]["members"][0]
    assert f"waits for partitions that other members must release first: {what} of one; " in found["why"]["members"][1]


def test_wrong_questions(cli: Cli) -> None:
    assert (cli("topics", "why", "no-such-topic").code, cli("groups", "why", "no-such-group").code) == (1, 1)
    assert cli("logs", "compact").code == 2
    assert cli("logs", "enforce-retention", "-t", "x", "-c", "retention.ms=1").code == 2
