"""Shell: what a link reads from its source besides records. Each function raises KafkaError.

Requests are sent in the newest version that both sides know; a request that has another form in old versions is sent
again in that form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import NO_TOPIC_ID, TopicId
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.messages import describe_share_group_offsets as shares
from barnabas.protocol.wire.messages import offset_fetch as fetching
from barnabas.protocol.wire.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.wire.messages.list_groups import ListGroupsRequest
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.server.links.coordination.planning import Key, SourceFacts
from barnabas.server.links.fetching.ports import SourceRequests
from barnabas.server.links.router import raise_error
from barnabas.server.metadata.image.small import ResourceType

_DYNAMIC: Final = frozenset({1, 2, 3})
"""The sources of a config (`ConfigSource`) that somebody has set: on the topic, on a broker, on all brokers."""
_SHARE: Final = "share"


class SourceMetadata(Struct, frozen=True):
    """The source cluster: its id, brokers and topics."""

    cluster_id: str | None
    brokers: tuple[int, ...]
    topics: Mapping[str, SourceFacts]


async def read_metadata(source: SourceRequests, *, with_topics: bool = True) -> SourceMetadata:
    request = MetadataRequest(topics=None if with_topics else [], allow_auto_topic_creation=False)
    response: MetadataResponse = await source.request(request)
    topics = {
        topic.name: SourceFacts(
            topic.name,
            None if topic.topic_id == NO_TOPIC_ID else topic.topic_id,
            len(topic.partitions),
            topic.is_internal,
        )
        for topic in response.topics
        if topic.name is not None and topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
    }
    brokers = tuple(sorted(broker.node_id for broker in response.brokers))
    return SourceMetadata(response.cluster_id, brokers, topics)


async def read_configs(source: SourceRequests, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The configs of each topic that somebody has set; topics that may not be described are left out."""
    if not names:
        return {}
    wanted = [
        DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=None)
        for name in names
    ]
    response = await source.request(DescribeConfigsRequest(resources=wanted))
    return {
        result.resource_name: {
            config.name: config.value
            for config in result.configs
            if config.config_source in _DYNAMIC
            and config.value is not None
            and not config.is_sensitive
            and not config.read_only
        }
        for result in response.results
        if not result.error_code
    }


class SourceGroup(Struct, frozen=True):
    """A group of the source, and the broker that coordinates it."""

    group_id: str
    coordinator_id: int
    is_share: bool


async def read_groups(source: SourceRequests, brokers: Iterable[int]) -> list[SourceGroup]:
    """All groups that have offsets. A broker lists the groups that it coordinates."""
    found = []
    for broker_id in brokers:
        response = await source.request(ListGroupsRequest(), broker_id)
        if response.error_code:
            continue  # it is loading; the next round finds its groups
        found += [
            SourceGroup(group.group_id, broker_id, group.group_type.lower() == _SHARE)
            for group in response.groups
            if group.group_type.lower() == _SHARE or group.protocol_type in ("", "consumer")
        ]
    return sorted(found, key=lambda group: group.group_id)


async def read_offsets(source: SourceRequests, group: SourceGroup, names: Mapping[TopicId, str]) -> dict[Key, int]:
    """The committed offsets of a group. `names` are those of the mirrored topics, by the ids on the source."""
    if group.is_share:
        return await _read_share_offsets(source, group)
    wanted = fetching.OffsetFetchRequestGroup(group_id=group.group_id, topics=None)
    try:
        response = await source.request(fetching.OffsetFetchRequest(groups=[wanted]), group.coordinator_id)
        answered: Any = response.groups[0]
    except WireError:  # before version 8, a request has one group
        request = fetching.OffsetFetchRequest(group_id=group.group_id, topics=None)
        answered = await source.request(request, group.coordinator_id)
    if answered.error_code:
        raise KafkaError(error_code(answered.error_code))
    offsets: dict[Key, int] = {}
    for topic in answered.topics:
        name = topic.name or names.get(getattr(topic, "topic_id", NO_TOPIC_ID))
        for partition in topic.partitions:
            if name and not partition.error_code and partition.committed_offset >= 0:
                offsets[name, partition.partition_index] = partition.committed_offset
    return offsets


async def _read_share_offsets(source: SourceRequests, group: SourceGroup) -> dict[Key, int]:
    wanted = shares.DescribeShareGroupOffsetsRequestGroup(group_id=group.group_id, topics=None)
    response = await source.request(shares.DescribeShareGroupOffsetsRequest(groups=[wanted]), group.coordinator_id)
    answered = response.groups[0]
    raise_error(answered)
    return {
        (topic.topic_name, partition.partition_index): partition.start_offset
        for topic in answered.topics
        for partition in topic.partitions
        if not partition.error_code and partition.start_offset >= 0
    }


async def read_acls(source: SourceRequests) -> list[AclBinding]:
    """All ACLs; none if the source has no authorizer."""
    request = DescribeAclsRequest(
        resource_type_filter=AclResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )
    response = await source.request(request)
    if response.error_code == ErrorCode.SECURITY_DISABLED:
        return []
    raise_error(response)
    return [
        AclBinding(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]
