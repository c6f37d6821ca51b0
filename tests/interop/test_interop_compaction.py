"""A real broker compacts under load; Kafka's own tools and clients read what it leaves."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from barnabas.testing.process import BrokerProcess
from tests.interop.jars import kafka_classpath
from tests.progress import wait_until

KEYS = 200
LIMIT = 60.0
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "65536",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "100",
    "file.delete.delay.ms": "100",
    "segment.ms": "1000",
}


@pytest.fixture
def broker(broker_dir: Path) -> Iterator[BrokerProcess]:
    settings = ["log.cleaner.backoff.ms=100", "log.initial.task.delay.ms=100"]
    with BrokerProcess(broker_dir, settings=settings) as running:
        yield running


def create(broker: BrokerProcess, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = NewTopic(topic, 1, 1, config={**TOPIC_CONFIG, **{k.replace("_", "."): v for k, v in config.items()}})
    admin.create_topics([wanted])[topic].result(LIMIT)


def alter(broker: BrokerProcess, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    changes = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    next(iter(admin.incremental_alter_configs([resource]).values())).result(LIMIT)


def write(broker: BrokerProcess, topic: str, records: list[tuple[str, str | None]], **config: Any) -> None:
    """All acknowledged when it returns."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, "batch.size": 16_384, **config})
    refused: list[object] = []
    for key, value in records:
        producer.produce(topic, value, key, on_delivery=lambda e, _: refused.append(e) if e else None)
        producer.poll(0)
    assert producer.flush(LIMIT) == 0
    assert refused == []


def read(broker: BrokerProcess, topic: str, isolation: str = "read_committed") -> list[tuple[int, str, str | None]]:
    """(offset, key, value) of everything from the start to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows = []
    deadline = time.monotonic() + LIMIT
    try:
        while time.monotonic() < deadline:
            for m in consumer.consume(1000, 0.1):
                if m.error() is not None:
                    assert m.error().name() == "_PARTITION_EOF", m.error()
                    return rows
                value = m.value()
                rows.append((m.offset(), m.key().decode(), None if value is None else value.decode()))
        raise AssertionError("no end of the partition")
    finally:
        consumer.close()


def log_bytes(folder: Path) -> int:
    """The size of the segments that are there; the broker may delete one meanwhile."""
    total = 0
    for segment in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            total += segment.stat().st_size
    return total


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_compacts_under_load(broker: BrokerProcess, codec: str) -> None:
    topic = f"changes-{codec}"
    create(broker, topic)
    latest: dict[str, str | None] = {}
    for turn in range(30):
        records: list[tuple[str, str | None]] = []
        for i in range(1000):
            key = f"key-{(i * 7 + turn) % KEYS}"
            value = None if (i + turn) % 50 == 0 else f"{turn}-{i}-" + "x" * 100
            records.append((key, value))
            latest[key] = value
        write(broker, topic, records, **{"compression.type": codec, "enable.idempotence": turn % 2 == 0})
        rows = read(broker, topic)  # while it is being compacted
        offsets = [offset for offset, _, _ in rows]
        assert offsets == sorted(set(offsets))
        seen = {key: value for _, key, value in rows}
        assert {k: v for k, v in seen.items() if v is not None} == {k: v for k, v in latest.items() if v is not None}
    folder = broker.data_dir / f"{topic}-0"
    wait_until(lambda: len(read(broker, topic)) < 30_000 / 4, "the log is compacted")
    checkpoint = (broker.data_dir / "cleaner-offset-checkpoint").read_text().splitlines()
    assert checkpoint[0] == "0"
    assert any(line.startswith(f"{topic} 0 ") for line in checkpoint[2:])
    dump(folder)
    broker.kill()
    broker.start()
    seen = {key: value for _, key, value in read(broker, topic)}
    assert {k: v for k, v in seen.items() if v is not None} == {k: v for k, v in latest.items() if v is not None}


def dump(folder: Path, *, tombstones: bool = True) -> None:
    """Kafka's DumpLogSegments takes every file of the folder for sound."""
    if shutil.which("java") is None:
        pytest.skip("java is not installed: run `make interop`, which installs it")
    copy = folder.with_name(folder.name + ".copy")  # the broker goes on changing the original
    for _ in range(20):
        shutil.rmtree(copy, ignore_errors=True)
        try:
            shutil.copytree(folder, copy)
            break
        except (OSError, shutil.Error):
            continue
    files = [f for f in sorted(copy.iterdir()) if f.suffix in (".log", ".index", ".timeindex")]
    sealed = sorted(f.stem for f in copy.glob("*.log"))[:-1]
    files = [f for f in files if f.stem in sealed]
    command = ["java", "-cp", kafka_classpath(), "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration"]
    command += ["--index-sanity-check", "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    shutil.rmtree(copy)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "isvalid: true" in done.stdout
    assert "isvalid: false" not in done.stdout
    for trouble in ("Mismatch", "mismatch", "Exception", "Found non-consecutive", "Corrupt", "corrupt"):
        assert trouble not in done.stdout + done.stderr, done.stdout[-3000:]
    if tombstones:
        assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", done.stdout), "tombstones have a horizon"


def test_keyless_records_are_refused(broker: BrokerProcess) -> None:
    create(broker, "keyed")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    errors: list[Any] = []
    producer.produce("keyed", "no key", on_delivery=lambda e, _: errors.append(e))
    producer.flush(LIMIT)
    assert [e.name() for e in errors] == ["INVALID_RECORD"]
    write(broker, "keyed", [("k", "v")])
    assert [(k, v) for _, k, v in read(broker, "keyed")] == [("k", "v")]


def test_a_damaged_log_does_not_stop_the_others(broker: BrokerProcess) -> None:
    """A flipped byte in a sealed segment: reported, left as it is; the other topic is compacted."""
    create(broker, "damaged", min_cleanable_dirty_ratio="0.9", min_compaction_lag_ms="3600000", segment_ms="3600000")
    write(broker, "damaged", [(f"k{i % 10}", "x" * 100) for i in range(3000)])
    folder = broker.data_dir / "damaged-0"
    with sorted(folder.glob("*.log"))[0].open("r+b") as file:
        file.seek(2000)
        file.write(b"\xff\x00\xff\x00")
    alter(broker, "damaged", **{"min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0"})
    create(broker, "sound")
    write(broker, "sound", [(f"k{i % 10}", "x" * 100) for i in range(6000)])
    wait_until(lambda: len(read(broker, "sound")) < 2000, "the other topic is compacted")
    text = broker.log_path.read_text()
    assert "log could not be cleaned" in text
    assert "damaged-0" in text
    with pytest.raises((KafkaException, AssertionError)):
        read(broker, "damaged")


def test_transactions(broker: BrokerProcess) -> None:
    """Aborted records go, committed ones stay, before and after a kill; an open transaction is waited for."""
    topic = "transfers"
    create(broker, topic, delete_retention_ms="60000")
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "bank", "batch.size": 16_384}
    )
    producer.init_transactions(LIMIT)
    latest: dict[str, str] = {}
    for turn in range(40):
        producer.begin_transaction()
        for i in range(100):
            producer.produce(topic, f"{turn}-{i}-" + "x" * 100, f"key-{(i + turn) % 50}")
        if turn % 3 == 1:
            producer.flush(LIMIT)
            producer.abort_transaction(LIMIT)
        else:
            producer.commit_transaction(LIMIT)
            latest.update({f"key-{(i + turn) % 50}": f"{turn}-{i}-" + "x" * 100 for i in range(100)})
    producer.begin_transaction()
    producer.produce(topic, "never decided", "key-0")
    producer.flush(LIMIT)
    write(broker, topic, [(f"filler-{i % 5}", "x" * 1000) for i in range(300)])
    first_open = 40 * 101
    folder = broker.data_dir / f"{topic}-0"
    wait_until(lambda: len(committed(broker, topic)) < 27 * 100 / 4, "the log is compacted")
    assert {k: v for _, k, v in committed(broker, topic)} == latest
    assert first_open in {offset for offset, _, _ in read(broker, topic, isolation="read_uncommitted")}
    dump(folder, tombstones=False)
    broker.kill()
    broker.start()
    assert {k: v for _, k, v in committed(broker, topic)} == latest
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "bank"})
    producer.init_transactions(LIMIT)  # aborts what was open
    wait_until(lambda: len(committed(broker, topic)) > 50, "the open transaction has ended")
    assert {k: v for _, k, v in committed(broker, topic) if k.startswith("key")} == latest


def committed(broker: BrokerProcess, topic: str) -> list[tuple[int, str, str | None]]:
    return read(broker, topic, isolation="read_committed")


def test_committed_offsets(broker_dir: Path) -> None:
    """`__consumer_offsets` is compacted by the same rules, and a group finds its offsets after a kill."""
    settings = ["log.cleaner.backoff.ms=100", "offsets.topic.num.partitions=1", "log.cleaner.min.cleanable.ratio=0.1"]
    with BrokerProcess(broker_dir, settings=settings) as broker:
        create(broker, "work")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "workers"})
        assert consumer.committed([TopicPartition("work", 0)], timeout=LIMIT)[0].offset < 0
        alter(broker, "__consumer_offsets", **{"internal.segment.bytes": "16384", "file.delete.delay.ms": "100"})
        for offset in range(1, 1001):
            consumer.commit(offsets=[TopicPartition("work", 0, offset)], asynchronous=False)
        folder = broker.data_dir / "__consumer_offsets-0"
        wait_until(lambda: log_bytes(folder) < 60_000, "the offsets topic is compacted")
        broker.kill()
        broker.start()
        consumer.close()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "workers"})
        assert consumer.committed([TopicPartition("work", 0)], timeout=LIMIT)[0].offset == 1000
        consumer.close()
