"""Requests to the controller with many entries are decided in parts, with the answers of one decision."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.wire.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.server.metadata.records.other import ConfigRecord
from barnabas.server.metadata.request_parts import division_of, join, parts_of
from tests.unit.server.metadata.controller_house import House, play


def reassignments(**partitions: int) -> AlterPartitionReassignmentsRequest:
    topics = [
        ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=i) for i in range(count)])
        for name, count in partitions.items()
    ]
    return AlterPartitionReassignmentsRequest(timeout_ms=7, topics=topics)


def retention(names: list[str]) -> IncrementalAlterConfigsRequest:
    resources = [
        AlterConfigsResource(
            resource_type=2, resource_name=name, configs=[AlterableConfig(name="retention.ms", value="1000")]
        )
        for name in names
    ]
    return IncrementalAlterConfigsRequest(resources=resources)


def test_a_small_request_and_one_for_all_partitions_are_one_part() -> None:
    assert division_of(reassignments(a=400, b=100)) is None
    assert division_of(DeleteTopicsRequest(topic_names=["t"])) is None
    assert division_of(ElectLeadersRequest(topic_partitions=None)) is None


def test_the_partitions_of_a_topic_are_split_and_joined() -> None:
    request = reassignments(a=700, empty=0, b=900)
    division = division_of(request)
    assert division is not None
    whole: AlterPartitionReassignmentsResponse | None = None
    sizes = []
    for part in parts_of(request, division):
        assert isinstance(part, AlterPartitionReassignmentsRequest)
        assert part.timeout_ms == 7
        sizes.append(sum(len(topic.partitions) for topic in part.topics))
        answer = AlterPartitionReassignmentsResponse(
            responses=[
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        ReassignablePartitionResponse(partition_index=p.partition_index) for p in topic.partitions
                    ],
                )
                for topic in part.topics
            ]
        )
        if whole is None:
            whole = answer
        else:
            join(whole, answer, division)
    assert max(sizes) == 500
    assert sum(sizes) == 1_600
    assert whole is not None
    found = {topic.name: [p.partition_index for p in topic.partitions] for topic in whole.responses}
    assert [topic.name for topic in whole.responses] == ["a", "empty", "b"]
    assert found == {"a": list(range(700)), "empty": [], "b": list(range(900))}
    assert [len(topic.partitions) for topic in request.topics] == [700, 0, 900]  # the request has not changed


def test_entries_of_one_key_are_in_one_part() -> None:
    names = [f"t{i}" for i in range(120)]
    request = DeleteTopicsRequest(topic_names=[*names, names[0]])
    division = division_of(request)
    assert division is not None
    parts = [part.topic_names for part in parts_of(request, division) if isinstance(part, DeleteTopicsRequest)]
    assert [len(part) for part in parts] == [51, 50, 20]
    assert parts[0].count(names[0]) == 2


def test_configs_of_many_topics_are_committed_in_parts() -> None:
    names = [f"t{i}" for i in range(120)]

    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1)
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        await house.service.call(CreateTopicsRequest(topics=topics), 7)
        response = await house.service.call(retention([*names, "missing", names[0]]), 1)
        assert isinstance(response, IncrementalAlterConfigsResponse)
        codes = {answer.resource_name: answer.error_code for answer in response.responses}
        assert list(codes) == [*names, "missing"]
        assert codes.pop("missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes.pop(names[0]) == ErrorCode.INVALID_REQUEST
        assert set(codes.values()) == {ErrorCode.NONE}
        counts = [sum(isinstance(record, ConfigRecord) for record in batch) for batch in house.log.batches]
        assert [count for count in counts if count][-3:] == [49, 50, 20]

    play(scenario)
