"""Shell: creating topics because somebody asked for them (`AutoTopicCreationManager`).

Ordinary topics get `num.partitions` and `default.replication.factor`. The coordinators' topics get what their own
settings say, and are compacted.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.protocol.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services

_BY_CONTROLLER = -1
"""Partitions or replicas: let the controller take the default."""
_VERSION = 7


async def create_missing(services: Services, ctx: RequestContext | None, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create the topics; gives the reason for each that does not exist afterwards."""
    request = CreateTopicsRequest(topics=[_blueprint(services, name) for name in dict.fromkeys(names)])
    try:
        response = await services.controller.call(request, _VERSION, ctx)
    except KafkaError:
        return dict.fromkeys((topic.name for topic in request.topics), ErrorCode.LEADER_NOT_AVAILABLE)
    assert isinstance(response, CreateTopicsResponse)
    refused: dict[str, ErrorCode] = {}
    for result in response.topics:
        code = error_code(result.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            # What a client may do about it is to ask again, except for a bad name.
            keep = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR)
            refused[result.name] = code if code in keep else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _blueprint(services: Services, name: str) -> CreatableTopic:
    settings = services.config
    if name == CONSUMER_OFFSETS_TOPIC:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.offsets_topic_segment_bytes),
        }
        return CreatableTopic(
            name=name,
            num_partitions=settings.offsets_topic_num_partitions,
            replication_factor=settings.offsets_topic_replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
    if name == TRANSACTION_STATE_TOPIC:
        # no compression: its records are small, and every one of them is a producer's wait
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(settings.transaction_state_log_min_isr),
            "segment.bytes": str(settings.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
        return CreatableTopic(
            name=name,
            num_partitions=settings.transaction_state_log_num_partitions,
            replication_factor=settings.transaction_state_log_replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
    if name == SHARE_STATE_TOPIC:
        # not compacted: the share coordinator deletes what its snapshots have made needless
        configs = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(settings.share_coordinator_state_topic_min_isr),
            "retention.ms": "-1",
            "segment.bytes": str(settings.share_coordinator_state_topic_segment_bytes),
        }
        return CreatableTopic(
            name=name,
            num_partitions=settings.share_coordinator_state_topic_num_partitions,
            replication_factor=settings.share_coordinator_state_topic_replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
    return CreatableTopic(name=name, num_partitions=_BY_CONTROLLER, replication_factor=_BY_CONTROLLER)
