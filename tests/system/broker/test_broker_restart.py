"""Restarts of a broker process after a stop, a kill -9 and on unusable directories, seen by librdkafka."""

from __future__ import annotations

import contextlib
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.core.child_processes import start_child
from barnabas.testing import EmbeddedBroker


class Server:
    """A process of `barnabas serve`."""

    def __init__(self, data_dir: Path, *settings: str, listener: str = "PLAINTEXT://127.0.0.1:0") -> None:
        command = [sys.executable, "-m", "barnabas.cli.app", "serve", "--data-dir", str(data_dir), "-l", listener]
        for setting in ("offsets.topic.num.partitions=4", "group.initial.rebalance.delay.ms=0", *settings):
            command += ["-c", setting]
        self.process = start_child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        self.address = self.ready.partition("://")[2].split(" ")[0]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def finish(self) -> tuple[int, str]:
        """Exit code and stderr of a server that could not start."""
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(*settings: str, data_dir: Path | None = None, **options: str) -> Server:
        started.append(Server(data_dir or tmp_path / "data", *settings, **options))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait(60)
        for pipe in (server.process.stdout, server.process.stderr):
            assert pipe is not None
            pipe.close()


def read_all(address: str, topic: str, partitions: int, group: str = "reader") -> list[bytes]:
    """All records of a topic, up to the current end of each partition."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=60) for p in range(partitions)}
    left = {p: high for p, (low, high) in ends.items() if high > low}
    consumer.assign([TopicPartition(topic, p, ends[p][0]) for p in left])
    found: list[bytes] = []
    heard_at = time.monotonic()
    while left:
        messages = consumer.consume(1000, 0.2)  # returns after 1,000 messages or after this time
        if messages:
            heard_at = time.monotonic()
        assert time.monotonic() < heard_at + 60, f"nothing comes any more; still expected: {left}"
        for message in messages:
            assert message.error() is None
            found.append(message.value())
            if message.offset() + 1 >= left.get(message.partition(), 0):
                left.pop(message.partition(), None)
    consumer.close()
    return found


def test_topics_records_and_offsets_survive_a_clean_restart(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    with EmbeddedBroker({"num.partitions": "3"}, data_dir=directory) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("kept", 3, config={"retention.ms": "12345678"})])["kept"].result(60)
        admin.create_topics([NewTopic("gone", 1)])["gone"].result(60)
        admin.delete_topics(["gone"])["gone"].result(60)
        cluster_id = admin.list_topics(timeout=60).cluster_id
        producer = Producer(servers)
        for i in range(1000):
            producer.produce("kept", b"%d" % i, key=b"%d" % i)
        assert producer.flush(60) == 0
        consumer = Consumer({**servers, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["kept"])
        assert len(consumer.consume(500, 60)) == 500
        consumer.commit(asynchronous=False)
        committed = sum(
            p.offset for p in consumer.committed([TopicPartition("kept", p) for p in range(3)]) if p.offset > 0
        )
        consumer.close()
    with EmbeddedBroker(data_dir=directory) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        metadata = AdminClient(servers).list_topics(timeout=60)
        assert metadata.cluster_id == cluster_id
        assert set(metadata.topics) == {"kept", "__consumer_offsets"}
        assert len(metadata.topics["kept"].partitions) == 3
        assert len(set(read_all(broker.bootstrap_servers, "kept", 3))) == 1000
        consumer = Consumer({**servers, "group.id": "readers", "auto.offset.reset": "earliest"})
        after = sum(
            p.offset for p in consumer.committed([TopicPartition("kept", p) for p in range(3)], 60) if p.offset > 0
        )
        assert after == committed > 0
        consumer.close()


def test_kill_9_under_load_loses_no_acknowledged_record(serve: Callable[..., Server]) -> None:
    acknowledged: set[bytes] = set()
    sent = 0
    for round_number in range(3):
        server = serve("num.partitions=4")
        assert server.ready.startswith("barnabas ready:"), server.finish()
        producer = Producer(
            {
                "bootstrap.servers": server.address,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 2000,
                "log_level": 0,
            }
        )

        def delivered(error: KafkaError | None, message: object) -> None:
            if error is None:
                acknowledged.add(message.value())  # type: ignore[attr-defined]

        enough = 20_000 + len(acknowledged)
        killer: threading.Thread | None = None
        while killer is None or killer.is_alive():
            sent += 1
            with contextlib.suppress(BufferError):
                producer.produce("heavy", b"%d-%d" % (round_number, sent) + b"x" * 200, on_delivery=delivered)
            producer.poll(0 if len(producer) < 50_000 else 0.01)
            if killer is None and len(acknowledged) >= enough:
                killer = threading.Thread(target=server.stop, args=(signal.SIGKILL,))
                killer.start()
        producer.purge()
        producer.flush(1)
    server = serve()
    assert server.ready.startswith("barnabas ready:"), server.finish()
    found = read_all(server.address, "heavy", 4)
    assert acknowledged <= set(found)
    assert len(found) == len(set(found)), "an idempotent producer leaves no duplicates"
    assert server.stop() == 0


def test_second_broker_on_the_same_directory_does_not_start(serve: Callable[..., Server]) -> None:
    first = serve()
    second = serve()
    code, errors = second.finish()
    assert code == 1
    assert "lock" in errors.lower()
    assert first.stop() == 0


def test_port_in_use_is_reported(serve: Callable[..., Server], tmp_path: Path) -> None:
    first = serve()
    second = serve(data_dir=tmp_path / "other", listener=f"PLAINTEXT://{first.address}")
    code, errors = second.finish()
    assert code == 1
    assert "in use" in errors
    assert not (tmp_path / "other" / "meta.properties").exists(), "nothing is written before the port is had"


def test_directory_of_another_node_is_rejected(serve: Callable[..., Server]) -> None:
    assert serve("node.id=7").stop() == 0
    code, errors = serve("node.id=8").finish()
    assert code == 1
    assert "node 7" in errors
    again = serve()
    assert "node=7" in again.ready, "without node.id the directory's own is taken"


def test_invalid_configs_are_usage_errors(serve: Callable[..., Server]) -> None:
    code, errors = serve("num.partitions=zero").finish()
    assert code == 2
    assert "num.partitions" in errors
    code, errors = serve("process.roles=broker").finish()
    assert code == 2
    assert "process.roles" in errors


def test_sigint_shuts_down_cleanly(serve: Callable[..., Server], tmp_path: Path) -> None:
    assert serve().stop(signal.SIGINT) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_start_is_well_under_a_second(serve: Callable[..., Server]) -> None:
    """Measured in processor time, which a busy machine does not change much (docs/PERFORMANCE.md)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    server = serve()
    assert server.ready.startswith("barnabas ready:"), server.finish()
    server.process.kill()
    server.process.wait(60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0, "generous: machines differ"
