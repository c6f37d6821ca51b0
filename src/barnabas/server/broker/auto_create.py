"""Shell: creates topics on the first request for them (Kafka's AutoTopicCreationManager).

Ordinary topics get `num.partitions` and `default.replication.factor`. The topics of the coordinators have configs of
their own, such as `offsets.topic.num.partitions`.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, MIRROR_STATE_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.protocol.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.server.broker.config import BrokerConfig, HasBrokerConfig
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.broker.request_context import RequestContext

_BY_CONTROLLER = -1
"""As a number of partitions or replicas: the controller uses its default."""
_VERSION = 7


class AutoTopicCreation:
    """Asks the controller to create topics."""

    def __init__(self, controller: ControllerChannel, config: HasBrokerConfig) -> None:
        self._controller = controller
        self._config = config

    async def create_missing(self, ctx: RequestContext | None, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create the topics; returns the error code of each topic that could not be created. `ctx` is that of the
        client's request; None for topics that this broker needs itself."""
        topics = [_creatable_topic(self._config.current, name) for name in dict.fromkeys(names)]
        try:
            response = await self._controller.call(CreateTopicsRequest(topics=topics), _VERSION, ctx)
        except KafkaError:
            return dict.fromkeys((topic.name for topic in topics), ErrorCode.LEADER_NOT_AVAILABLE)
        assert isinstance(response, CreateTopicsResponse)
        errors: dict[str, ErrorCode] = {}
        for result in response.topics:
            code = error_code(result.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                # A client that retries can succeed, except after these two errors.
                keep = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR)
                errors[result.name] = code if code in keep else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return errors


def _creatable_topic(settings: BrokerConfig, name: str) -> CreatableTopic:
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
        # Not compressed: the records are small, and a producer waits for each.
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
        # Not compacted: the share coordinator deletes the records that precede its snapshots.
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
    if name == MIRROR_STATE_TOPIC:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "min.insync.replicas": str(settings.mirror_state_topic_min_isr),
            "segment.bytes": str(settings.mirror_state_topic_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
        return CreatableTopic(
            name=name,
            num_partitions=settings.mirror_state_topic_num_partitions,
            replication_factor=settings.mirror_state_topic_replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
    return CreatableTopic(name=name, num_partitions=_BY_CONTROLLER, replication_factor=_BY_CONTROLLER)
