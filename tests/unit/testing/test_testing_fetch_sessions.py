"""A closed consumer closes its fetch sessions, which would otherwise fill the broker's cache for two minutes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas import Admin, Consumer, Producer, TopicPartition
from barnabas.client.values import NewTopic
from barnabas.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1, 1)])
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            producer.send("t", b"1")
        yield running


def sessions(broker: EmbeddedBroker) -> int:
    node = broker.node
    assert node is not None
    assert node.broker is not None
    return len(node.broker.fetch_sessions)


@pytest.mark.parametrize("waits", [False, True], ids=["idle", "a fetch waits"])
def test_a_closed_consumer_leaves_no_fetch_session(broker: EmbeddedBroker, waits: bool) -> None:
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=60_000
    )
    consumer.assign([TopicPartition("t", 0)])
    while not consumer.poll(1_000):
        pass
    if waits:
        consumer.poll(100)  # sends a fetch, which waits for records
    assert sessions(broker) == 1
    consumer.close()
    assert sessions(broker) == 0
