"""Table: attacks by requests with very many entries, besides the largest request of each API (`largest.py`)."""

from __future__ import annotations

from tests.system.broker.wire_client import WireClient

from barnabas.protocol.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from bench.attacks.largest import ANSWER_S, TOPIC, answer, commit, create, with_group
from bench.attacks.registry import Steps, attack

_PATTERN = "(.{0,30}){0,30}b"


@attack("commit-million", "OffsetCommit of a million entries, 18 MB")
def commit_million(address: str) -> Steps:
    client, request = with_group(address), commit(1_000_000)
    yield
    return answer(client, request, 8)


@attack("commit-90000", "OffsetCommit of 90,000 entries")
def commit_many(address: str) -> Steps:
    client, request = with_group(address), commit(90_000)
    yield
    return answer(client, request, 8)


@attack("commit-10000", "OffsetCommit of 10,000 entries, which is accepted")
def commit_accepted(address: str) -> Steps:
    client, request = with_group(address), commit(10_000)
    yield
    return answer(client, request, 8)


@attack("create-500", "CreateTopics of 500 topics")
def create_topics(address: str) -> Steps:
    client = WireClient(address, timeout_s=ANSWER_S)
    yield
    return create(client, [f"t{index}" for index in range(500)])


@attack("create-wide", "CreateTopics of one topic with 5,000 partitions")
def create_wide(address: str) -> Steps:
    client = WireClient(address, timeout_s=ANSWER_S)
    yield
    return create(client, [TOPIC], 5_000)


@attack("delete-2000", "DeleteTopics of 2,000 topics")
def delete_topics(address: str) -> Steps:
    client = WireClient(address, timeout_s=ANSWER_S)
    names = [f"t{index}" for index in range(2_000)]
    create(client, names)
    yield
    return answer(client, DeleteTopicsRequest(topic_names=names, timeout_ms=120_000), 5)


@attack("metadata-5000", "Metadata of 5,000 topics, 20 times")
def metadata(address: str) -> Steps:
    client = WireClient(address, timeout_s=ANSWER_S)
    create(client, [f"t{index}" for index in range(5_000)])
    yield
    answers = [answer(client, MetadataRequest(topics=None), 12) for _ in range(20)]
    return answers[-1]


@attack("regex", "ConsumerGroupHeartbeat with a nested repetition, 1,000 topics with long names")
def regex(address: str) -> Steps:
    client = with_group(address)
    create(client, [f"{'a' * 240}{index:04}" for index in range(1_000)])
    request = ConsumerGroupHeartbeatRequest(
        group_id="r", member_id="m" * 22, rebalance_timeout_ms=60_000, topic_partitions=[],
        subscribed_topic_regex=_PATTERN,
    )  # fmt: skip
    yield
    return answer(client, request, 1)
