"""Table: attacks by requests with very many entries."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.system.broker.wire_client import WireClient

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.wire.schema import Request
from bench.attacks.registry import Steps, attack

TOPIC = "attacked"
_ANSWER_S = 600.0
_PATTERN = "(.{0,30}){0,30}b"


def create(client: WireClient, names: list[str], partitions: int = 1) -> str:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    response = client.call(CreateTopicsRequest(topics=topics, timeout_ms=120_000), 7)
    return f"{len(response.topics)} topics, errors {sorted({topic.error_code for topic in response.topics})}"


def commit(count: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=index, committed_metadata="")
        for index in range(count)
    ]
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])


def with_group(address: str) -> WireClient:
    """A client of a broker that has the topic and serves the group `g`."""
    client = WireClient(address, timeout_s=_ANSWER_S)
    create(client, [TOPIC])
    for _ in range(600):
        client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        if client.call(commit(1), 8).topics[0].partitions[0].error_code == ErrorCode.NONE:
            return client
        time.sleep(0.1)
    raise RuntimeError("the broker does not become the coordinator of the group")


def answer(client: WireClient, request: Request, version: int) -> str:
    began = time.monotonic()
    try:
        client.call(request, version)
    except ConnectionError:
        return "connection closed"
    return f"answered after {time.monotonic() - began:.1f} s"


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
    client = WireClient(address, timeout_s=_ANSWER_S)
    yield
    return create(client, [f"t{index}" for index in range(500)])


@attack("create-wide", "CreateTopics of one topic with 5,000 partitions")
def create_wide(address: str) -> Steps:
    client = WireClient(address, timeout_s=_ANSWER_S)
    yield
    return create(client, [TOPIC], 5_000)


@attack("delete-2000", "DeleteTopics of 2,000 topics")
def delete_topics(address: str) -> Steps:
    client = WireClient(address, timeout_s=_ANSWER_S)
    names = [f"t{index}" for index in range(2_000)]
    create(client, names)
    yield
    return answer(client, DeleteTopicsRequest(topic_names=names, timeout_ms=120_000), 5)


@attack("metadata-5000", "Metadata of 5,000 topics, 20 times")
def metadata(address: str) -> Steps:
    client = WireClient(address, timeout_s=_ANSWER_S)
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


ENTRIES = 90_000
_INDEXES = range(ENTRIES)
LARGEST: dict[str, tuple[int, Callable[[], Request]]] = {
    "list-offsets": (7, lambda: ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(
        name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1) for _ in _INDEXES])])),
    "fetch": (11, lambda: FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=TOPIC, partitions=[
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(45_000)])])),
    "leader-epochs": (3, lambda: OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(
        topic=TOPIC, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0) for _ in _INDEXES])])),
    "offset-fetch": (8, lambda: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(_INDEXES))])])),
    "metadata-names": (8, lambda: MetadataRequest(
        topics=[MetadataRequestTopic(name=f"x{index}") for index in _INDEXES], allow_auto_topic_creation=False)),
    "describe-groups": (5, lambda: DescribeGroupsRequest(groups=[f"x{index}" for index in _INDEXES])),
    "delete-groups": (2, lambda: DeleteGroupsRequest(groups_names=[f"x{index}" for index in _INDEXES])),
    "find-coordinators": (4, lambda: FindCoordinatorRequest(
        key_type=0, coordinator_keys=[f"x{index}" for index in _INDEXES])),
    "delete-records": (2, lambda: DeleteRecordsRequest(timeout_ms=1_000, topics=[DeleteRecordsTopic(
        name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=0) for _ in _INDEXES])])),
    "describe-configs": (4, lambda: DescribeConfigsRequest(resources=[
        DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None)
        for _ in range(45_000)])),
}  # fmt: skip
"""The largest request of an API that is decoded, and its version."""


def _largest(version: int, build: Callable[[], Request]) -> Callable[[str], Steps]:
    def run(address: str) -> Steps:
        client, request = with_group(address), build()
        yield
        return answer(client, request, version)

    return run


for _name, (_version, _build) in LARGEST.items():
    attack(f"largest-{_name}", f"the largest {_name} request")(_largest(_version, _build))
