"""Shell: every foreign client behind two verbs, so that tests can pair any producer with any consumer.

`produce(broker, topic, count, codec)` writes records key-i / <prefix>-i with one header and returns when all are
acknowledged. `consume(broker, topic, count, group)` joins a group, reads `count` records from the start, commits, and
returns them as dicts of key, value, partition, offset, headers (a count).
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.interop.jars import cache_dir, clients_classpath

HERE = Path(__file__).parent
LIMIT = 90.0

Produce = Callable[[str, str, int, str], None]
Consume = Callable[[str, str, int, str], list[dict[str, Any]]]

ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class ForeignClient:
    """A client of another project; `codecs` are those it can write without further packages."""

    name: str
    prefix: str
    produce: Produce
    consume: Consume
    codecs: tuple[str, ...] = ALL_CODECS
    reads: tuple[str, ...] = ALL_CODECS


def _run(command: list[str], *, stdin: str | None = None) -> list[dict[str, Any]]:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed: run `make interop`, which installs it")
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


# --- librdkafka, by confluent-kafka -------------------------------------------------------------------------------


def _confluent_produce(broker: str, topic: str, count: int, codec: str) -> None:
    from confluent_kafka import Producer

    failures: list[object] = []
    producer = Producer({"bootstrap.servers": broker, "compression.type": codec, "enable.idempotence": True})
    for i in range(count):
        producer.produce(
            topic,
            f"rdk-{i}",
            f"key-{i}",
            headers=[("n", str(i))],
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(LIMIT) == 0
    assert failures == []


def _confluent_consume(
    broker: str, topic: str, count: int, group: str, *, protocol: str = "classic"
) -> list[dict[str, Any]]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.subscribe([topic])
    rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + LIMIT
    while len(rows) < count and time.monotonic() < deadline:
        for m in consumer.consume(500, 0.5):
            assert m.error() is None, m.error()
            rows.append(_row(m.key(), m.value(), m.partition(), m.offset(), m.headers() or ()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return rows


# --- kafka-python ---------------------------------------------------------------------------------------------------


def _kafka_python_produce(broker: str, topic: str, count: int, codec: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=broker, compression_type=None if codec == "none" else codec)
    futures = [
        producer.send(topic, f"kp-{i}".encode(), f"key-{i}".encode(), headers=[("n", str(i).encode())])
        for i in range(count)
    ]
    for future in futures:
        future.get(LIMIT)
    producer.close()


def _kafka_python_consume(broker: str, topic: str, count: int, group: str) -> list[dict[str, Any]]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=int(LIMIT * 1000),
    )
    rows: list[dict[str, Any]] = []
    for m in consumer:
        rows.append(_row(m.key, m.value, m.partition, m.offset, m.headers))
        if len(rows) == count:
            break
    consumer.commit()
    consumer.close()
    return rows


# --- aiokafka -------------------------------------------------------------------------------------------------------


def _aiokafka_produce(broker: str, topic: str, count: int, codec: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        kind = None if codec == "none" else codec
        async with AIOKafkaProducer(
            bootstrap_servers=broker, compression_type=kind, enable_idempotence=True
        ) as producer:
            sent = [
                await producer.send(topic, f"aio-{i}".encode(), f"key-{i}".encode(), headers=[("n", str(i).encode())])
                for i in range(count)
            ]
            await asyncio.wait_for(asyncio.gather(*sent), LIMIT)

    asyncio.run(run())


def _aiokafka_consume(broker: str, topic: str, count: int, group: str) -> list[dict[str, Any]]:
    from aiokafka import AIOKafkaConsumer

    async def run() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=broker, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            while len(rows) < count:
                m = await asyncio.wait_for(consumer.getone(), LIMIT)
                rows.append(_row(m.key, m.value, m.partition, m.offset, m.headers))
            await consumer.commit()
        return rows

    return asyncio.run(run())


# --- kcat, Java, JavaScript, Go -------------------------------------------------------------------------------------


def _kcat_produce(broker: str, topic: str, count: int, codec: str) -> None:
    lines = "".join(f"key-{i}\tkcat-{i}\n" for i in range(count))
    command = ["kcat", "-b", broker, "-P", "-t", topic, "-K", "\t", "-z", codec, "-H", "n=1"]
    _run([*command, "-X", "enable.idempotence=true"], stdin=lines)


def _kcat_consume(broker: str, topic: str, count: int, group: str) -> list[dict[str, Any]]:
    command = ["kcat", "-b", broker, "-G", group, "-c", str(count), "-J", "-q", "-X", "auto.offset.reset=earliest"]
    return [
        _row(m["key"], m["payload"], m["partition"], m["offset"], m.get("headers", ())[::2])
        for m in _run([*command, topic])
    ]


def _java(
    broker: str, topic: str, count: int, last: str, mode: str, *, protocol: str = "classic"
) -> list[dict[str, Any]]:
    source = str(HERE / "java" / "Roundtrip.java")
    options = ["-cp", clients_classpath(), f"-Dgroup.protocol={protocol}"]
    return _run(["java", *options, source, mode, broker, topic, str(count), last])


def run_node(broker: str, topic: str, count: int, last: str, mode: str) -> list[dict[str, Any]]:
    if not (HERE / "node" / "node_modules" / "kafkajs").exists():
        pytest.skip("kafkajs is not installed: run `make interop`, which installs it")
    return _run(["node", str(HERE / "node" / "client.js"), mode, broker, topic, str(count), last])


def run_go(broker: str, topic: str, count: int, last: str, mode: str) -> list[dict[str, Any]]:
    return _run([str(go_program()), mode, broker, topic, str(count), last])


def go_program() -> Path:
    """The program of tests/interop/go."""
    program = cache_dir() / "franz"
    if not program.exists():
        pytest.skip("the Go client is not built: run `make interop`, which builds it")
    return program


def _program(run: Callable[..., list[dict[str, Any]]]) -> tuple[Produce, Consume]:
    def produce(broker: str, topic: str, count: int, codec: str) -> None:
        run(broker, topic, count, codec, "produce")

    def consume(broker: str, topic: str, count: int, group: str) -> list[dict[str, Any]]:
        return run(broker, topic, count, group, "consume")

    return produce, consume


def _row(key: Any, value: Any, partition: int, offset: int, headers: Any) -> dict[str, Any]:
    text = [part.decode() if isinstance(part, bytes) else part for part in (key, value)]
    return {"key": text[0], "value": text[1], "partition": partition, "offset": offset, "headers": len(headers)}


CLIENTS: tuple[ForeignClient, ...] = (
    ForeignClient("confluent-kafka", "rdk", _confluent_produce, _confluent_consume),
    ForeignClient("kafka-python", "kp", _kafka_python_produce, _kafka_python_consume),
    ForeignClient("aiokafka", "aio", _aiokafka_produce, _aiokafka_consume),
    ForeignClient("kcat", "kcat", _kcat_produce, _kcat_consume),
    ForeignClient("java", "java", *_program(_java)),
    # kafkajs 2 has no snappy, lz4 or zstd of its own
    ForeignClient("kafkajs", "js", *_program(run_node), codecs=("none", "gzip"), reads=("none", "gzip")),
    ForeignClient("franz-go", "go", *_program(run_go)),
)

NEW_PROTOCOL: tuple[ForeignClient, ...] = (
    ForeignClient("confluent-kafka-848", "rdk", _confluent_produce, partial(_confluent_consume, protocol="consumer")),
    ForeignClient("java-848", "java", *_program(partial(_java, protocol="consumer"))),
)
"""The clients that speak the consumer group protocol of KIP-848 when they are told to."""
