"""Typed records between Spark and the serializers of confluent-kafka, through our registry."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ForeignPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import DataFrame, SparkSession

from barnabas.core.ids import TopicPartition
from barnabas.spark.records.dead_letter_topic import read_letter_counts
from barnabas.spark.records.dead_letters import count_letters
from tests.system.registry.conftest import RunningRegistry
from tests.system.spark.broker import Record, Topics, committed

Options = dict[str, str]
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
ORDER_2 = {**ORDER, "fields": [*ORDER["fields"], {"name": "total", "type": "double", "default": 0.0}]}
JSON_ORDER = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["id"],
}


@pytest.fixture(scope="module")
def registry(servers: str) -> Iterator[RunningRegistry]:
    with RunningRegistry(servers, "_schemas_typed") as running:
        yield running


@pytest.fixture
def foreign(registry: RunningRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


@pytest.fixture
def typed(options: Options, registry: RunningRegistry) -> Options:
    return {**options, "schema.registry.url": registry.url, "startingOffsets": "earliest"}


def order(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "note": f"n{number}",
        "at": datetime(2026, 1, 1, 0, 0, number, tzinfo=UTC),
        "tags": ["x"],
        **more,
    }


def load(spark: SparkSession, options: Options, **more: str) -> DataFrame:
    return spark.read.format("barnabas").options(**{**options, **more}).load()


def value_context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_of_a_foreign_serializer_is_a_struct(
    spark: SparkSession, topics: Topics, foreign: SchemaRegistryClient, typed: Options, topic: str
) -> None:
    topics.create(topic)
    write, context = AvroSerializer(foreign, json.dumps(ORDER)), value_context(topic)
    topics.produce(topic, [Record(write(order(number), context), str(number).encode()) for number in range(3)])
    newer = AvroSerializer(foreign, json.dumps(ORDER_2))
    topics.produce(topic, [Record(newer(order(3, total=9.5), context), b"3"), Record(None, b"4")])
    frame = load(spark, typed, valueFormat="avro", keyFormat="string", columns="offset,key,value")
    assert frame.schema.simpleString() == (
        "struct<offset:bigint,key:string,"
        "value:struct<id:bigint,note:string,at:timestamp,tags:array<string>,total:double>>"
    )
    rows = frame.selectExpr("key", "value.id", "value.total", "value.tags[0]", "second(value.at)", "value is null")
    assert [tuple(row) for row in rows.orderBy("offset").collect()] == [
        ("0", 0, 0.0, "x", 0, False),
        ("1", 1, 0.0, "x", 1, False),
        ("2", 2, 0.0, "x", 2, False),
        ("3", 3, 9.5, "x", 3, False),
        ("4", None, None, None, None, True),
    ]
    # A schema of the reader's own: fields by name, in the reader's order.
    narrow = spark.read.format("barnabas").options(**typed, valueFormat="avro").schema("value struct<note:string>")
    assert narrow.load().where("value is not null").count() == 4
    first = load(spark, typed, valueFormat="avro", valueSchemaVersion="1")
    assert first.select("value.*").columns == ["id", "note", "at", "tags"]


def test_json_schema_and_protobuf_of_foreign_serializers(
    spark: SparkSession, topics: Topics, foreign: SchemaRegistryClient, typed: Options, topic: str
) -> None:
    topics.create(topic)
    context = value_context(topic)
    write = JSONSerializer(json.dumps(JSON_ORDER), foreign)
    topics.produce(topic, [Record(write({"id": 1, "note": "a"}, context)), Record(write({"id": 2}, context))])
    frame = load(spark, typed, valueFormat="json-schema")
    assert [tuple(row) for row in frame.select("value.*").orderBy("id").collect()] == [(1, "a"), (2, None)]
    name = f"{topic}.proto"
    topics.create(name)
    message = order_message()
    write_message = ProtobufSerializer(message, foreign, {"use.deprecated.format": False})
    topics.produce(name, [Record(write_message(message(id=5, note="p", tags=["a", "b"]), value_context(name)))])
    proto = load(spark, {**typed, "subscribe": name}, valueFormat="protobuf")
    assert [tuple(row) for row in proto.select("value.*").collect()] == [(5, "p", ["a", "b"])]


@pytest.mark.system
def test_what_spark_writes_is_read_by_foreign_deserializers(
    spark: SparkSession, topics: Topics, servers: str, foreign: SchemaRegistryClient, typed: Options, topic: str
) -> None:
    topics.create(topic)
    frame = spark.sql(
        "SELECT 'k' AS key, named_struct("
        "'id', 7L, 'note', 'n', 'at', TIMESTAMP '2026-01-01 00:00:07', 'tags', array('x')) AS value"
    )
    target = {"kafka.bootstrap.servers": servers, "schema.registry.url": typed["schema.registry.url"]}

    def save(topic: str, **more: str) -> bytes:
        frame.write.format("barnabas").options(**target, **more, topic=topic).mode("append").save()
        return bytes(consume(servers, topic, 1)[0].value())

    # With a subject: the registered schema is used, and a column that it does not have is an error at once.
    foreign.register_schema(f"{topic}-value", Schema(json.dumps(ORDER), "AVRO"))
    context = value_context(topic)
    assert AvroDeserializer(foreign)(save(topic, valueFormat="avro"), context) == order(7, note="n")
    with pytest.raises(Exception, match=r"has no field value\.more"):
        frame.selectExpr("named_struct('id', 1L, 'more', 2) AS value").write.format("barnabas").options(
            **target, topic=topic, valueFormat="avro"
        ).mode("append").save()
    # Without one: the schema of the column is registered.
    derived = AvroDeserializer(foreign)(save(f"{topic}.a", valueFormat="avro"), value_context(f"{topic}.a"))
    assert (derived["id"], derived["at"], derived["tags"]) == (7, datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC), ["x"])
    document = save(f"{topic}.j", valueFormat="json-schema")
    schema = foreign.get_latest_version(f"{topic}.j-value").schema.schema_str
    read = JSONDeserializer(schema, schema_registry_client=foreign)
    assert read(document, value_context(f"{topic}.j"))["note"] == "n"
    text = 'syntax = "proto3";\npackage shop;\nmessage Order { int64 id = 1; string note = 2; }\n'
    narrow = frame.selectExpr("named_struct('id', 7L, 'note', 'n') AS value").write.format("barnabas")
    narrow.options(**target, valueFormat="protobuf", valueSchema=text, topic=f"{topic}.p").mode("append").save()
    message = ProtobufDeserializer(order_message(), {"use.deprecated.format": False})(
        bytes(consume(servers, f"{topic}.p", 1)[0].value()), value_context(f"{topic}.p")
    )
    assert (message.id, message.note) == (7, "n")


def order_message() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="spark_order.proto", syntax="proto3", package="shop")
    order = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="note", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="tags", number=3, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_bad_records_stop_the_query_or_become_dead_letters(
    spark: SparkSession, topics: Topics, servers: str, options: Options, topic: str
) -> None:
    topics.create(topic)
    headers: tuple[tuple[str, bytes | None], ...] = (("h", b"1"),)
    topics.produce(topic, [Record(b'{"id": 1}'), Record(b"oops", b"k", headers=headers), Record(b'{"id": "x"}')])
    json_options = {**options, "valueFormat": "json", "valueSchema": "id BIGINT"}
    with pytest.raises(Exception, match=rf"record at offset 1 of {topic}, partition 0, cannot be read as json"):
        load(spark, json_options).select("value.id").collect()
    tolerant = {**json_options, "errors.tolerance": "all", "errors.deadletterqueue.topic.name": f"{topic}.bad"}
    frame = load(spark, tolerant, columns="value")
    for _ in range(2):  # a repeated read reports its bad records again
        assert [row.id for row in frame.select("value.id").collect()] == [1]
    found = consume(servers, f"{topic}.bad", 4)
    assert [message.value() for message in found] == [b"oops", b'{"id": "x"}'] * 2
    assert (found[0].key(), found[0].headers()[0]) == (b"k", ("h", b"1"))
    assert count_letters([message.headers() for message in found]) == {TopicPartition(topic, 0): 2}
    assert read_letter_counts(options, f"{topic}.bad") == {TopicPartition(topic, 0): 2}
    with pytest.raises(Exception, match="which the query reads"):
        load(spark, {**tolerant, "errors.deadletterqueue.topic.name": topic}).count()


@pytest.mark.system
def test_a_stream_picks_up_a_new_schema_when_it_is_started_again(
    spark: SparkSession,
    topics: Topics,
    foreign: SchemaRegistryClient,
    typed: Options,
    topic: str,
    tmp_path: Path,
    run_now: Callable[..., list[dict[str, Any]]],
) -> None:
    topics.create(topic)
    context = value_context(topic)
    foreign.register_schema(f"{topic}-value", Schema(json.dumps(ORDER), "AVRO"))
    topics.produce(topic, [Record(AvroSerializer(foreign, json.dumps(ORDER))(order(1), context))])
    more = {"valueFormat": "avro", "schema.evolution": "restart", "schema.registry.url": typed["schema.registry.url"]}
    run_now(**more, startingOffsets="earliest")
    topics.produce(topic, [Record(AvroSerializer(foreign, json.dumps(ORDER_2))(order(2, total=2.5), context))])
    run_now(**more, startingOffsets="earliest")  # the new start reads with the new version
    rows = spark.read.option("mergeSchema", True).parquet(str(tmp_path / "rows")).selectExpr("value.id", "value.total")
    assert sorted(tuple(row) for row in rows.collect()) == [(1, None), (2, 2.5)]


def test_a_typed_stream_is_written_exactly_once(
    spark: SparkSession, topics: Topics, servers: str, options: Options, topic: str, tmp_path: Path
) -> None:
    """The first attempt fails at the last row, after the topic has rows before it (see CHUNK_BYTES)."""
    count, target = 25_000, f"{topic}.out"
    for name in (topic, target):
        topics.create(name)
    texts = [json.dumps({"id": number, "note": "x" * 500}) for number in range(count)]
    topics.produce(topic, [Record(text.encode(), b"%d" % number) for number, text in enumerate(texts)])
    json_values = {"valueFormat": "json", "keyFormat": "string", "kafka.bootstrap.servers": servers}

    def run(number: str) -> None:
        stream = spark.readStream.format("barnabas").options(**{**options, **json_values}, startingOffsets="earliest")
        rows = stream.option("valueSchema", "id BIGINT, note STRING").load()
        query = (
            rows.selectExpr("key", f"named_struct('id', {number}, 'note', value.note, 'twice', 2 * value.id) AS value")
            .writeStream.format("barnabas")
            .options(**json_values, topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(240)

    def fail_at_last(number: int) -> int:  # in a worker
        if number == count - 1:
            from confluent_kafka import Consumer, TopicPartition  # the names of this module cannot be pickled

            # The transaction is open: its records are behind the last stable offset.
            settings = {"bootstrap.servers": servers, "group.id": "x", "isolation.level": "read_uncommitted"}
            reader = Consumer(settings)
            deadline = time.monotonic() + 200
            while not reader.get_watermark_offsets(TopicPartition(target, 0))[1] and time.monotonic() < deadline:
                time.sleep(0.05)  # the worker of the sink may still compile its kernels
            raise ValueError("the last row fails")
        return number

    spark.udf.register("fail_at_last", fail_at_last, "bigint")
    with pytest.raises(Exception, match="the last row fails"):
        run("fail_at_last(value.id)")
    reader = Consumer({"bootstrap.servers": servers, "group.id": "x", "isolation.level": "read_uncommitted"})
    assert reader.get_watermark_offsets(ForeignPartition(target, 0))[1] > 0, "the failed attempt has written nothing"
    reader.close()
    assert committed(servers, target) == []
    run("value.id")
    written = [json.loads(value or b"null") for value in committed(servers, target)]
    assert written == [{"id": number, "note": "x" * 500, "twice": 2 * number} for number in range(count)]


def consume(servers: str, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    try:
        found: list[Any] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=60)
            assert messages, f"only {len(found)} of {count} records of {topic}"
            found += messages
        return found
    finally:
        consumer.close()
