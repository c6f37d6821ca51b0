"""Our own client and serializers, in our producer and consumer, over our broker and registry."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from barnabas import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from barnabas.client.errors import SerializationError
from barnabas.registry import (
    AsyncRegistryClient,
    AvroDeserializer,
    AvroSerializer,
    Compatibility,
    JsonDeserializer,
    JsonSerializer,
    Mode,
    ProtobufDeserializer,
    ProtobufSerializer,
    Reference,
    RegistryClient,
    RegistryError,
    Schema,
    SchemaType,
)
from barnabas.registry.http_client import RegistryUnreachableError
from barnabas.registry.serde.base import record_name, topic_record_name
from barnabas.testing.embedded import EmbeddedBroker
from tests.system.registry.conftest import RunningRegistry
from tests.system.registry.test_system_registry_confluent import PERSON, USER_1, USER_2, USER_BAD, message_classes


@pytest.fixture
def client(registry: RunningRegistry) -> RegistryClient:
    return RegistryClient(registry.url)


def consume(broker: EmbeddedBroker, topic: str, count: int, deserializer: object) -> list[object]:
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", value_deserializer=deserializer
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[object] = []
        while len(found) < count:
            found += [record.value for record in consumer.poll(10_000)]
        return found


def test_avro_from_one_version_to_another(broker: EmbeddedBroker, client: RegistryClient) -> None:
    topic = "own-avro"
    for schema, value in ((USER_1, {"id": 1}), (USER_2, {"id": 2, "email": "e"})):
        with Producer(
            bootstrap_servers=broker.bootstrap_servers, value_serializer=AvroSerializer(client, schema)
        ) as producer:
            producer.send(topic, value, partition=0).result()
            producer.send(topic, None, partition=0).result()
    assert client.versions(f"{topic}-value") == [1, 2]
    with_reader = consume(broker, topic, 4, AvroDeserializer(client, USER_2))
    assert with_reader == [{"id": 1, "email": None}, None, {"id": 2, "email": "e"}, None]
    assert consume(broker, topic, 4, AvroDeserializer(client)) == [{"id": 1}, None, {"id": 2, "email": "e"}, None]
    refused = AvroSerializer(client, USER_BAD)
    with pytest.raises(RegistryError) as caught:
        refused.serialize(topic, (), {"e": 1})
    assert caught.value.code == 409
    assert client.problems(f"{topic}-value", Schema(USER_BAD))[0].startswith(
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE'"
    )


def test_keys_strategies_and_latest(client: RegistryClient) -> None:
    AvroSerializer(client, '"string"', is_key=True).serialize("t", (), "k")
    AvroSerializer(client, USER_1, subject_name_strategy=record_name).serialize("t", (), {"id": 1})
    AvroSerializer(client, USER_1, subject_name_strategy=topic_record_name).serialize("t", (), {"id": 1})
    assert client.subjects() == ["shop.User", "t-key", "t-shop.User"]
    with pytest.raises(RegistryError):
        AvroSerializer(client, USER_1, auto_register_schemas=False).serialize("unknown", (), {"id": 1})
    client.register("latest-value", Schema(USER_1))
    latest = AvroSerializer(client, use_latest_version=True)
    data = latest.serialize("latest", (), {"id": 3})
    assert AvroDeserializer(client).deserialize("latest", (), data) == {"id": 3}
    with pytest.raises(SerializationError, match="begins with byte 123"):
        AvroDeserializer(client).deserialize("latest", (), b'{"not": "framed"}')


def test_avro_with_references(client: RegistryClient) -> None:
    client.register("user", Schema(USER_1))
    text = '{"type": "record", "name": "Order", "fields": [{"name": "user", "type": "shop.User"}]}'
    schema = Schema(text, references=(Reference("shop.User", "user", 1),))
    data = AvroSerializer(client, schema).serialize("orders", (), {"user": {"id": 5}})
    assert AvroDeserializer(client).deserialize("orders", (), data) == {"user": {"id": 5}}
    assert client.referenced_by("user", 1) == [client.latest("orders-value").id]


def test_json(broker: EmbeddedBroker, client: RegistryClient) -> None:
    write = JsonSerializer(client, PERSON)
    read = JsonDeserializer(client)
    data = write.serialize("people", (), {"name": "Ada"})
    assert read.deserialize("people", (), data) == {"name": "Ada"}
    with pytest.raises(SerializationError, match="'name' is a required property"):
        write.serialize("people", (), {"age": 3})
    with pytest.raises(SerializationError, match="at age"):
        write.serialize("people", (), {"name": "x", "age": -1})
    team = Schema(
        json.dumps({"title": "Team", "type": "array", "items": {"$ref": "person.json"}}),
        SchemaType.JSON,
        (Reference("person.json", "people-value", 1),),
    )
    members = JsonSerializer(client, team)
    data = members.serialize("teams", (), [{"name": "Ada"}])
    assert read.deserialize("teams", (), data) == [{"name": "Ada"}]
    with pytest.raises(SerializationError):
        members.serialize("teams", (), [{"age": 1}])


def test_protobuf_with_and_without_generated_code(broker: EmbeddedBroker, client: RegistryClient) -> None:
    classes = message_classes()
    order = classes["shop.Order"](id=7, cash=True, note="n", tags={"a": "b"})
    order.lines.add(sku="x").price.cents = 995
    topic = "own-proto"
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, value_serializer=ProtobufSerializer(client, classes["shop.Order"])
    ) as producer:
        producer.send(topic, order, partition=0).result()
    assert consume(broker, topic, 1, ProtobufDeserializer(client, classes["shop.Order"])) == [order]
    (dynamic,) = consume(broker, topic, 1, ProtobufDeserializer(client))
    assert dynamic.lines[0].price.cents == 995  # type: ignore[attr-defined]  # a class made from the schema
    assert dynamic.SerializeToString(deterministic=True) == order.SerializeToString(deterministic=True)  # type: ignore[attr-defined]
    line = classes["shop.Order.Line"](sku="y")
    data = ProtobufSerializer(client, classes["shop.Order.Line"]).serialize(topic, (), line)
    assert ProtobufDeserializer(client).deserialize(topic, (), data).sku == "y"
    assert client.latest("shop/money.proto").schema.type is SchemaType.PROTOBUF


def test_settings_and_errors(client: RegistryClient) -> None:
    assert client.compatibility() is Compatibility.BACKWARD
    client.set_compatibility(Compatibility.FULL, "s")
    assert client.compatibility("s") is Compatibility.FULL
    client.delete_compatibility("s")
    assert client.compatibility("s") is Compatibility.BACKWARD
    client.set_mode(Mode.READONLY)
    assert client.mode("s") is Mode.READONLY
    with pytest.raises(RegistryError, match="read-only"):
        client.register("s", Schema('"int"'))
    client.set_mode(Mode.READWRITE)
    client.register("s", Schema('"int"'))
    assert client.look_up("s", Schema('{"type": "int"}')).version == 1
    assert client.delete_version("s", 1) == 1
    assert client.delete_subject("s", permanent=True) == [1]
    with pytest.raises(RegistryError) as caught:
        client.latest("s")
    assert caught.value.code == 40401
    assert client.contexts() == ["."]


def test_asyncio(broker: EmbeddedBroker, registry: RunningRegistry) -> None:
    async def main() -> None:
        async with AsyncRegistryClient(["http://127.0.0.1:1", registry.url]) as client:
            registered = await client.register("async-value", Schema(USER_1))
            assert await client.schema(registered.id) == (await client.latest("async-value")).schema
            with RegistryClient(registry.url) as blocking:
                serializer = AvroSerializer(blocking, USER_1)
                await asyncio.to_thread(serializer.prepare, "async")
                servers = broker.bootstrap_servers
                async with AsyncProducer(bootstrap_servers=servers, value_serializer=serializer) as producer:
                    await producer.send_and_wait("async", {"id": 9}, partition=0)
                async with AsyncConsumer(
                    bootstrap_servers=servers,
                    auto_offset_reset="earliest",
                    value_deserializer=AvroDeserializer(blocking),
                ) as consumer:
                    consumer.assign([TopicPartition("async", 0)])
                    async for record in consumer:
                        assert record.value == {"id": 9}
                        break
        with pytest.raises(RegistryUnreachableError, match=r"127\.0\.0\.1:1"):
            await AsyncRegistryClient("http://127.0.0.1:1").latest("s")

    asyncio.run(main())


async def _there_and_back(servers: str, topic: str, serializer: object, deserializer: object) -> object:
    async with AsyncProducer(bootstrap_servers=servers, value_serializer=serializer) as producer:
        await producer.send_and_wait(topic, {"id": 7}, partition=0)
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    async with AsyncConsumer(settings, value_deserializer=deserializer) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        (record,) = await consumer.poll(10_000)
        return record.value


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_on_an_event_loop_nothing_asks_the_registry_from_the_loop(
    broker: EmbeddedBroker, client: RegistryClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    asked_from: list[int] = []
    for name in ("register", "schema", "dependencies"):
        method = getattr(RegistryClient, name)

        def note(self: RegistryClient, *args: object, method: Any = method, **more: object) -> object:
            asked_from.append(threading.get_ident())
            return method(self, *args, **more)

        monkeypatch.setattr(RegistryClient, name, note)
    if kind == "avro":
        pair: tuple[object, object] = AvroSerializer(client, USER_1), AvroDeserializer(client)
    else:
        pair = JsonSerializer(client, '{"type": "object"}'), JsonDeserializer(client)
    found = asyncio.run(_there_and_back(broker.bootstrap_servers, f"loop-{kind}", *pair))
    assert found == {"id": 7}
    assert len(asked_from) >= 3
    assert threading.get_ident() not in asked_from
