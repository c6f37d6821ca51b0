"""Table: attacks by the contents of record batches."""

from __future__ import annotations

import random
import threading
import time
import zlib
from collections.abc import Callable, Sequence

from tests.system.broker.wire_client import WireClient

from barnabas.core.errors import ErrorCode
from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.build import SimpleRecord, build_batch, seal, varint
from barnabas.protocol.records.compression import CompressionType, compress
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from bench.attacks.registry import Steps, attack

MB = 1 << 20
TOPIC = "attacked"
_ANSWER_S = 600.0


def create(client: WireClient, partitions: int, **configs: str) -> None:
    """Create the topic of the attack."""
    topic = CreatableTopic(
        name=TOPIC,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()],
    )
    response = client.call(CreateTopicsRequest(topics=[topic]), 7)
    assert response.topics[0].error_code == 0, response


def produce(batches: Sequence[bytes]) -> ProduceRequest:
    """A request with one batch for each partition."""
    data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    topic = TopicProduceData(name=TOPIC, partition_data=data)
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])


def raw_batch(payload: bytes, count: int, codec: CompressionType, base_timestamp: int, max_timestamp: int) -> bytes:
    """A batch of `count` records whose bytes, already compressed with `codec`, are `payload`."""
    header = BatchHeader(
        0, 0, -1, 2, 0, int(codec), count - 1, base_timestamp, max_timestamp, -1, -1, -1, count
    )  # fmt: skip
    return seal(header, payload)


def tiny_records(count: int, timestamp_delta: Callable[[int], int], key: Callable[[int], bytes | None]) -> bytes:
    """Records with an empty value."""
    out = bytearray()
    for index in range(count):
        name = key(index)
        body = b"\x00" + varint(timestamp_delta(index)) + varint(index)
        body += varint(-1 if name is None else len(name)) + (name or b"") + b"\x00\x00"
        out += varint(len(body)) + body
    return bytes(out)


def send(client: WireClient, request: ProduceRequest) -> str:
    """Send the request; the size of the request and the errors in the response."""
    size = sum(len(data.records) for topic in request.topic_data for data in topic.partition_data)  # type: ignore[misc, arg-type]
    response = client.call(request, 9)
    codes: dict[str, int] = {}
    for answer in response.responses[0].partition_responses:
        code = ErrorCode(answer.error_code).name
        codes[code] = codes.get(code, 0) + 1
    return f"{size / 1e6:.1f} MB: " + ", ".join(f"{count} {code}" for code, count in codes.items())


@attack("unordered-timestamps", "20 zstd batches of 980,000 records with timestamps in no order")
def unordered_timestamps(address: str) -> Steps:
    rng, now = random.Random(1), int(time.time() * 1000)
    count = 980_000
    payload = tiny_records(count, lambda index: 1 if index == 5 else -rng.randrange(1 << 12), lambda index: None)
    batch = raw_batch(compress(CompressionType.ZSTD, payload), count, CompressionType.ZSTD, now, now + 1)
    with WireClient(address, timeout_s=_ANSWER_S) as client:
        create(client, 20, max_message_bytes=str(16 * MB))
        yield
        return send(client, produce([batch] * 20))


@attack("compacted-topic", "honest batches of 100,000 records to 10 partitions of a compacted topic")
def compacted_topic(address: str) -> Steps:
    now = int(time.time() * 1000)
    records = [SimpleRecord(b"key-%d" % index, b"value", now + index) for index in range(100_000)]
    batch = build_batch(records, codec=CompressionType.ZSTD)
    with WireClient(address, timeout_s=_ANSWER_S) as client:
        create(client, 10, cleanup_policy="compact", max_message_bytes=str(16 * MB))
        yield
        return send(client, produce([batch] * 10))


@attack("chain", "20 zstd batches of 980,000 records of changing sizes, otherwise in order")
def chain(address: str) -> Steps:
    now = int(time.time() * 1000)
    count = 980_000
    payload = tiny_records(count, lambda index: 0, lambda index: b"ab"[: index % 3])
    batch = raw_batch(compress(CompressionType.ZSTD, payload), count, CompressionType.ZSTD, now, now)
    with WireClient(address, timeout_s=_ANSWER_S) as client:
        create(client, 20, max_message_bytes=str(16 * MB))
        yield
        return send(client, produce([batch] * 20))


@attack("gzip-members", "1 MB of 49,000 gzip members without contents")
def gzip_members(address: str) -> Steps:
    now = int(time.time() * 1000)
    payload = tiny_records(1, lambda index: 0, lambda index: None)
    empty = compress(CompressionType.GZIP, b"")
    members = compress(CompressionType.GZIP, payload) + empty * ((1_000_000 - 100) // len(empty))
    batch = raw_batch(members, 1, CompressionType.GZIP, now, now)
    with WireClient(address, timeout_s=_ANSWER_S) as client:
        create(client, 1)
        yield
        return send(client, produce([batch]))


@attack("inflating", "100 zstd batches that each inflate to 63 MB")
def inflating(address: str) -> Steps:
    now = int(time.time() * 1000)
    batch = build_batch([SimpleRecord(None, bytes(63 * 1_000_000), now)], codec=CompressionType.ZSTD)
    with WireClient(address, timeout_s=_ANSWER_S) as client:
        create(client, 100, max_message_bytes=str(16 * MB))
        yield
        return send(client, produce([batch] * 100))


def _recompressed(address: str, codec: str) -> Steps:
    rng, now = random.Random(1), int(time.time() * 1000)
    words = [rng.randbytes(3).hex().encode() for _ in range(50_000)]
    records = [SimpleRecord(b"%d" % index, b" ".join(rng.choices(words, k=1_400)), now) for index in range(1_000)]
    batch = build_batch(records)
    with WireClient(address, timeout_s=_ANSWER_S) as client:
        create(client, 1, compression_type=codec, max_message_bytes=str(32 * MB))
        yield
        return send(client, produce([batch]))


@attack("recompress-gzip", "one uncompressed batch of 10 MB to a topic with compression.type=gzip")
def recompress_gzip(address: str) -> Steps:
    return (yield from _recompressed(address, "gzip"))


@attack("recompress-zstd", "one uncompressed batch of 10 MB to a topic with compression.type=zstd")
def recompress_zstd(address: str) -> Steps:
    return (yield from _recompressed(address, "zstd"))


@attack("append-time", "one zstd batch of 60 MB to a topic with LogAppendTime")
def append_time(address: str) -> Steps:
    now = int(time.time() * 1000)
    value = zlib.crc32(b"").to_bytes(4, "big") + bytes(range(256)) * 400
    batch = build_batch([SimpleRecord(None, value, now)] * 600, codec=CompressionType.ZSTD)
    with WireClient(address, timeout_s=_ANSWER_S) as client:
        create(client, 1, message_timestamp_type="LogAppendTime", max_message_bytes=str(16 * MB))
        yield
        return send(client, produce([batch]))


@attack("list-offsets", "ListOffsets by timestamp in 20 partitions, each with a batch of 980,000 records")
def list_offsets(address: str) -> Steps:
    now = int(time.time() * 1000)
    count = 980_000
    payload = tiny_records(count, lambda index: index, lambda index: None)
    batch = raw_batch(compress(CompressionType.ZSTD, payload), count, CompressionType.ZSTD, now, now + count - 1)
    with WireClient(address, timeout_s=_ANSWER_S) as client:
        create(client, 20, max_message_bytes=str(16 * MB))
        for first in range(0, 20, 10):
            data = [PartitionProduceData(index=first + index, records=batch) for index in range(10)]
            topic = TopicProduceData(name=TOPIC, partition_data=data)
            client.call(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic]), 9)
        yield
        partitions = [
            ListOffsetsPartition(partition_index=index, timestamp=wanted)
            for index, wanted in enumerate([-3, now + count - 2] * 10)
        ]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)]
        )
        answers = client.call(request, 7).topics[0].partitions
        return ", ".join(sorted({f"offset {answer.offset}" for answer in answers}))


@attack("many-light", "on each of 20 connections 40 requests of 9,900 records in no order of time, all at once")
def many_light(address: str) -> Steps:
    rng, now = random.Random(1), int(time.time() * 1000)
    count = 9_900
    payload = tiny_records(count, lambda index: 1 if index == 5 else -rng.randrange(1 << 12), lambda index: None)
    request = produce([raw_batch(payload, count, CompressionType.NONE, now, now + 1)])
    clients = [WireClient(address, timeout_s=_ANSWER_S) for _ in range(20)]
    create(clients[0], 1)
    frames = []
    for client in clients:
        made = [client.frame(request, 9) for _ in range(40)]
        frames.append((client, [number for number, _ in made], b"".join(data for _, data in made)))
    yield
    writers = [threading.Thread(target=client.raw, args=(data,)) for client, _, data in frames]
    for writer in writers:
        writer.start()
    errors = 0
    for client, numbers, _ in frames:
        for number in numbers:
            errors += client.receive(number).responses[0].partition_responses[0].error_code != 0
        client.socket.close()
    return f"{len(frames)} connections, {errors} errors"
