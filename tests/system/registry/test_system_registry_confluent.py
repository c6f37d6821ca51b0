"""confluent-kafka's registry client and serializers against our registry, over our broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.schema_registry_client import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
)
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from barnabas.registry.formats.protobuf import parse_protobuf
from barnabas.testing.embedded import EmbeddedBroker
from tests.system.registry.conftest import RunningRegistry

USER_1 = json.dumps({"type": "record", "name": "User", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]})
USER_2 = json.dumps(
    {
        "type": "record",
        "name": "User",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "email", "type": ["null", "string"], "default": None}],
    }
)
USER_BAD = json.dumps({"type": "record", "name": "User", "namespace": "shop", "fields": [{"name": "e", "type": "int"}]})
PERSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Person",
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name"],
        "additionalProperties": False,
    }
)


@pytest.fixture
def client(registry: RunningRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def refusal(call: Callable[[], object]) -> tuple[int, int]:
    """(HTTP status, error code) of a call that must be refused."""
    with pytest.raises(SchemaRegistryError) as caught:
        call()
    return caught.value.http_status_code, caught.value.error_code


def test_a_subjects_life(client: SchemaRegistryClient) -> None:
    first = client.register_schema("users-value", Schema(USER_1))
    assert client.register_schema("users-value", Schema(json.dumps(json.loads(USER_1), indent=4))) == first
    assert client.register_schema("other-value", Schema(USER_1)) == first
    second = client.register_schema("users-value", Schema(USER_2))
    assert second != first
    assert refusal(lambda: client.register_schema("users-value", Schema(USER_BAD))) == (409, 409)
    assert refusal(lambda: client.register_schema("users-value", Schema('{"type": "nonsense"}'))) == (422, 42201)
    assert client.get_subjects() == ["other-value", "users-value"]
    assert client.get_versions("users-value") == [1, 2]
    assert client.get_latest_version("users-value").schema_id == second
    assert client.get_version("users-value", 1).schema_id == first
    assert json.loads(client.get_schema(second).schema_str or "") == json.loads(USER_2)
    assert client.lookup_schema("users-value", Schema(USER_1)).version == 1
    assert refusal(lambda: client.lookup_schema("users-value", Schema('"int"'))) == (404, 40403)
    assert refusal(lambda: client.get_versions("nobody")) == (404, 40401)
    assert refusal(lambda: client.get_version("users-value", 9)) == (404, 40402)
    assert sorted(client.get_subjects_by_schema_id(first)) == ["other-value", "users-value"]
    assert [(v.subject, v.version) for v in client.get_schema_versions(first)] == [
        ("other-value", 1),
        ("users-value", 1),
    ]
    guid = client.get_latest_version("users-value").guid
    assert guid is not None
    assert json.loads(client.get_schema_by_guid(guid).schema_str or "") == json.loads(USER_2)
    assert client.get_schema_types() == ["AVRO", "JSON", "PROTOBUF"]
    assert client.get_contexts() == ["."]


def test_compatibility_levels(client: SchemaRegistryClient) -> None:
    client.register_schema("s", Schema(USER_1))
    assert client.get_compatibility() == "BACKWARD"
    assert client.test_compatibility("s", Schema(USER_2))
    assert not client.test_compatibility("s", Schema(USER_BAD))
    assert not client.test_compatibility_all_versions("s", Schema(USER_BAD))
    assert refusal(lambda: client.get_compatibility("s")) == (404, 40408)
    client.set_compatibility("s", "NONE")
    assert client.get_compatibility("s") == "NONE"
    assert client.test_compatibility("s", Schema(USER_BAD))
    client.register_schema("s", Schema(USER_BAD))
    client.set_config("s", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL_TRANSITIVE))
    assert client.get_config("s").compatibility_level == "FULL_TRANSITIVE"
    assert refusal(lambda: client.register_schema("s", Schema(USER_2))) == (409, 409)
    client.delete_config("s")
    assert refusal(lambda: client.get_compatibility("s")) == (404, 40408)
    assert refusal(lambda: client.set_compatibility("s", "SOMETIMES")) == (422, 42203)


def test_deleting_softly_then_for_good(client: SchemaRegistryClient) -> None:
    first = client.register_schema("s", Schema(USER_1))
    client.register_schema("s", Schema(USER_2))
    assert client.delete_version("s", 2) == 2
    assert refusal(lambda: client.delete_version("s", 2)) == (404, 40406)
    assert client.get_versions("s") == [1]
    assert client.get_versions("s", deleted=True) == [1, 2]
    assert refusal(lambda: client.delete_version("s", 1, permanent=True)) == (404, 40407)
    assert refusal(lambda: client.delete_subject("s", permanent=True)) == (404, 40405)
    assert client.delete_subject("s") == [1]
    assert client.get_subjects() == []
    assert client.get_subjects(deleted=True) == ["s"]
    assert client.get_schema(first).schema_str
    client.clear_caches()
    assert client.register_schema("s", Schema(USER_1)) == first
    assert client.get_versions("s") == [3]
    assert client.delete_subject("s", permanent=False) == [3]
    client.delete_subject("s", permanent=True)
    assert client.get_subjects(deleted=True) == []
    client.clear_caches()
    assert refusal(lambda: client.get_schema(first)) == (404, 40403)


def test_modes_and_imports(client: SchemaRegistryClient, registry: RunningRegistry) -> None:
    assert client.get_global_mode() == "READWRITE"
    assert client.update_mode("s", "READONLY") == "READONLY"
    assert client.get_mode("s") == "READONLY"
    assert refusal(lambda: client.register_schema("s", Schema(USER_1))) == (422, 42205)
    assert client.delete_mode("s") == "READONLY"
    client.register_schema("s", Schema(USER_1))
    assert refusal(lambda: client.update_mode("s", "IMPORT")) == (422, 42205)
    assert refusal(lambda: client.update_mode("s", "SLEEPING")) == (422, 42204)
    assert client.update_mode("imported", "IMPORT") == "IMPORT"
    rest = client._rest_client
    answer = rest.post("subjects/imported/versions", body={"schema": USER_2, "id": 77, "version": 5})
    assert (answer["id"], answer["version"]) == (77, 5)
    assert client.get_version("imported", 5).schema_id == 77
    client.update_mode("imported", "READWRITE")
    assert client.register_schema("next", Schema('"int"')) == 78


def test_references_hold_what_they_refer_to(client: SchemaRegistryClient) -> None:
    client.register_schema("user", Schema(USER_1))
    order = '{"type": "record", "name": "Order", "fields": [{"name": "user", "type": "shop.User"}]}'
    schema = Schema(order, "AVRO", [SchemaReference("shop.User", "user", 1)])
    assert refusal(lambda: client.register_schema("order", Schema(order))) == (422, 42201)
    order_id = client.register_schema("order", schema)
    assert client.get_referenced_by("user", 1) == [order_id]
    assert refusal(lambda: client.delete_subject("user")) == (422, 42206)
    assert refusal(lambda: client.delete_version("user", 1)) == (422, 42206)
    registered = client.get_latest_version("order")
    assert registered.schema.references == [SchemaReference("shop.User", "user", 1)]
    missing = Schema(order, "AVRO", [SchemaReference("shop.User", "user", 7)])
    assert refusal(lambda: client.register_schema("order", missing)) == (422, 42201)
    client.delete_subject("order")
    assert client.delete_subject("user") == [1]


def test_contexts_have_ids_of_their_own(client: SchemaRegistryClient, registry: RunningRegistry) -> None:
    assert client.register_schema("s", Schema(USER_1)) == 1
    assert client.register_schema(":.staging:s", Schema(USER_2)) == 1
    assert client.get_contexts() == [".", ".staging"]
    assert client.get_latest_version(":.staging:s").subject == ":.staging:s"
    staging = SchemaRegistryClient({"url": f"{registry.url}/contexts/.staging"})
    assert json.loads(staging.get_schema(1).schema_str or "") == json.loads(USER_2)
    assert staging.get_latest_version("s").version == 1
    assert client.get_subjects(subject_prefix=":.staging:") == [":.staging:s"]


def test_a_restart_replays_everything(broker: EmbeddedBroker, schemas_topic: str) -> None:
    with RunningRegistry(broker.bootstrap_servers, schemas_topic) as running:
        client = SchemaRegistryClient({"url": running.url})
        client.register_schema("a", Schema(USER_1, metadata=Metadata(None, MetadataProperties({"owner": "x"}), None)))
        client.register_schema("a", Schema(USER_2))
        client.register_schema("p", Schema(PERSON, "JSON"))
        client.register_schema("gone", Schema('"int"'))
        client.delete_version("a", 1)
        client.delete_subject("gone")
        client.delete_subject("gone", permanent=True)
        client.set_compatibility("a", "FULL")
        client.update_mode("p", "READONLY")
        before = client._rest_client.get("schemas", {"deleted": True})
    with RunningRegistry(broker.bootstrap_servers, schemas_topic) as running:
        client = SchemaRegistryClient({"url": running.url})
        assert client._rest_client.get("schemas", {"deleted": True}) == before
        assert client.get_subjects(deleted=True) == ["a", "p"]
        assert client.get_versions("a") == [2]
        assert client.get_compatibility("a") == "FULL"
        assert client.get_mode("p") == "READONLY"
        assert client.get_latest_with_metadata("a", {"owner": "x"}, deleted=True).version == 1


def test_two_registries_share_a_topic(broker: EmbeddedBroker, schemas_topic: str) -> None:
    with (
        RunningRegistry(broker.bootstrap_servers, schemas_topic) as one,
        RunningRegistry(broker.bootstrap_servers, schemas_topic) as other,
    ):
        clients = [SchemaRegistryClient({"url": registry.url}) for registry in (one, other)]
        ids = [
            clients[number % 2].register_schema(f"s{number}", Schema(f'{{"type":"fixed","name":"F","size":{number}}}'))
            for number in range(8)
        ]
        assert ids == list(range(1, 9))
        assert clients[0].get_schema(8).schema_str == '{"type":"fixed","name":"F","size":7}'
        assert clients[0].register_schema("s7", Schema('{"type":"fixed","name":"F","size":7}')) == 8


# -- serializers, over the broker


def roundtrip(broker: EmbeddedBroker, topic: str, payloads: list[bytes | None]) -> list[bytes | None]:
    """Through the broker with librdkafka."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for payload in payloads:
        producer.produce(topic, payload)
    producer.flush(30)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < len(payloads):
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_evolves(broker: EmbeddedBroker, client: SchemaRegistryClient) -> None:
    old, new = AvroSerializer(client, USER_1), AvroSerializer(client, USER_2)
    payloads = [old({"id": 1}, context("avro")), new({"id": 2, "email": "x"}, context("avro"))]
    read = AvroDeserializer(client, USER_2)
    values = [read(payload, context("avro")) for payload in roundtrip(broker, "avro", payloads)]
    assert values == [{"id": 1, "email": None}, {"id": 2, "email": "x"}]
    latest = AvroSerializer(client, None, conf={"use.latest.version": True, "auto.register.schemas": False})
    assert read(latest({"id": 3, "email": None}, context("avro")), context("avro")) == {"id": 3, "email": None}
    strict = AvroSerializer(client, USER_BAD, conf={"auto.register.schemas": False})
    with pytest.raises(SchemaRegistryError):
        strict({"e": 1}, context("avro"))
    named = AvroSerializer(client, USER_1, conf={"subject.name.strategy": record_subject_name_strategy})
    named({"id": 1}, context("avro"))
    assert "shop.User" in client.get_subjects()


def test_json_is_validated(broker: EmbeddedBroker, client: SchemaRegistryClient) -> None:
    write = JSONSerializer(PERSON, client)
    payload = write({"name": "Ada", "age": 36}, context("json"))
    assert JSONDeserializer(PERSON)(roundtrip(broker, "json", [payload])[0], context("json")) == {
        "name": "Ada",
        "age": 36,
    }
    closed = json.loads(PERSON)
    closed["properties"]["email"] = {"type": "string"}
    assert client.test_compatibility("json-value", Schema(json.dumps(closed), "JSON"))
    closed["required"].append("email")
    assert not client.test_compatibility("json-value", Schema(json.dumps(closed), "JSON"))


def message_classes() -> dict[str, Any]:
    """Generated code's twin: two files, one importing the other and a well-known one."""
    common = parse_protobuf('syntax = "proto3"; package shop; message Money { int64 cents = 1; }').file
    common.name = "shop/money.proto"
    order = descriptor_pb2.FileDescriptorProto()
    text = """
      syntax = "proto3"; package shop;
      import "shop/money.proto"; import "google/protobuf/timestamp.proto";
      message Order { message Line { string sku = 1; Money price = 2; }
        int64 id = 1; repeated Line lines = 2; google.protobuf.Timestamp at = 3; map<string, string> tags = 4;
        oneof payment { string card = 5; bool cash = 6; } optional string note = 7; }
    """
    parsed = parse_protobuf(
        text, {"shop/money.proto": 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'}
    )
    order.CopyFrom(parsed.file)
    order.name = "shop/order.proto"
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(common)
    pool.Add(order)
    names = ("shop.Order", "shop.Order.Line", "shop.Money")
    return {name: GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


def test_protobuf_with_imports(broker: EmbeddedBroker, client: SchemaRegistryClient) -> None:
    classes = message_classes()
    order = classes["shop.Order"](id=7, card="4242", note="quick", tags={"a": "b"})
    order.lines.add(sku="x").price.cents = 995
    order.at.seconds = 5
    write = ProtobufSerializer(classes["shop.Order"], client)
    payload = write(order, context("proto"))
    read = ProtobufDeserializer(classes["shop.Order"], schema_registry_client=client)
    assert read(roundtrip(broker, "proto", [payload])[0], context("proto")) == order
    registered = client.get_latest_version("proto-value")
    assert [reference.name for reference in registered.schema.references or []] == ["shop/money.proto"]
    assert "message Order {" in (registered.schema.schema_str or "")
    nested = ProtobufSerializer(classes["shop.Order.Line"], client)
    line = classes["shop.Order.Line"](sku="y")
    nested_payload = nested(line, context("proto"))
    assert nested_payload is not None
    assert nested_payload[5:8] == bytes([4, 0, 0])  # two indexes: the first message, the first nested in it
    assert (
        ProtobufDeserializer(classes["shop.Order.Line"], schema_registry_client=client)(
            nested_payload, context("proto")
        )
        == line
    )
    wrong = registered.schema.schema_str or ""
    assert not client.test_compatibility(
        "proto-value", Schema(wrong.replace("int64 id = 1", "string id = 1"), "PROTOBUF", registered.schema.references)
    )
