"""Machine: how the cluster that a run is served as answers requests about itself: all but Fetch.

The cluster has one broker, which leads every partition in the leader epoch of the partition's last batch. Its id is the
id of the run, so that brokers which restore one run never go on with another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from barnabas.backup.serving.batches import readable_end
from barnabas.backup.values import PartitionBackup, RunManifest, TopicBackup
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import NO_TOPIC_ID, uuid_from_text
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.messages import list_offsets as lo
from barnabas.protocol.wire.messages import metadata as md
from barnabas.protocol.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas.protocol.wire.schema import Message

NODE_ID: Final = 0
_EARLIEST: Final = -2
_LATEST: Final = -1
_TOPIC: Final = 2
_SET_ON_TOPIC: Final = 1
_FIRST_FETCH: Final = 12
"""The first version of Fetch in which a follower can learn that logs diverge: brokers then ask for nothing else."""
SERVED: Final[Mapping[ApiKey, tuple[int, int]]] = {
    ApiKey.FETCH: (_FIRST_FETCH, 17),
    **{
        key: (APIS[key].min_version, APIS[key].max_version)
        for key in (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_CONFIGS)
    },
}
"""The APIs and their versions."""
_OF_LOGINS: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


class ServerAddress(Struct, frozen=True):
    """Where brokers reach the server."""

    host: str
    port: int


class RunAnswers:
    """The answers from one run."""

    def __init__(self, run: RunManifest, address: ServerAddress) -> None:
        self.run = run
        self.address = address
        self.topics = {topic.name: topic for topic in run.topics}
        self.names = {topic_uuid(topic): topic.name for topic in run.topics if topic_uuid(topic) != NO_TOPIC_ID}
        self._partitions = {
            (topic.name, partition.partition): partition for topic in run.topics for partition in topic.partitions
        }
        self._handlers: dict[type[Message], Callable[[Any], Message]] = {
            ApiVersionsRequest: self.api_versions,
            md.MetadataRequest: self.metadata,
            lo.ListOffsetsRequest: self.list_offsets,
            DescribeConfigsRequest: self.describe_configs,
        }

    def answer(self, request: Message) -> Message:
        return self._handlers[type(request)](request)

    def partition(self, topic: str, index: int) -> PartitionBackup | None:
        return self._partitions.get((topic, index))

    def api_versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        served = {**SERVED, **{key: (APIS[key].min_version, APIS[key].max_version) for key in _OF_LOGINS}}
        keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in served.items()]
        return ApiVersionsResponse(api_keys=sorted(keys, key=lambda entry: entry.api_key))

    def metadata(self, request: md.MetadataRequest) -> md.MetadataResponse:
        if request.topics is None:
            topics = [self._topic(topic) for topic in self.run.topics]
        else:
            topics = [self._named(wanted) for wanted in request.topics]
        return md.MetadataResponse(
            brokers=[md.MetadataResponseBroker(node_id=NODE_ID, host=self.address.host, port=self.address.port)],
            cluster_id=self.run.id,
            controller_id=NODE_ID,
            topics=topics,
        )

    def _named(self, wanted: md.MetadataRequestTopic) -> md.MetadataResponseTopic:
        name = wanted.name if wanted.name is not None else self.names.get(wanted.topic_id)
        topic = self.topics.get(name or "")
        if topic is not None:
            return self._topic(topic)
        error = ErrorCode.UNKNOWN_TOPIC_ID if wanted.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return md.MetadataResponseTopic(error_code=error, name=wanted.name, topic_id=wanted.topic_id)

    @staticmethod
    def _topic(topic: TopicBackup) -> md.MetadataResponseTopic:
        return md.MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic_uuid(topic),
            partitions=[
                md.MetadataResponsePartition(
                    error_code=ErrorCode.NONE,
                    partition_index=partition.partition,
                    leader_id=NODE_ID,
                    leader_epoch=max(partition.last_epoch, 0),
                    replica_nodes=[NODE_ID],
                    isr_nodes=[NODE_ID],
                )
                for partition in topic.partitions
            ],
        )

    def list_offsets(self, request: lo.ListOffsetsRequest) -> lo.ListOffsetsResponse:
        return lo.ListOffsetsResponse(
            topics=[
                lo.ListOffsetsTopicResponse(
                    name=topic.name, partitions=[self._offset(topic.name, wanted) for wanted in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _offset(self, topic: str, wanted: lo.ListOffsetsPartition) -> lo.ListOffsetsPartitionResponse:
        found = self.partition(topic, wanted.partition_index)
        error, offset = ErrorCode.NONE, -1
        if found is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif wanted.timestamp == _EARLIEST:
            offset = found.log_start
        elif wanted.timestamp == _LATEST:
            offset = readable_end(found)
        else:
            error = ErrorCode.UNSUPPORTED_VERSION  # the time index is not part of a backup
        return lo.ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error, offset=offset)

    def describe_configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        results = []
        for wanted in request.resources:
            topic = self.topics.get(wanted.resource_name) if wanted.resource_type == _TOPIC else None
            configs = {} if topic is None else topic.configs
            results.append(
                DescribeConfigsResult(
                    error_code=ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=None,
                    resource_type=wanted.resource_type,
                    resource_name=wanted.resource_name,
                    configs=[
                        DescribeConfigsResourceResult(
                            name=name, value=value, read_only=False, config_source=_SET_ON_TOPIC, is_sensitive=False
                        )
                        for name, value in sorted(configs.items())
                    ],
                )
            )
        return DescribeConfigsResponse(results=results)


def topic_uuid(topic: TopicBackup) -> UUID:
    return uuid_from_text(topic.topic_id)
