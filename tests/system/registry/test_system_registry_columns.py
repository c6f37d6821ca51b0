"""Whole columns over our broker and registry: written with one version, read with the next."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from barnabas import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from barnabas.registry import AvroDeserializer, JsonSerializer, RegistryClient
from barnabas.registry.columns import AvroColumns, JsonColumns
from barnabas.testing.embedded import EmbeddedBroker
from tests.system.registry.conftest import RunningRegistry
from tests.system.registry.test_system_registry_confluent import PERSON, USER_1, USER_2

KIND_2 = pa.struct({"id": pa.int64(), "email": pa.string()})


@pytest.fixture
def client(registry: RunningRegistry) -> RegistryClient:
    return RegistryClient(registry.url)


def test_avro_columns_from_one_version_to_another(broker: EmbeddedBroker, client: RegistryClient) -> None:
    topic = "columns-avro"
    ids = list(range(2_000))

    async def main() -> pa.Table:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for schema, kind in ((USER_1, pa.struct({"id": pa.int64()})), (USER_2, KIND_2)):
                rows = [{"id": n} if schema is USER_1 else {"id": n, "email": f"{n}@x"} for n in ids]
                table = pa.table({"user": pa.array([*rows, None], kind), "key": [str(n) for n in [*ids, -1]]})
                await producer.send_arrow(
                    topic, table, value="user", key="key", value_format=AvroColumns(client, schema)
                )
        assert client.versions(f"{topic}-value") == [1, 2]
        batches, left = [], 2 * (len(ids) + 1)
        columns = AvroColumns(client)
        async with AsyncConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            async for batch in consumer.arrow(columns=("offset", "value"), value_format=columns):
                batches.append(batch)
                left -= batch.num_rows
                if not left:
                    break
        return pa.Table.from_batches(batches)

    table = asyncio.run(main())
    expected: list[Any] = [{"id": n, "email": None} for n in ids] + [None]
    expected += [{"id": n, "email": f"{n}@x"} for n in ids] + [None]
    assert table["value"].to_pylist() == expected
    assert table["offset"].to_pylist() == list(range(len(expected)))
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(client, USER_2),
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: list[Any] = []
        while len(values) < len(expected):
            values += [record.value for record in consumer.poll(10_000)]
    assert values == expected


def test_json_columns_and_a_row_that_is_none(broker: EmbeddedBroker, client: RegistryClient) -> None:
    topic = "columns-json"
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        write = JsonSerializer(client, PERSON)
        for value in (write.serialize(topic, (), {"name": "Ada", "age": 36}), b"plain", None):
            producer.send(topic, value, partition=0).result()
    columns = JsonColumns(client, pa.schema({"name": pa.string(), "age": pa.int32()}), on_error="null")
    rows: list[Any] = []
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        for batch in consumer.arrow(columns=("value",), value_format=columns):
            assert batch.schema.names == ["value", "value_error"]
            rows += batch.to_pylist()
            if len(rows) == 3:
                break
    assert rows == [
        {"value": {"name": "Ada", "age": 36}, "value_error": None},
        {
            "value": None,
            "value_error": "the value begins with byte 112, not 0: it was not written by a schema registry serializer",
        },
        {"value": None, "value_error": None},
    ]
    assert columns.failures == 1
