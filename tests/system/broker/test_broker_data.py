"""Produce, Fetch, ListOffsets and the other data APIs over a socket, with a client that shows every field."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from barnabas.protocol.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.system.broker.wire_client import WireClient


def create(client: WireClient, topic: str, partitions: int = 1, **configs: str) -> UUID:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
                ],
            )
        ]
    )
    result = client.call(request, 7).topics[0]
    assert result.error_code == 0, result
    return UUID(bytes=result.topic_id.bytes)


def batch(*values: bytes, timestamp: int | None = None, **options: object) -> bytes:
    now = int(time.time() * 1000) if timestamp is None else timestamp
    return build_batch([SimpleRecord(None, value, now) for value in values], **options)  # type: ignore[arg-type]


def produce_request(topic: str, records: bytes, acks: int = -1, topic_id: UUID | None = None) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    if topic_id is not None:
        data.topic_id = topic_id
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[data])


def produce(
    client: WireClient, topic: str, records: bytes, acks: int = -1, version: int = 9
) -> PartitionProduceResponse:
    answer: PartitionProduceResponse = (
        client.call(produce_request(topic, records, acks), version).responses[0].partition_responses[0]
    )
    return answer


def fetch(client: WireClient, topic: str, offset: int = 0, **options: int) -> FetchResponse:
    version = options.pop("version", 12)
    request = FetchRequest(
        max_wait_ms=options.pop("max_wait_ms", 0),
        min_bytes=options.pop("min_bytes", 1),
        max_bytes=options.pop("max_bytes", 1 << 20),
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=0,
                        fetch_offset=offset,
                        partition_max_bytes=options.pop("partition_max_bytes", 1 << 20),
                        current_leader_epoch=options.pop("current_leader_epoch", -1),
                    )
                ],
            )
        ],
        **options,  # type: ignore[arg-type]
    )
    response: FetchResponse = client.call(request, version)
    return response


def values(response: FetchResponse) -> list[bytes | None]:
    records = response.responses[0].partitions[0].records
    assert records is not None
    assert not isinstance(records, (list, tuple))
    return [
        record.value for position, header in iter_batches(records) for record in iter_records(records, position, header)
    ]


def list_offset(client: WireClient, topic: str, timestamp: int, version: int = 11) -> tuple[int, int, int]:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
        ],
    )
    found = client.call(request, version).topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp


@pytest.mark.parametrize("version", range(3, 13))
def test_produce_in_every_version_by_name(client: WireClient, topic: str, version: int) -> None:
    create(client, topic)
    first = produce(client, topic, batch(b"a", b"b"), version=version)
    second = produce(client, topic, batch(b"c"), acks=1, version=version)
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert values(fetch(client, topic)) == [b"a", b"b", b"c"]


def test_produce_and_fetch_by_topic_id(client: WireClient, topic: str) -> None:
    topic_id = create(client, topic)
    answer = client.call(produce_request("", batch(b"x"), topic_id=topic_id), 13)
    assert answer.responses[0].topic_id == topic_id
    assert answer.responses[0].partition_responses[0].error_code == 0
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic_id=topic_id, partitions=[partition])])
    for version in range(13, 19):
        response = client.call(request, version)
        assert response.responses[0].topic_id == topic_id
        assert values(response) == [b"x"]
    unknown = UUID(int=12345)
    request.topics[0].topic_id = unknown
    assert client.call(request, 16).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    refused = client.call(produce_request("", batch(b"x"), topic_id=unknown), 13)
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", range(4, 13))
def test_fetch_in_every_version_by_name(client: WireClient, topic: str, version: int) -> None:
    create(client, topic)
    produce(client, topic, batch(b"one"))
    assert values(fetch(client, topic, version=version)) == [b"one"]


@pytest.mark.parametrize("codec", list(CompressionType))
def test_batch_of_every_codec_is_returned_unchanged(client: WireClient, topic: str, codec: CompressionType) -> None:
    create(client, topic)
    sent = [b"value %d " % i * 20 for i in range(50)]
    assert produce(client, topic, batch(*sent, codec=codec)).error_code == 0
    response = fetch(client, topic)
    assert values(response) == sent
    records = response.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert next(iter_batches(records))[1].codec is codec


def test_acks_0_gets_no_response_and_its_errors_close_the_connection(client: WireClient, topic: str) -> None:
    create(client, topic)
    client.send(produce_request(topic, batch(b"quiet"), acks=0), 9, expect_response=False)
    assert values(fetch(client, topic)) == [b"quiet"]
    client.send(produce_request("no-such-topic", batch(b"lost"), acks=0), 9, expect_response=False)
    assert client.closed_by_peer()


def test_produce_rejects_invalid_requests(client: WireClient, topic: str) -> None:
    create(client, topic, max_message_bytes="1000")
    assert client.call(FindCoordinatorRequest(key="any"), 3).error_code == 0  # creates the internal topic
    cases = [
        (produce_request("missing", batch(b"x")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_request(topic, batch(b"x"), acks=7), ErrorCode.INVALID_REQUIRED_ACKS),
        (produce_request(topic, batch(b"x" * 2000)), ErrorCode.MESSAGE_TOO_LARGE),
        (produce_request(topic, batch(b"x", timestamp=int(time.time() * 1000) + 10**10)), ErrorCode.INVALID_TIMESTAMP),
        (produce_request(topic, batch(b"x")[:-1] + b"?"), ErrorCode.CORRUPT_MESSAGE),
        (produce_request(topic, batch(b"x", control=True)), ErrorCode.INVALID_RECORD),
        (produce_request("__consumer_offsets", batch(b"x")), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    for request, expected in cases:
        answer = client.call(request, 9).responses[0].partition_responses[0]
        assert (ErrorCode(answer.error_code), answer.base_offset) == (expected, -1)
    assert list_offset(client, topic, -1)[:2] == (0, 0)


def test_produce_response_contains_the_log_append_time(client: WireClient, topic: str) -> None:
    create(client, topic, message_timestamp_type="LogAppendTime")
    answer = produce(client, topic, batch(b"x", timestamp=1))
    assert abs(answer.log_append_time_ms - time.time() * 1000) < 60_000
    assert list_offset(client, topic, -3) == (0, 0, answer.log_append_time_ms)


def test_idempotent_producer_duplicates_gaps_and_old_epochs(client: WireClient, topic: str) -> None:
    create(client, topic)
    started = client.call(InitProducerIdRequest(transactional_id=None), 4)
    assert (started.error_code, started.producer_epoch) == (0, 0)
    pid = started.producer_id

    def send(sequence: int, *payload: bytes, epoch: int = 0) -> tuple[ErrorCode, int]:
        records = batch(*payload, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
        answer = produce(client, topic, records)
        return ErrorCode(answer.error_code), answer.base_offset

    assert send(0, b"a", b"b") == (ErrorCode.NONE, 0)
    assert send(2, b"c") == (ErrorCode.NONE, 2)
    assert send(0, b"a", b"b") == (ErrorCode.NONE, 0), "a duplicate is acknowledged with its first offset"
    assert send(2, b"c") == (ErrorCode.NONE, 2)
    assert send(9, b"z")[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, b"n", epoch=1) == (ErrorCode.NONE, 3)
    assert send(3, b"old")[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert values(fetch(client, topic)) == [b"a", b"b", b"c", b"n"]


def test_producer_ids_are_unique(connect: Callable[[], WireClient]) -> None:
    clients = [connect() for _ in range(3)]
    ids = [c.call(InitProducerIdRequest(transactional_id=None), 5).producer_id for _ in range(400) for c in clients]
    assert len(set(ids)) == 1200


def test_transactional_batch_without_transactional_id_is_rejected(client: WireClient, topic: str) -> None:
    create(client, topic)
    records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    answer = produce(client, topic, records)
    assert ErrorCode(answer.error_code) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_fetch_waits_until_records_are_appended(
    client: WireClient, topic: str, connect: Callable[[], WireClient]
) -> None:
    create(client, topic)
    other = connect()
    started = time.monotonic()
    waiting = client.send(
        FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
                )
            ],
        ),
        12,
    )
    producing = threading.Timer(0.05, lambda: produce(other, topic, batch(b"wake up")))
    producing.start()
    assert values(client.receive(waiting)) == [b"wake up"]
    producing.join()  # its response may come later; the connection is closed after the test
    assert time.monotonic() - started < 55, "it was not woken: it waited to its end"


def test_fetch_is_answered_at_its_deadline(client: WireClient, topic: str) -> None:
    create(client, topic)
    produce(client, topic, batch(b"small"))
    started = time.monotonic()
    response = fetch(client, topic, max_wait_ms=200, min_bytes=10_000)
    assert time.monotonic() - started > 0.15
    assert values(response) == [b"small"]


def test_fetch_min_bytes_counts_bytes_that_are_appended_while_it_waits(
    client: WireClient, topic: str, connect: Callable[[], WireClient]
) -> None:
    create(client, topic)
    other = connect()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=20_000, min_bytes=3000, topics=[FetchTopic(topic=topic, partitions=[partition])])
    waiting = client.send(request, 12)
    for _ in range(3):
        produce(other, topic, batch(b"x" * 1200))
    assert len(values(client.receive(waiting))) == 3


def test_fetch_obeys_its_byte_limits(client: WireClient, topic: str) -> None:
    create(client, topic)
    for _ in range(4):
        produce(client, topic, batch(b"x" * 1000))
    assert len(values(fetch(client, topic, partition_max_bytes=1))) == 1, "the first batch comes whole (KIP-74)"
    assert len(values(fetch(client, topic, max_bytes=1))) == 1
    assert len(values(fetch(client, topic, partition_max_bytes=2500))) == 2
    assert len(values(fetch(client, topic, offset=2))) == 2


def test_fetch_rejects_invalid_requests(client: WireClient, topic: str) -> None:
    create(client, topic)
    produce(client, topic, batch(b"x"))

    def code(response: FetchResponse) -> ErrorCode:
        return ErrorCode(response.responses[0].partitions[0].error_code)

    assert code(fetch(client, "missing")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(fetch(client, topic, offset=99)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert code(fetch(client, topic, current_leader_epoch=99)) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert code(fetch(client, topic, offset=1)) is ErrorCode.NONE
    assert code(fetch(client, topic, replica_id=7)) is ErrorCode.NOT_LEADER_OR_FOLLOWER  # broker is not a replica


def test_incremental_fetch_session_returns_changed_partitions(client: WireClient, topic: str) -> None:
    create(client, topic, partitions=3)
    produce(client, topic, batch(b"first"))

    def ask(session_id: int, epoch: int, offsets: dict[int, int], forget: tuple[int, ...] = ()) -> FetchResponse:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=1 << 20)
                        for p, offset in offsets.items()
                    ],
                )
            ]
            if offsets
            else [],
            forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=list(forget))] if forget else [],
        )
        response: FetchResponse = client.call(request, 12)
        return response

    full = ask(0, 0, {0: 0, 1: 0, 2: 0})
    assert full.session_id > 0
    assert [p.partition_index for p in full.responses[0].partitions] == [0, 1, 2]
    nothing_new = ask(full.session_id, 1, {0: 1})
    assert nothing_new.responses == []
    produce(client, topic, batch(b"second"))
    changed = ask(full.session_id, 2, {}, forget=(2,))
    assert [p.partition_index for p in changed.responses[0].partitions] == [0]
    assert values(changed) == [b"second"]
    assert ask(full.session_id, 2, {}).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert ask(full.session_id + 1, 3, {}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert ask(full.session_id, -1, {0: 0}).session_id == 0
    assert ask(full.session_id, 3, {}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_list_offsets_specials_and_timestamps(client: WireClient, topic: str) -> None:
    create(client, topic)
    base = int(time.time() * 1000) - 10_000
    for i in (0, 1000, 5000, 3000):
        produce(client, topic, batch(b"x", timestamp=base + i))
    assert list_offset(client, topic, -1) == (0, 4, -1)
    assert list_offset(client, topic, -2) == (0, 0, -1)
    assert list_offset(client, topic, -3) == (0, 2, base + 5000)
    assert list_offset(client, topic, -4) == (0, 0, -1)
    assert list_offset(client, topic, -5) == (0, -1, -1)
    assert list_offset(client, topic, -6) == (0, -1, -1)
    assert list_offset(client, topic, base + 500) == (0, 1, base + 1000)
    assert list_offset(client, topic, base + 60_000) == (0, -1, -1)
    assert list_offset(client, topic, -3, version=6)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(client, topic, -99)[0] == ErrorCode.UNSUPPORTED_VERSION
    for version in range(1, 12):
        assert list_offset(client, topic, -1, version=version)[1] == 4
    assert list_offset(client, "missing", -1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_delete_records_moves_the_log_start_offset(client: WireClient, topic: str) -> None:
    create(client, topic)
    for _ in range(5):
        produce(client, topic, batch(b"x"))

    def delete(offset: int) -> tuple[ErrorCode, int]:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=1000)
        result = client.call(request, 2).topics[0].partitions[0]
        return ErrorCode(result.error_code), result.low_watermark

    assert delete(3) == (ErrorCode.NONE, 3)
    assert list_offset(client, topic, -2)[1] == 3
    assert fetch(client, topic, offset=0).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(99)[0] is ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(-1) == (ErrorCode.NONE, 5)


def test_offset_for_leader_epoch_returns_the_end_of_the_epoch(client: WireClient, topic: str) -> None:
    create(client, topic)
    produce(client, topic, batch(b"x", b"y"))

    def ask(epoch: int, current: int = -1) -> tuple[ErrorCode, int, int]:
        wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
        end = client.call(request, 4).topics[0].partitions[0]
        return ErrorCode(end.error_code), end.leader_epoch, end.end_offset

    assert ask(0) == (ErrorCode.NONE, 0, 2)
    assert ask(0, current=7)[0] is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(99) == (ErrorCode.NONE, -1, -1)


def test_metadata_creates_topics_when_allowed(client: WireClient, topic: str) -> None:
    for version in range(4, 14):
        name = f"{topic}-v{version}"
        refused = client.call(
            MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False), version
        )
        assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        made = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), version)
        assert (made.topics[0].error_code, made.topics[0].partitions[0].leader_id) == (0, made.brokers[0].node_id)
    bad = client.call(MetadataRequest(topics=[MetadataRequestTopic(name="no/such name")]), 12)
    assert bad.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    everything = client.call(MetadataRequest(topics=None), 12)
    assert f"{topic}-v4" in {t.name for t in everything.topics}
    assert client.call(MetadataRequest(topics=[]), 12).topics == []
    by_id = everything.topics[0]
    found = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=by_id.topic_id)]), 12)
    assert (found.topics[0].name, found.topics[0].error_code) == (by_id.name, 0)


def test_a_request_that_is_checked_off_the_loop_keeps_its_place(client: WireClient, topic: str) -> None:
    """Requests behind it on the connection, some of which the loop could check at once, are appended behind it."""
    create(client, topic, max_message_bytes=str(1 << 24))
    sizes = [1, 60_000, 1, 12_000, 1, 1]
    sequence = 0
    sent = []
    producer = client.call(InitProducerIdRequest(), 4)
    for size in sizes:
        data = batch(
            *[b""] * size,
            codec=CompressionType.ZSTD if size > 1 else CompressionType.NONE,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
        )
        sequence += size
        sent.append(client.frame(produce_request(topic, data), 9))
    client.raw(b"".join(frame for _, frame in sent))
    answers = [client.receive(number).responses[0].partition_responses[0] for number, _ in sent]
    assert [answer.error_code for answer in answers] == [0] * len(sizes)
    assert [answer.base_offset for answer in answers] == [sum(sizes[:place]) for place in range(len(sizes))]
    assert client.order[-len(sizes) :] == [number for number, _ in sent]


def test_errors_of_batches_that_are_checked_off_the_loop(client: WireClient, topic: str) -> None:
    """Each partition has its own answer, as with small batches."""
    create(client, topic, partitions=2, cleanup_policy="compact", max_message_bytes=str(1 << 24))
    now = int(time.time() * 1000)
    keyed = build_batch([SimpleRecord(b"k", b"v", now)] * 20_000, codec=CompressionType.LZ4)
    keyless = build_batch([SimpleRecord(None, b"v", now)] * 20_000, codec=CompressionType.LZ4)
    data = [PartitionProduceData(index=index, records=records) for index, records in enumerate((keyless, keyed, keyed))]
    request = ProduceRequest(acks=1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    answers = client.call(request, 9).responses[0].partition_responses
    assert [ErrorCode(answer.error_code) for answer in answers] == [
        ErrorCode.INVALID_RECORD,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert len(answers[0].record_errors) == 1000
    assert "20000 records" in (answers[0].error_message or "")


def test_a_timestamp_in_a_batch_of_many_records(client: WireClient, topic: str) -> None:
    """Such a batch is searched off the event loop."""
    create(client, topic, max_message_bytes=str(1 << 24))
    now = int(time.time() * 1000)
    records = [SimpleRecord(None, b"", now - 60_000 + index) for index in range(60_000)]
    data = build_batch(records, codec=CompressionType.ZSTD)
    for _ in range(2):
        assert produce(client, topic, data).error_code == 0
    assert list_offset(client, topic, now - 5) == (0, 59_995, now - 5)
    assert list_offset(client, topic, -3) == (0, 59_999, now - 1)
    assert list_offset(client, topic, now) == (0, -1, -1)
