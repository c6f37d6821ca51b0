"""Machine: DeleteTopics, by name or by id (`ControllerApis.deleteTopics`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_TOPIC_ID
from barnabas.protocol.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.server.metadata.controller.answers import (
    RefusedError,
    check_mutation_quota,
    duplicates,
    invalid_request,
    message_of,
)
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.image.cluster import ClusterImage, TopicImage
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.topics import RemoveTopicRecord


def decide_delete_topics(
    image: ClusterImage, request: DeleteTopicsRequest, ctx: DecideContext
) -> Decision[MetadataRecord, DeleteTopicsResponse]:
    """A RemoveTopicRecord for each existing topic. Since version 6, `topics` has names and ids."""
    wanted = [DeleteTopicState(name=name) for name in request.topic_names] + list(request.topics)
    find = _finder(image, wanted)
    records: list[MetadataRecord] = []
    results = []
    for state in _distinct(wanted):
        try:
            if not ctx.settings.delete_topic_enable:
                code = ErrorCode.INVALID_REQUEST if ctx.version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
                raise RefusedError(code)
            topic = find(state)
            check_mutation_quota(ctx.charge, len(topic.partitions))
        except KafkaError as error:
            results.append(
                DeletableTopicResult(
                    name=state.name, topic_id=state.topic_id, error_code=error.code, error_message=message_of(error)
                )
            )
            continue
        records.append(RemoveTopicRecord(topic_id=topic.topic_id))
        results.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
    return Decision(DeleteTopicsResponse(responses=results), records)


def _distinct(wanted: list[DeleteTopicState]) -> Iterable[DeleteTopicState]:
    """The requested topics without repetitions: a topic that is requested twice gets one result."""
    return {(state.name, state.topic_id): state for state in wanted}.values()


def _finder(image: ClusterImage, wanted: list[DeleteTopicState]) -> Callable[[DeleteTopicState], TopicImage]:
    names = duplicates(state.name for state in wanted if state.name is not None)
    given = [state.topic_id for state in wanted if state.topic_id != NO_TOPIC_ID]
    ids = duplicates(given)
    by_name = {topic.topic_id for state in wanted if state.name and (topic := image.topics.get(state.name))}
    both_ways = by_name.intersection(given)

    def find(state: DeleteTopicState) -> TopicImage:
        if state.name is None:
            if state.topic_id == NO_TOPIC_ID:
                raise invalid_request("Neither topic name nor id were specified.")
            if state.topic_id in ids:
                raise invalid_request("Duplicate topic id.")
            topic = image.topics.get_by_id(state.topic_id)
            if topic is None:
                raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID)
            return _once(topic)
        if state.topic_id != NO_TOPIC_ID:
            raise invalid_request("You may not specify both topic name and topic id.")
        if state.name in names:
            raise invalid_request("Duplicate topic name.")
        topic = image.topics.get(state.name)
        if topic is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _once(topic)

    def _once(topic: TopicImage) -> TopicImage:
        if topic.topic_id in both_ways:  # a topic that is requested both by name and by id is not deleted, as in Kafka
            raise invalid_request("The provided topic name maps to an ID that was already supplied.")
        return topic

    return find
