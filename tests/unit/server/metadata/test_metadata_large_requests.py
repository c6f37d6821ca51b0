"""CreateTopics with many topics is decided and committed in parts; its answer is that of one decision."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.server.metadata.large_requests import TOPICS_PER_DECISION
from barnabas.server.metadata.records.topics import TopicRecord
from tests.unit.server.metadata.controller_house import House, play

NAMES = [f"t{i}" for i in range(2 * TOPICS_PER_DECISION + 7)]


async def create(house: House, names: list[str], *, partitions: int = 1, validate_only: bool = False) -> list[int]:
    """The error codes of the topics, in the order of the response."""
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    response = await house.service.call(CreateTopicsRequest(topics=topics, validate_only=validate_only), 7)
    assert isinstance(response, CreateTopicsResponse)
    assert [topic.name for topic in response.topics] == list(dict.fromkeys(names))
    return [topic.error_code for topic in response.topics]


def topics_by_batch(house: House) -> list[int]:
    counts = [sum(isinstance(record, TopicRecord) for record in batch) for batch in house.log.batches]
    return [count for count in counts if count]


def test_many_topics_are_committed_in_parts() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1)
        assert set(await create(house, NAMES)) == {ErrorCode.NONE}
        assert topics_by_batch(house) == [TOPICS_PER_DECISION, TOPICS_PER_DECISION, 7]
        assert {topic.name for topic in house.image.topics} == set(NAMES)

    play(scenario)


def test_a_name_that_is_in_two_parts_is_a_duplicate() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1)
        codes = await create(house, [*NAMES, NAMES[0]])
        assert codes == [ErrorCode.INVALID_REQUEST, *[ErrorCode.NONE] * (len(NAMES) - 1)]

    play(scenario)


def test_too_many_partitions_in_all_parts_together_are_rejected() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1)
        assert set(await create(house, NAMES, partitions=100)) == {ErrorCode.POLICY_VIOLATION}
        assert topics_by_batch(house) == []

    play(scenario)


def test_validation_creates_nothing() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1)
        assert set(await create(house, NAMES, validate_only=True)) == {ErrorCode.NONE}
        assert topics_by_batch(house) == []

    play(scenario)
