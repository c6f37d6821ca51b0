"""A broker process with few file descriptors: many partitions, a group, a transaction, and many idle connections."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.process import BrokerProcess
from tests.progress import Standstill

pytestmark = pytest.mark.system


@contextlib.contextmanager
def running(folder: Path, limit: int) -> Iterator[BrokerProcess]:
    """A broker whose soft and hard limit of open files is `limit`."""
    prefix = ("sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh")
    broker = BrokerProcess(folder / "data", settings=["offsets.topic.num.partitions=50"], prefix=prefix)
    broker.start()
    try:
        yield broker
        assert broker.alive, broker.log_path.read_text()[-2000:]
        assert broker.stop(120.0) == 0
    finally:
        if broker.alive:
            broker.kill()


def descriptors(broker: BrokerProcess) -> int:
    assert broker.process is not None
    return len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir()))


def create(bootstrap_servers: str, topics: list[str], partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for first in range(0, len(topics), 50):
        wanted = [NewTopic(name, partitions, 1) for name in topics[first : first + 50]]
        for future in admin.create_topics(wanted, operation_timeout=120, request_timeout=130).values():
            future.result(150)


def write(bootstrap_servers: str, topics: list[str], partitions: int, **settings: object) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(60)
        producer.begin_transaction()
    for topic in topics:
        for partition in range(partitions):
            producer.produce(topic, b"value", partition=partition, on_delivery=lambda e, _: e and failed.append(e))
            producer.poll(0)
    assert producer.flush(120) == 0
    assert not failed
    if "transactional.id" in settings:
        producer.commit_transaction(60)


def read(bootstrap_servers: str, topics: list[str], count: int) -> None:
    """A group reads `count` records and commits."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(topics)
    seen = 0
    progress = Standstill("the group has read everything")
    while seen < count:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen += 1
        progress.check(seen)
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.parametrize(("limit", "topics"), [(256, 120), (1024, 400)])
def test_partitions_need_no_descriptor_each(tmp_path: Path, limit: int, topics: int) -> None:
    names = [f"topic-{number}" for number in range(topics)]
    with running(tmp_path, limit) as broker:
        create(broker.bootstrap_servers, names, 4)
        write(broker.bootstrap_servers, names, 4)
        write(broker.bootstrap_servers, names[:12], 4, **{"transactional.id": "t"})
        assert descriptors(broker) < limit
        read(broker.bootstrap_servers, names, topics * 4 + 48)
        broker.kill()
        broker.start()
        write(broker.bootstrap_servers, names, 4)
        assert descriptors(broker) < limit
        assert "log directory" not in broker.log_path.read_text()


@pytest.mark.parametrize("limit", [256, 1024])
def test_idle_connections_are_refused_or_closed_before_files_suffer(tmp_path: Path, limit: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3000:
        pytest.skip("needs 3,000 file descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    names = [f"topic-{number}" for number in range(100)]
    with running(tmp_path, limit) as broker, contextlib.ExitStack() as stack:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        for _ in range(1100):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
        assert descriptors(broker) <= limit
        create(broker.bootstrap_servers, names, 4)  # idle connections are closed after some seconds to make room
        write(broker.bootstrap_servers, names, 4)
        write(broker.bootstrap_servers, names[:12], 4, **{"transactional.id": "t"})
        read(broker.bootstrap_servers, names, 448)
        warnings = [line for line in broker.log_path.read_text().splitlines() if "connections refused" in line]
        assert 1 <= len(warnings) < 100
        assert "ulimit -n" in warnings[0]
