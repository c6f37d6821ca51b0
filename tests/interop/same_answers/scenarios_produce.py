"""Table: scenarios about writing records. Each is played to both brokers."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from crc32c import crc32c

from barnabas.core.ids import NO_TOPIC_ID
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.wire.messages.describe_producers import DescribeProducersRequest
from barnabas.protocol.wire.messages.describe_producers import TopicRequest as ProducersOf
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.interop.same_answers.asking import T, fetch, list_ends
from tests.interop.same_answers.talk import Talk, batch, produce

NOWHERE = UUID(int=0xDEAD)
_CRC_AT, _CRC_FROM = 17, 21


def patched(records: bytes, at: int, form: str, value: int, *, crc: bool = True) -> bytes:
    """The batch with one header field changed, and its checksum made to fit."""
    changed = bytearray(records)
    struct.pack_into(form, changed, at, value)
    if crc:
        struct.pack_into(">I", changed, _CRC_AT, crc32c(bytes(changed[_CRC_FROM:])))
    return bytes(changed)


def produce_answers(talk: Talk) -> None:
    here, odd = talk.topic("here", 2), talk.topic("odd")
    talk.group("of which there are internal topics")
    talk.transactions()
    for version in range(3, 13):
        talk.ask("fine", produce(here, batch("a", "b", at=T)), version)
    good = batch("a", "b", at=T)

    def ask(label: str, records: bytes | None, versions: tuple[int, ...] = (7, 8, 12), **options: Any) -> None:
        talk.each(label, produce(options.pop("topic", here), records, **options), versions)

    ask("unknown topic", good, topic=talk.name("missing"))
    ask("bad topic name", good, topic="a b")
    ask("unknown partition", good, partition=9)
    ask("negative partition", good, partition=-1)
    ask("unknown id", good, (13,), topic=NOWHERE)
    ask("no id", good, (13,), topic=NO_TOPIC_ID)
    ask("by id", good, (13,), topic=talk.topic_id(here))
    ask("by id, unknown partition", good, (13,), topic=talk.topic_id(here), partition=9)
    for acks in (5, -2, 2):
        ask(f"acks {acks}", good, acks=acks)
    ask("acks 1", good, acks=1)
    for internal in ("__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state"):
        ask(f"internal {internal}", good, topic=internal)
    ask("null", None, (3, 7, 8, 9, 12))
    ask("empty", b"", (3, 7, 8, 9, 12))
    for size in (1, 11, 12, 16, 17, 60, 61, 62, len(good) - 1):
        ask(f"cut to {size}", good[:size])
    ask("trailing bytes", good + b"xxx", topic=odd)
    ask("two batches", good + good)
    ask("bad crc", patched(good, _CRC_AT, ">I", 7, crc=False))
    for magic in (0, 1, 3, 99, -1):
        ask(f"magic {magic}", patched(good, 16, ">b", magic))
    for offset in (1, -1, 5):
        ask(f"base offset {offset}", patched(good, 0, ">q", offset, crc=False))
    for length in (0, -1, 48, 49, 1 << 30):
        ask(f"length {length}", patched(good, 8, ">i", length, crc=False))
    for count in (0, 1, 3, -1, 1 << 30):
        ask(f"count {count}", patched(good, 57, ">i", count))
    for delta in (0, 5, -1):
        ask(f"last offset delta {delta}", patched(good, 23, ">i", delta))
    ask("control batch", patched(good, 21, ">h", 0x20))
    ask("transactional without producer", patched(good, 21, ">h", 0x10))
    ask("unknown codec", patched(good, 21, ">h", 7))
    ask("append-time flag", patched(good, 21, ">h", 8), topic=odd)
    ask("unused bits", patched(good, 21, ">h", 0x4000))
    ask("delete horizon", patched(good, 21, ">h", 0x40))
    for codec in CompressionType:
        ask(f"codec {codec.name}", batch("a" * 200, at=T, codec=codec))
        if codec is not CompressionType.NONE:
            whole = batch("a" * 200, at=T, codec=codec)
            cut = patched(whole[:-5], 8, ">i", len(whole) - 5 - 12)
            ask(f"codec {codec.name}, cut", cut)
            ask(f"codec {codec.name}, garbage", patched(whole, len(whole) - 9, ">q", -2))
            ask(f"codec {codec.name}, count", patched(whole, 57, ">i", 2))
    ask("zstd before v7", batch("a", at=T, codec=CompressionType.ZSTD), (3, 6))
    ask("max timestamp wrong", patched(good, 35, ">q", T + 1000))
    ask("base timestamp wrong", patched(good, 27, ">q", T - 1000))
    ask("no timestamp", batch("a", at=-1))
    ask("negative timestamp", batch("a", at=-5))
    ask("null key and value", batch("a", key=None, at=T))
    record_at = 61
    ask("a record's length too large", patched(good, record_at, ">b", 60))
    ask("a record's attributes", patched(good, record_at + 1, ">b", 1))
    ask("a record's offset", patched(good, record_at + 3, ">b", 4), topic=odd)
    ask("a record's key length", patched(good, record_at + 4, ">b", 60))
    ask("leader epoch", patched(good, 12, ">i", 99, crc=False))
    both = ProduceRequest(
        acks=-1,
        timeout_ms=9000,
        topic_data=[
            TopicProduceData(
                name=here,
                partition_data=[
                    PartitionProduceData(index=0, records=good),
                    PartitionProduceData(index=1, records=patched(good, _CRC_AT, ">I", 7, crc=False)),
                    PartitionProduceData(index=7, records=good),
                ],
            )
        ],
    )
    talk.each("one good, one bad, one unknown", both, (7, 8, 12))
    twice = ProduceRequest(
        acks=-1,
        timeout_ms=9000,
        topic_data=[TopicProduceData(name=odd, partition_data=[PartitionProduceData(index=0, records=good)] * 2)],
    )
    talk.each("a partition twice", twice, (8,))
    apart = ProduceRequest(acks=-1, timeout_ms=9000, topic_data=twice.topic_data[:1] * 2)
    talk.each("a topic twice", apart, (8,))
    list_ends(talk, odd, "the odd ones")
    talk.each("nothing", ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[]), (3, 8, 12))
    talk.each("transactional id", produce(here, good, transactional_id="nobody"), (8, 11))
    list_ends(talk, here, "afterwards", 2)


def produce_rules(talk: Talk) -> None:
    small = talk.topic("small", max_message_bytes="200")
    talk.each("as large as may be", produce(small, batch("v" * 130, at=T, key=None)), (8,))
    for length in (131, 132, 133, 200, 5000):
        talk.each(f"value of {length}", produce(small, batch("v" * length, at=T, key=None)), (8,))
    squeezed = talk.topic("squeezed", max_message_bytes="200", compression_type="gzip")
    talk.ask("large, small once compressed", produce(squeezed, batch("v" * 5000, at=T)), 8)
    compact = talk.topic("compact", cleanup_policy="compact")
    talk.each("no key", produce(compact, batch("a", key=None, at=T)), (7, 8, 12))
    talk.each("no key, compressed", produce(compact, batch("a", "b", key=None, at=T, codec=CompressionType.LZ4)), (8,))
    talk.each("key", produce(compact, batch("a", at=T)), (8,))
    both = talk.topic("both", cleanup_policy="compact,delete")
    talk.each("no key, both policies", produce(both, batch("a", key=None, at=T)), (8,))
    late = talk.topic("late", message_timestamp_before_max_ms="1000")
    talk.each("too old", produce(late, batch("a", "b", at=T)), (7, 8))
    talk.each("just now", produce(late, batch("a")), (8,))
    talk.each("no timestamp", produce(late, batch("a", at=-1)), (8,))
    early = talk.topic("early")
    far = 4_000_000_000_000
    talk.each("far in the future", produce(early, batch("a", at=far)), (7, 8))
    talk.each("far, the second", produce(early, batch("a", "b", at=far - 1)), (8,))
    appended = talk.topic("appended", message_timestamp_type="LogAppendTime")
    response = talk.quietly(produce(appended, batch("a", at=far)), 8)
    answer = response.responses[0].partition_responses[0]
    talk.note("append time", (answer.error_code, answer.log_append_time_ms > T, answer.base_offset))
    for codec in ("gzip", "uncompressed", "zstd", "producer", "lz4", "snappy"):
        name = talk.topic(f"to-{codec}", compression_type=codec)
        for given in (CompressionType.NONE, CompressionType.GZIP, CompressionType.ZSTD):
            talk.ask(f"{given.name} to {codec}", produce(name, batch("a" * 300, at=T, codec=given)), 8)
        fetched = talk.quietly(fetch(name, 0, max_bytes=1 << 20), 11).responses[0].partitions[0]
        data = bytes(fetched.records or b"")
        codecs, at = [], 0
        while at < len(data):
            codecs.append(data[at + 22] & 7)
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        talk.note(f"stored for {codec}", codecs)
    tiny = talk.topic("tiny", internal_segment_bytes="300", max_message_bytes="100000")
    talk.ask("larger than a segment", produce(tiny, batch("v" * 1000, at=T)), 8)
    isr = talk.topic("isr", min_insync_replicas="3")
    talk.ask("min.insync.replicas over the replicas", produce(isr, batch("v", at=T)), 8)
    quiet = talk.topic("quiet")
    client = talk.connect()
    client.send(produce(quiet, batch("a", at=T), acks=0), 8, expect_response=False)
    list_ends(talk, quiet, "after acks 0")
    client = talk.connect()
    client.send(produce(talk.name("missing"), batch("a", at=T), acks=0), 8, expect_response=False)
    talk.note("acks 0 to an unknown topic hangs up", client.closed_by_peer())
    client = talk.connect()
    bad = patched(batch("a", at=T), _CRC_AT, ">I", 7, crc=False)
    client.send(produce(quiet, bad, acks=0), 8, expect_response=False)
    talk.note("acks 0 with a bad batch hangs up", client.closed_by_peer())
    talk.hang_up()


def idempotence(talk: Talk) -> None:
    here = talk.topic("here", 3)
    talk.until(lambda: talk.quietly(InitProducerIdRequest(transactional_id=None), 4).error_code == 0, "a producer id")
    for label, request in {
        "null": InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        "negative timeout": InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1),
        "zero timeout": InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
        "huge timeout": InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF),
        "with an id": InitProducerIdRequest(transaction_timeout_ms=1, producer_id=5, producer_epoch=0),
        "id without epoch": InitProducerIdRequest(transaction_timeout_ms=1, producer_id=5, producer_epoch=-1),
        "epoch without id": InitProducerIdRequest(transaction_timeout_ms=1, producer_id=-1, producer_epoch=5),
    }.items():
        request.transactional_id = None
        for version in (0, 2, 3, 4, 5) if request.producer_id < 0 and request.producer_epoch < 0 else (3, 5):
            response = talk.quietly(request, version)
            talk.call_it(response.producer_id, "pid")
            talk.note(f"{label} v{version}", talk.plain(response))
    talk.each("empty transactional id", InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), (0, 5))
    pid = talk.quietly(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4).producer_id
    other = talk.quietly(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4).producer_id
    talk.call_it(pid, "pid")

    def send(label: str, sequence: int, epoch: int = 0, count: int = 1, partition: int = 0, who: int = pid) -> None:
        values = [f"v{i}" for i in range(count)]
        records = batch(*values, at=T, producer_id=who, producer_epoch=epoch, base_sequence=sequence)
        response = talk.quietly(produce(here, records, partition=partition), 8)
        answer = talk.plain(response.responses[0].partition_responses[0])
        talk.note(label, answer)

    send("first batch not from 0", 5, partition=1)
    send("next of it", 6, partition=1)
    send("a gap", 9, partition=1)
    send("0", 0)
    send("0 again", 0)
    send("1-3", 1, count=3)
    send("gap", 9)
    send("1-3 again", 1, count=3)
    send("1-2, part of it", 1, count=2)
    send("2-3, part of it", 2, count=2)
    send("3-4, overlapping", 3, count=2)
    for sequence in range(4, 10):
        send(f"{sequence}", sequence)
    send("0, beyond the window", 0)
    send("5, in the window", 5)
    send("4, out of the window", 4)
    send("new epoch from 3", 3, epoch=1)
    send("new epoch from 0", 0, epoch=1)
    send("old epoch", 10, epoch=0)
    send("old epoch's duplicate", 9, epoch=0)
    send("epoch jump", 0, epoch=7)
    send("negative sequence", -1, epoch=7)
    send("negative epoch", 1, epoch=-1)
    send("wrapping", 0x7FFFFFFF, partition=2, who=other)
    send("wrapped", 0, partition=2, who=other)
    send("over the wrap", 0x7FFFFFFE, partition=2, who=other, count=3, epoch=1)
    send("an id nobody gave", 0, who=987654321, partition=2)
    good = batch("a", at=T, producer_id=pid, producer_epoch=7, base_sequence=1)
    more = batch("b", at=T, producer_id=pid, producer_epoch=7, base_sequence=2)
    talk.ask("two idempotent batches", produce(here, good + more), 8)
    talk.ask("id without sequence", produce(here, batch("a", at=T, producer_id=pid, producer_epoch=7)), 8)
    mixed = produce(here, batch("a", at=T, producer_id=pid, producer_epoch=0, base_sequence=0, transactional=True))
    mixed.transactional_id = "tx"
    records = batch("a", at=T, producer_id=other, producer_epoch=0, base_sequence=0, transactional=True)
    mixed.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=records))
    talk.each("transactional batches of two producers", mixed, (8, 11, 12))
    for label, names, partitions in (
        ("here", here, [0, 1, 2]),
        ("unknown partition", here, [9]),
        ("unknown topic", talk.name("missing"), [0]),
    ):
        asked = DescribeProducersRequest(topics=[ProducersOf(name=names, partition_indexes=partitions)])
        response = talk.quietly(asked, 0)
        for partition in response.topics[0].partitions:
            for producer in partition.active_producers:
                producer.last_timestamp = min(producer.last_timestamp, 1)
                producer.producer_id = {pid: "first", other: "second"}.get(producer.producer_id, "third")
        talk.note(f"producers: {label}", talk.plain(response))
    list_ends(talk, here, "in the end", 3)


SCENARIOS = (produce_answers, produce_rules, idempotence)
