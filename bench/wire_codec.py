"""Shell: how fast messages become bytes and bytes messages, next to kio and kafka-python, in one run.

    python -m bench.wire_codec            about half a minute
    python -m bench.wire_codec --json     the numbers for programs

Back of an envelope, for one core: a broker that answers 10,000 small Fetch requests a second has 100 us for each;
reading the request and writing the response should take less than a tenth of that.

kio's reader is native code (Rust); everything else here is Python.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.messages import fetch, metadata, produce
from barnabas.protocol.wire.schema import Message, schema_of

TOPIC_ID = UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
SECONDS_PER_CASE = 0.25
ROUNDS = 3


class Case(NamedTuple):
    name: str
    message: Message
    version: int


def cases() -> list[Case]:
    batch = bytes(16 * 1024)
    return [
        Case("Produce request, 1 partition, 16 KB", _produce(1, batch), 9),
        Case("Produce request, 20 partitions, 1 KB", _produce(20, batch[:1024]), 9),
        Case("Produce response, 20 partitions", _produce_response(20), 9),
        Case("Fetch request, 1 partition", _fetch(1), 12),
        Case("Fetch request, 100 partitions", _fetch(100), 12),
        Case("Fetch response, 1 partition, 16 KB", _fetch_response(1, batch), 12),
        Case("Fetch response, 100 partitions, 1 KB", _fetch_response(100, batch[:1024]), 12),
        Case("Metadata request, 1 topic", metadata.MetadataRequest(topics=[_wanted("flights")]), 12),
        Case("Metadata response, 3 brokers, 10 x 12 partitions", _metadata_response(10, 12), 12),
    ]


def _produce(partitions: int, batch: bytes) -> Message:
    data = [produce.PartitionProduceData(index=i, records=batch) for i in range(partitions)]
    topic = produce.TopicProduceData(name="flights", partition_data=data)
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def _produce_response(partitions: int) -> Message:
    answers = [produce.PartitionProduceResponse(index=i, base_offset=i * 1000) for i in range(partitions)]
    return produce.ProduceResponse(
        responses=[produce.TopicProduceResponse(name="flights", partition_responses=answers)]
    )


def _fetch(partitions: int) -> Message:
    wanted = [
        fetch.FetchPartition(partition=i, fetch_offset=123_456 + i, partition_max_bytes=1_048_576)
        for i in range(partitions)
    ]
    topic = fetch.FetchTopic(topic="flights", partitions=wanted)
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=52_428_800, topics=[topic])


def _fetch_response(partitions: int, batch: bytes) -> Message:
    data = [
        fetch.PartitionData(
            partition_index=i, high_watermark=9_999, last_stable_offset=9_999, log_start_offset=0, records=batch
        )
        for i in range(partitions)
    ]
    return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic="flights", partitions=data)])


def _wanted(name: str) -> metadata.MetadataRequestTopic:
    return metadata.MetadataRequestTopic(name=name)


def _metadata_response(topics: int, partitions: int) -> Message:
    brokers = [
        metadata.MetadataResponseBroker(node_id=i, host=f"broker-{i}.example", port=9092, rack="a") for i in range(3)
    ]
    rows = [
        metadata.MetadataResponsePartition(
            partition_index=i, leader_id=i % 3, leader_epoch=4, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
        )
        for i in range(partitions)
    ]
    listed = [
        metadata.MetadataResponseTopic(name=f"topic-{i}", topic_id=TOPIC_ID, partitions=rows) for i in range(topics)
    ]
    return metadata.MetadataResponse(brokers=brokers, cluster_id="abcdefghijklmnop", controller_id=1, topics=listed)


class Directions(NamedTuple):
    """One library's two directions for one case."""

    encode: Callable[[], Any]
    decode: Callable[[], Any]


def ours(case: Case, data: bytes) -> Directions:
    cls = type(case.message)
    return Directions(lambda: encode(case.message, case.version), lambda: decode(cls, case.version, data))


def kafka_python(case: Case, data: bytes) -> Directions | None:
    try:
        from kafka.protocol import consumer, producer
        from kafka.protocol import metadata as their_metadata
    except ImportError:
        return None
    name = schema_of(case.message).name
    cls = next(getattr(m, name) for m in (producer, consumer, their_metadata) if hasattr(m, name))
    value = cls.decode(data, version=case.version)
    value._header = None
    assert bytes(value.encode(version=case.version)) == data
    return Directions(lambda: value.encode(version=case.version), lambda: cls.decode(data, version=case.version))


def kio(case: Case, data: bytes) -> Directions | None:
    try:
        from kio.index import load_request_schema, load_response_schema
        from kio.serial import entity_reader, entity_writer
    except ImportError:
        return None
    schema = schema_of(case.message)
    load: Any = load_request_schema if schema.name.endswith("Request") else load_response_schema
    cls = load(schema.key, case.version)
    read, write = entity_reader(cls), entity_writer(cls)
    value, _ = read(data, 0)

    def write_out() -> bytes:
        out = io.BytesIO()
        write(out, value)
        return out.getvalue()

    assert write_out() == data
    return Directions(write_out, lambda: read(data, 0))


def per_second(function: Callable[[], Any]) -> float:
    """The best of a few rounds: the one the rest of the machine disturbed least."""
    function()
    number = 1
    while True:
        elapsed = _time(function, number)
        if elapsed > SECONDS_PER_CASE / 10:
            break
        number *= 2
    number = max(1, round(number * SECONDS_PER_CASE / ROUNDS / elapsed))
    return number / min(_time(function, number) for _ in range(ROUNDS))


def _time(function: Callable[[], Any], number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        function()
    return time.perf_counter() - start


def measure() -> list[dict[str, Any]]:
    rows = []
    for case in cases():
        assert APIS[ApiKey(schema_of(case.message).key)]
        data = encode(case.message, case.version)
        codecs = {"barnabas": ours(case, data), "kio": kio(case, data), "kafka-python": kafka_python(case, data)}
        for direction in ("encode", "decode"):
            rates = {who: per_second(getattr(codec, direction)) for who, codec in codecs.items() if codec is not None}
            rows.append({"case": case.name, "version": case.version, "direction": direction, "per_second": rates})
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'message':<50} {'':<7} {'barnabas/s':>11} {'kio/s':>11} {'ratio':>6} {'kafka-python/s':>15} {'ratio':>6}")
    for row in rows:
        rates = row["per_second"]
        mine = rates["barnabas"]
        line = f"{row['case']:<50} {row['direction']:<7} {mine:>11,.0f}"
        for who, width in (("kio", 11), ("kafka-python", 15)):
            other = rates.get(who)
            line += f" {other:>{width},.0f} {mine / other:>5.1f}x" if other else f" {'-':>{width}} {'-':>6}"
        print(line)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the wire codec with kio's and kafka-python's.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    rows_wanted = parser.parse_args()
    rows = measure()
    if rows_wanted.json:
        json.dump(rows, sys.stdout, indent=1)
        print()
    else:
        show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
