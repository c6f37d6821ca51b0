"""The example of three hosts is a cluster: its own files, with names and ports of this machine put in."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.core.properties import parse_properties
from barnabas.testing.ports import free_ports
from barnabas.testing.process import BrokerProcess

EXAMPLE = Path(__file__).parents[3] / "examples" / "three_hosts"


@pytest.mark.system
def test_example_of_three_hosts_runs_and_survives_the_loss_of_one(tmp_path: Path) -> None:
    ports = free_ports(6)
    nodes = []
    for number in (1, 2, 3):
        text = (EXAMPLE / f"host{number}.properties").read_text(encoding="utf-8")
        for host in (1, 2, 3):
            text = text.replace(f"host{host}:9092", f"127.0.0.1:{ports[host - 1]}")
            text = text.replace(f"host{host}:9093", f"127.0.0.1:{ports[host + 2]}")
        settings = [f"{name}={value}" for name, value in parse_properties(text).items()]
        nodes.append(BrokerProcess(tmp_path / f"host{number}", settings=settings))
    for node in nodes:
        node.launch()
    try:
        for node in nodes:
            node.wait_ready(60)
        _write_and_read(",".join(node.bootstrap_servers for node in nodes))
        nodes[0].kill()
        _write_and_read(nodes[1].bootstrap_servers, topic="without-host1")
    finally:
        for node in nodes:
            if node.alive:
                node.kill()


def _write_and_read(bootstrap: str, topic: str = "orders") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000})
    for number in range(100):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = []
    while len(found) < 100:
        messages = consumer.consume(100, 60)
        assert messages, f"only {len(found)} of 100 records came"
        found += [int(message.value() or b"") for message in messages if message.error() is None]
    consumer.close()
    assert sorted(found) == list(range(100))
