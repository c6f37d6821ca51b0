"""Every foreign client produces with every codec it has, and every one reads what the others wrote, in a group."""

from __future__ import annotations

import pytest

from barnabas.testing.process import BrokerProcess
from tests.interop.foreign_clients import CLIENTS, NEW_PROTOCOL, ForeignClient

COUNT = 300

WRITES = [pytest.param(c, codec, id=f"{c.name}-{codec}") for c in CLIENTS for codec in c.codecs]
READS = [pytest.param(c, id=c.name) for c in (*CLIENTS, *NEW_PROTOCOL)]


@pytest.mark.parametrize(("client", "codec"), WRITES)
def test_client_writes_and_librdkafka_reads(broker: BrokerProcess, client: ForeignClient, codec: str) -> None:
    topic = f"w-{client.name}-{codec}"
    client.produce(broker.bootstrap_servers, topic, COUNT, codec)
    rows = CLIENTS[0].consume(broker.bootstrap_servers, topic, COUNT, f"g-{topic}")
    assert [r["value"] for r in rows] == [f"{client.prefix}-{i}" for i in range(COUNT)]
    assert [r["key"] for r in rows] == [f"key-{i}" for i in range(COUNT)]
    assert [r["offset"] for r in rows] == list(range(COUNT))
    assert {r["headers"] for r in rows} == {1}


@pytest.mark.parametrize("client", READS)
def test_client_reads_in_a_group_what_the_others_wrote(broker: BrokerProcess, client: ForeignClient) -> None:
    topic = f"r-{client.name}"
    for codec in client.reads:
        CLIENTS[0].produce(broker.bootstrap_servers, topic, COUNT, codec)
    total = COUNT * len(client.reads)
    rows = client.consume(broker.bootstrap_servers, topic, total, f"g-{topic}")
    assert sorted(r["offset"] for r in rows) == list(range(total))
    assert {r["value"] for r in rows} == {f"rdk-{i}" for i in range(COUNT)}
    assert {r["headers"] for r in rows} == {1}
    assert _committed(broker.bootstrap_servers, topic, f"g-{topic}") == total


def _committed(bootstrap_servers: str, topic: str, group: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    offset = consumer.committed([TopicPartition(topic, 0)], timeout=20)[0].offset
    consumer.close()
    return int(offset)
