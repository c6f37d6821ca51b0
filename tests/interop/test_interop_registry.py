"""`barnabas serve --registry`, `barnabas registry` beside it, and confluent-kafka's serializing clients."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError

from barnabas.core.child_processes import start_child

V1 = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]})
V2 = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}],
    }
)
_READY = re.compile(r"barnabas registry ready: (http://\S+)")
_BROKER = re.compile(r"barnabas ready: PLAINTEXT://(\S+)")


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A command; the process, and its lines up to the registry's."""
    process = start_child([sys.executable, "-m", "barnabas", *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line)
            if _READY.search(line):
                break
        yield process, lines
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


def found(pattern: re.Pattern[str], lines: list[str]) -> str:
    return next(match[1] for line in lines if (match := pattern.search(line)))


def serve(data: Path) -> tuple[str, ...]:
    setting = "transaction.state.log.num.partitions=4"
    listeners = ("--listener", "PLAINTEXT://127.0.0.1:0", "--registry", "http://127.0.0.1:0")
    return ("serve", "--data-dir", str(data), *listeners, "-c", setting)


def test_a_broker_with_a_registry_inside_and_another_beside_it(broker_dir: Path) -> None:
    with running(*serve(broker_dir)) as (_, lines):
        servers, inside = found(_BROKER, lines), found(_READY, lines)
        beside = ("registry", "--bootstrap-server", servers, "--listener", "http://127.0.0.1:0")
        with running(*beside) as (_, other_lines):
            one = SchemaRegistryClient({"url": inside})
            other = SchemaRegistryClient({"url": found(_READY, other_lines)})
            for client, schema, value in ((one, V1, {"id": 1}), (other, V2, {"id": 2, "note": "x"})):
                producer = SerializingProducer(
                    {"bootstrap.servers": servers, "value.serializer": AvroSerializer(client, schema)}
                )
                producer.produce("orders", value=value)
                assert producer.flush(30) == 0
            assert one.get_versions("orders-value") == other.get_versions("orders-value") == [1, 2]
            with pytest.raises(SchemaRegistryError):
                one.register_schema("orders-value", Schema('"string"'))
            consumer = DeserializingConsumer(
                {
                    "bootstrap.servers": servers,
                    "group.id": "g",
                    "auto.offset.reset": "earliest",
                    "value.deserializer": AvroDeserializer(one, V2),
                }
            )
            consumer.subscribe(["orders"])
            values = []
            while len(values) < 2:
                message = consumer.poll(10)
                assert message is not None
                values.append(message.value())
            consumer.close()
            assert values == [{"id": 1, "note": ""}, {"id": 2, "note": "x"}]
    with running(*serve(broker_dir)) as (_, lines):  # everything has ended and begun again
        client = SchemaRegistryClient({"url": found(_READY, lines)})
        assert client.get_versions("orders-value") == [1, 2]
        assert json.loads(client.get_schema(2).schema_str or "") == json.loads(V2)
