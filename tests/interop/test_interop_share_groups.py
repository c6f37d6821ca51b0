"""Share groups (KIP-932) with the clients there are: Java's KafkaShareConsumer, and librdkafka's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from barnabas.core.child_processes import start_child
from barnabas.testing.process import BrokerProcess
from tests.interop.jars import clients_classpath

SOURCE = Path(__file__).parent / "java" / "ShareQueue.java"
SETTINGS = (
    "offsets.topic.num.partitions=4",
    "share.coordinator.state.topic.num.partitions=4",
    "group.share.record.lock.duration.ms=3000",
    "group.share.min.record.lock.duration.ms=1000",
    "group.share.delivery.count.limit=3",
)


class JavaShares:
    """A JVM with share consumers in it."""

    def __init__(self, broker: str) -> None:
        self._process = start_child(
            ["java", "-XX:TieredStopAtLevel=1", "-cp", clients_classpath(), str(SOURCE), broker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def do(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer

    def poll(self, name: str, count: int, timeout_ms: int = 20_000) -> list[tuple[int, str, int]]:
        """(offset, value, delivery count), in order."""
        records = self.do(f"poll {name} {count} {timeout_ms}")["records"]
        return sorted((r["offset"], r["value"], r["delivery"]) for r in records)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.terminate()
        self._process.wait(20)


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("queues") / "data", settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def java(queues: BrokerProcess) -> Iterator[JavaShares]:
    shares = JavaShares(queues.bootstrap_servers)
    yield shares
    shares.close()


def fill(broker: str, topic: str, count: int, group: str, *, partitions: int = 1) -> None:
    """A topic with `count` records, and a group that begins with the first of them."""
    admin = AdminClient({"bootstrap.servers": broker})
    for created in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        created.result(20)
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group)
    resource.add_incremental_config(earliest)
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(20)
    add(broker, topic, range(count))


def add(broker: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 0})
    for number in numbers:
        producer.produce(topic, b"v%d" % number)
    assert producer.flush(20) == 0


def rows(*offsets: int, delivery: int = 1) -> list[tuple[int, str, int]]:
    return [(offset, f"v{offset}", delivery) for offset in offsets]


def test_implicit_acknowledgement(queues: BrokerProcess, java: JavaShares) -> None:
    fill(queues.bootstrap_servers, "implicit", 100, "g-implicit")
    java.do("open a g-implicit implicit implicit")
    assert java.poll("a", 100) == rows(*range(100))
    assert java.do("commit a")["committed"] == {"0": ""}
    java.do("close a")
    java.do("open b g-implicit implicit implicit")
    add(queues.bootstrap_servers, "implicit", range(100, 105))
    assert java.poll("b", 5) == rows(*range(100, 105))  # nothing comes twice
    assert java.do("commit b")["committed"] == {"0": ""}
    java.do("close b")
    shown = java.do("groups")["g-implicit"]
    assert shown == {"state": "Empty", "members": 0, "offsets": [{"partition": 0, "start": 100, "lag": 0}]}


def test_accept_release_reject(queues: BrokerProcess, java: JavaShares) -> None:
    fill(queues.bootstrap_servers, "explicit", 6, "g-explicit")
    java.do("open a g-explicit explicit explicit")
    assert java.poll("a", 6) == rows(*range(6))
    java.do("ack a ACCEPT 0 1 5")
    java.do("ack a RELEASE 2 3")
    java.do("ack a REJECT 4")
    assert java.do("commit a")["committed"] == {"0": ""}
    again = java.poll("a", 2)
    assert again == rows(2, 3, delivery=2)
    java.do("ack a ACCEPT 2")
    java.do("ack a RELEASE 3")
    assert java.do("commit a")["committed"] == {"0": ""}
    assert java.poll("a", 1) == rows(3, delivery=3)
    java.do("ack a RELEASE 3")  # the third delivery was the last: it is given up
    assert java.do("commit a")["committed"] == {"0": ""}
    add(queues.bootstrap_servers, "explicit", range(6, 7))
    assert java.poll("a", 1) == rows(6)
    java.do("ack a ACCEPT 6")
    java.do("commit a")
    java.do("close a")


def test_two_consumers_share_one_partition(queues: BrokerProcess, java: JavaShares) -> None:
    fill(queues.bootstrap_servers, "shared", 0, "g-shared")
    for name in ("a", "b"):
        java.do(f"open {name} g-shared shared implicit max.poll.records=10 share.acquire.mode=record_limit")
    java.poll("a", 1, 2_000)
    java.poll("b", 1, 7_000)  # both have the partition now: a member learns of it with its heartbeat
    add(queues.bootstrap_servers, "shared", range(200))
    seen: dict[str, list[tuple[int, str, int]]] = {"a": [], "b": []}
    for _ in range(40):
        for name in seen:
            seen[name] += java.poll(name, 1, 400)
        if len(seen["a"]) + len(seen["b"]) >= 200:
            break
    assert sorted(seen["a"] + seen["b"]) == rows(*range(200))
    assert seen["a"]
    assert seen["b"]
    for name in seen:
        java.do(f"commit {name}")
        java.do(f"close {name}")


def test_a_lock_runs_out(queues: BrokerProcess, java: JavaShares) -> None:
    fill(queues.bootstrap_servers, "locks", 3, "g-locks")
    java.do("open a g-locks locks explicit")
    assert java.poll("a", 3) == rows(0, 1, 2)
    java.do("open b g-locks locks explicit")
    assert java.poll("b", 3) == rows(0, 1, 2, delivery=2)  # after three seconds they are somebody else's
    java.do("ack b ACCEPT 1 2")
    assert java.do("commit b")["committed"] == {"0": ""}
    java.do("ack a ACCEPT 0 1 2")  # b still has the first
    assert java.do("commit a")["committed"] == {"0": "InvalidRecordStateException"}
    java.do("close a")
    java.do("close b")


def test_renewing_keeps_the_lock(queues: BrokerProcess, java: JavaShares) -> None:
    fill(queues.bootstrap_servers, "renewed", 1, "g-renewed")
    java.do("open a g-renewed renewed explicit")
    assert java.poll("a", 1) == rows(0)
    java.do("open b g-renewed renewed explicit")
    for _ in range(3):
        java.do("ack a RENEW 0")
        assert java.do("commit a")["committed"] == {"0": ""}
        assert java.poll("b", 1, 2_000) == []
        java.poll("a", 1, 300)  # the renewed record is handed out again by the client itself
    java.do("ack a ACCEPT 0")
    assert java.do("commit a")["committed"] == {"0": ""}
    java.do("close a")
    java.do("close b")


def test_a_broker_that_is_killed_forgets_no_acknowledgement(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        fill(broker.bootstrap_servers, "killed", 10, "g-killed")
        java = JavaShares(broker.bootstrap_servers)
        try:
            java.do("open a g-killed killed explicit")
            assert java.poll("a", 10) == rows(*range(10))
            java.do("ack a ACCEPT 0 1 2 7")
            java.do("ack a RELEASE 3")
            assert java.do("commit a")["committed"] == {"0": ""}
            broker.kill()
            broker.start()
            java.do("open b g-killed killed explicit")
            found = java.poll("b", 6, 30_000)
            assert [(offset, value) for offset, value, _ in found] == [(o, f"v{o}") for o in (3, 4, 5, 6, 8, 9)]
            assert {offset: count for offset, _, count in found}[3] == 2
            java.do("ack b ACCEPT 3 4 5 6 8 9")
            assert java.do("commit b")["committed"] == {"0": ""}
        finally:
            java.close()


def test_librdkafka_takes_turns_with_java(queues: BrokerProcess, java: JavaShares) -> None:
    fill(queues.bootstrap_servers, "mixed", 20, "g-mixed", partitions=2)
    consumer = ShareConsumer({"bootstrap.servers": queues.bootstrap_servers, "group.id": "g-mixed"})
    consumer.subscribe(["mixed"])
    values = set(_poll(consumer, 20))
    assert values == {b"v%d" % n for n in range(20)}
    consumer.commit_sync()
    consumer.close()
    add(queues.bootstrap_servers, "mixed", range(20, 30))
    java.do("open a g-mixed mixed implicit")
    assert {value for _, value, _ in java.poll("a", 10)} == {f"v{n}" for n in range(20, 30)}
    java.do("close a")


def _poll(consumer: Any, count: int, turns: int = 30, keep: Callable[[Any], bool] = bool) -> list[bytes]:
    values: list[bytes] = []
    for _ in range(turns):
        for message in list(consumer.poll(1.0) or ()):
            if keep(message):
                assert message.error() is None
                values.append(message.value())
        if len(values) >= count:
            break
    return values


def test_read_committed_leaves_out_what_was_aborted(queues: BrokerProcess, java: JavaShares) -> None:
    fill(queues.bootstrap_servers, "committed", 0, "g-committed")
    admin = AdminClient({"bootstrap.servers": queues.bootstrap_servers})
    level = ConfigEntry("share.isolation.level", "read_committed", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, "g-committed")
    resource.add_incremental_config(level)
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(20)
    producer = Producer({"bootstrap.servers": queues.bootstrap_servers, "transactional.id": "t-committed"})
    producer.init_transactions(20)
    for turn, commits in enumerate((True, False, True, False, False, True)):
        producer.begin_transaction()
        for number in range(3):
            producer.produce("committed", b"%d-%d" % (turn, number))
        if commits:
            producer.commit_transaction(20)
        else:
            producer.flush(20)
            producer.abort_transaction(20)
    producer.begin_transaction()
    producer.produce("committed", b"open")
    producer.flush(20)
    java.do("open a g-committed committed implicit")
    wanted = sorted(f"{turn}-{number}" for turn in (0, 2, 5) for number in range(3))
    assert sorted(value for _, value, _ in java.poll("a", 9)) == wanted
    assert java.poll("a", 1, 1_500) == []
    producer.commit_transaction(20)
    assert [value for _, value, _ in java.poll("a", 1)] == ["open"]
    assert java.do("commit a")["committed"] == {"0": ""}
    java.do("close a")
    (offsets,) = java.do("groups")["g-committed"]["offsets"]
    assert offsets["lag"] <= 1  # the last marker lies beyond what was offered
