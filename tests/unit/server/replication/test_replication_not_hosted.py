"""What a broker answers for a partition of which it has no replica (Kafka: `ReplicaManager.getPartitionOrError`).

NOT_LEADER_OR_FOLLOWER makes a client refresh its metadata and find the leader. UNKNOWN_TOPIC_OR_PARTITION would mean
that the topic does not exist.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.wire.schema import Request
from barnabas.server.metadata.records.topics import PartitionChangeRecord, RemoveTopicRecord
from tests.unit.server.replication.brokers import Broker, Cluster, in_virtual_time

ELSEWHERE, UNKNOWN = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def batch() -> bytes:
    return build_batch([SimpleRecord(None, b"v", 0)])


def produce(topic: str, index: int) -> Request:
    data = PartitionProduceData(index=index, records=batch())
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetch(topic: str, index: int) -> Request:
    wanted = FetchPartition(partition=index, partition_max_bytes=1 << 20)
    return FetchRequest(min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])])


def list_offsets(topic: str, index: int) -> Request:
    wanted = ListOffsetsPartition(partition_index=index, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])


def delete_records(topic: str, index: int) -> Request:
    wanted = DeleteRecordsPartition(partition_index=index, offset=-1)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=1_000)


def offset_for_leader_epoch(topic: str, index: int) -> Request:
    wanted = OffsetForLeaderPartition(partition=index, leader_epoch=0)
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])


def describe_producers(topic: str, index: int) -> Request:
    return DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])


def write_txn_markers(topic: str, index: int) -> Request:
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=0, topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])]
    )
    return WriteTxnMarkersRequest(markers=[marker])


REQUESTS = {
    "Produce": (produce, 9),
    "Fetch": (fetch, 12),
    "ListOffsets": (list_offsets, 7),
    "DeleteRecords": (delete_records, 2),
    "OffsetForLeaderEpoch": (offset_for_leader_epoch, 4),
    "DescribeProducers": (describe_producers, 0),
    "WriteTxnMarkers": (write_txn_markers, 1),
}


def code_in(response: Any) -> ErrorCode:
    """The only partition's error code, in a response of any of these APIs."""
    if hasattr(response, "markers"):
        return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)
    topic = (response.responses if hasattr(response, "responses") else response.topics)[0]
    partitions = topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
    return ErrorCode(partitions[0].error_code)


async def answer(cluster: Cluster, broker: Broker, name: str, topic: str, index: int = 0) -> ErrorCode:
    request, version = REQUESTS[name]
    task = broker.process.spawn(cluster.loop, broker.serve(request(topic, index), version))
    return code_in(await task)


@pytest.mark.parametrize("name", REQUESTS)
def test_partition_of_other_brokers_is_not_unknown(name: str) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create("elsewhere", [[2]])
        cluster.create("t", [[1]])
        await cluster.until(lambda: all(len(cluster.brokers[n].partitions) for n in (1, 2)))
        broker = cluster.brokers[1]
        # Kafka's handler of WriteTxnMarkers, which only brokers send, does not tell the two cases apart.
        expected = UNKNOWN if name == "WriteTxnMarkers" else ELSEWHERE
        assert await answer(cluster, broker, name, "elsewhere") is expected
        assert await answer(cluster, broker, name, "elsewhere", 1) is UNKNOWN
        assert await answer(cluster, broker, name, "missing") is UNKNOWN

    in_virtual_time(main, brokers=2)


def test_produce_that_waits_learns_whether_the_partition_moved_or_is_gone() -> None:
    async def outcome(cluster: Cluster, broker: Broker, *, deleted: bool) -> ErrorCode:
        topic = "deleted" if deleted else "moved"
        cluster.create(topic, [[1, 2]], min_insync_replicas="1")
        await cluster.until(lambda: broker.partitions.get(topic, 0) is not None and broker.partition(topic).is_leader)
        end = broker.append(b"v", topic=topic)
        waiting = broker.process.spawn(
            cluster.loop, broker.partition(topic).wait_committed(end, cluster.loop.time() + 30)
        )
        await asyncio.sleep(0.01)
        state = cluster.image.topics.get(topic)
        assert state is not None
        if deleted:
            cluster.commit([RemoveTopicRecord(topic_id=state.topic_id)])
        else:
            cluster.commit(
                [PartitionChangeRecord(topic_id=state.topic_id, partition_id=0, replicas=[2], isr=[2], leader=2)]
            )
        return cast("ErrorCode", await waiting)

    async def main(cluster: Cluster) -> None:
        broker = cluster.brokers[1]
        cluster.cut.add(frozenset({1, 2}))  # the follower does not fetch, so that the record is not committed
        assert await outcome(cluster, broker, deleted=False) is ELSEWHERE
        assert await outcome(cluster, broker, deleted=True) is UNKNOWN

    in_virtual_time(main, brokers=2)
