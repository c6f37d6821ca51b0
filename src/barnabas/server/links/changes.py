"""Shell: the mirror topics of this cluster: read from the image, changed through the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import CONSUMER_REPLICA_ID, NO_TOPIC_ID, TopicId, TopicPartition
from barnabas.protocol.security.acls import AclBinding
from barnabas.protocol.wire.messages import list_offsets
from barnabas.protocol.wire.messages.alter_mirror_topics import (
    AlterMirrorTopicsRequest,
    MirrorConfig,
    MirrorTopicConfigs,
    NewMirrorTopic,
)
from barnabas.protocol.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.links.coordination.mirror_commands import ACTIVE, MirrorCommand
from barnabas.server.links.coordination.planning import Key, LocalFacts, MirrorBounds, SourceFacts
from barnabas.server.links.leaders import MirrorMetadata
from barnabas.server.metadata.image.cluster import ClusterImage, TopicImage
from barnabas.server.metadata.image.small import ResourceType
from barnabas.server.peers.peer_router import PeerRouter
from barnabas.server.replication.partition import Isolation, SpecialTimestamp

NAME: Final = "mirror.name"
STATE: Final = "mirror.state"
_CREATE_PARTITIONS_VERSION: Final = 3
_CREATE_ACLS_VERSION: Final = 3
_TIMEOUT_MS: Final = 30_000


class LocalMirrors:
    """The topics of this cluster as links see and change them."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        metadata: MirrorMetadata,
        controller: ControllerChannel,
        router: PeerRouter,
    ) -> None:
        self._image = image
        self._metadata = metadata
        self._controller = controller
        self._router = router

    @property
    def cluster_id(self) -> str:
        return self._image().cluster_id

    def topics(self) -> list[LocalFacts]:
        """All topics, by name."""
        image = self._image()
        return sorted((_facts(image, topic) for topic in image.topics), key=lambda topic: topic.name)

    def linked_topics(self) -> list[LocalFacts]:
        """The topics that are, or were, mirrors of any link, by name."""
        image = self._image()
        resources = image.configs.by_resource.items()
        names = sorted(key.name for key, configs in resources if key.type == ResourceType.TOPIC and NAME in configs)
        found = (image.topics.get(name) for name in names)
        return [_facts(image, topic) for topic in found if topic is not None]

    def has_topic(self, topic_id: TopicId) -> bool:
        return self._image().topics.get_by_id(topic_id) is not None

    def configs(self, topic: str) -> Mapping[str, str]:
        return self._image().configs.topic(topic)

    # -- changes -------------------------------------------------------------------------------------------------

    async def create(
        self, link: str, topics: Iterable[SourceFacts], configs: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, KafkaError | None]:
        """Create mirror topics with the ids of their sources."""
        new = [
            NewMirrorTopic(
                name=topic.name,
                topic_id=topic.topic_id or NO_TOPIC_ID,
                num_partitions=topic.partitions,
                configs=[
                    MirrorConfig(name=NAME, value=link),
                    MirrorConfig(name=STATE, value=ACTIVE),
                    *(MirrorConfig(name=name, value=value) for name, value in configs.get(topic.name, {}).items()),
                ],
            )
            for topic in topics
        ]
        if not new:
            return {}
        response = await self._metadata.change(AlterMirrorTopicsRequest(new_topics=new))
        return {
            result.name: KafkaError(error_code(result.error_code), result.error_message) if result.error_code else None
            for result in response.topics
        }

    async def configure(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set configs of a topic, `mirror.*` included; None removes one. Raises KafkaError."""
        configs = [MirrorConfig(name=name, value=value) for name, value in changes.items()]
        changed = MirrorTopicConfigs(name=topic, configs=configs)
        await self._metadata.change(AlterMirrorTopicsRequest(configs=[changed]))

    async def carry_out(self, link: str, commands: Sequence[MirrorCommand]) -> list[MirrorCommand]:
        """Make the changes of planned commands; those that fail get the error."""
        created = await self.create(link, [command.create for command in commands if command.create is not None], {})
        done = []
        for command in commands:
            error = created.get(command.topic)
            if command.mode is not None:
                try:
                    await self.configure(command.topic, {NAME: link, STATE: command.mode})
                except KafkaError as refused:
                    error = refused
            done.append(command if error is None else replace(command, error=error))
        return done

    async def grow(self, topic: str, count: int) -> None:
        """Add partitions to a mirror. Raises KafkaError."""
        wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)
        response: Any = await self._controller.call(request, _CREATE_PARTITIONS_VERSION)
        for result in response.results:
            if result.error_code:
                raise KafkaError(error_code(result.error_code), result.error_message)

    def acls(self) -> list[AclBinding]:
        return [acl.binding for acl in self._image().acls.by_id.values()]

    async def create_acls(self, acls: Sequence[AclBinding]) -> None:
        """Raises KafkaError with the first error."""
        creations = [
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in acls
        ]
        response: Any = await self._controller.call(CreateAclsRequest(creations=creations), _CREATE_ACLS_VERSION)
        for result in response.results:
            if result.error_code:
                raise KafkaError(error_code(result.error_code), result.error_message)

    # -- offsets -------------------------------------------------------------------------------------------------

    async def bounds(self, partitions: Iterable[Key]) -> dict[Key, MirrorBounds]:
        """The log start offset and the high watermark of each partition; those whose leader does not answer are left
        out."""
        by_leader = self._router.by_leader(TopicPartition(topic, index) for topic, index in partitions)
        found: dict[Key, MirrorBounds] = {}
        for broker_id, led in by_leader.items():
            try:
                starts = await self._offsets(broker_id, led, SpecialTimestamp.EARLIEST)
                ends = await self._offsets(broker_id, led, SpecialTimestamp.LATEST)
            except KafkaError:
                continue
            for key in starts.keys() & ends.keys():
                found[key] = MirrorBounds(starts[key], max(ends[key], starts[key]))
        return found

    async def _offsets(
        self, broker_id: int, partitions: Iterable[TopicPartition], timestamp: SpecialTimestamp
    ) -> dict[Key, int]:
        topics: dict[str, list_offsets.ListOffsetsTopic] = {}
        for tp in partitions:
            wanted = list_offsets.ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp)
            topics.setdefault(tp.topic, list_offsets.ListOffsetsTopic(name=tp.topic)).partitions.append(wanted)
        request = list_offsets.ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID, isolation_level=Isolation.READ_UNCOMMITTED, topics=list(topics.values())
        )
        response: Any = await self._router.send(broker_id, request, "links")
        return {
            (topic.name, partition.partition_index): partition.offset
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.NONE and partition.offset >= 0
        }


def _facts(image: ClusterImage, topic: TopicImage) -> LocalFacts:
    configs = image.configs.topic(topic.name)
    link, mode = configs.get(NAME) or None, configs.get(STATE, ACTIVE)
    return LocalFacts(topic.name, topic.topic_id, len(topic.partitions), link, mode)
