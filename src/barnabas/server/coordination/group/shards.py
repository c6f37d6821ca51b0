"""Shell: the shards of the groups whose partition of `__consumer_offsets` this node leads.

The calls of the group coordinator (`group/calls/`) reach the shard of a group through `write` and `read`.

`group/shard.py` and the modules that it imports are loaded when this node first leads a partition of
`__consumer_offsets`, so that a broker without groups starts sooner and needs less memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC
from barnabas.core.rng import Rng
from barnabas.server.coordination.errors import error_for_client
from barnabas.server.coordination.group.config import GroupConfigs, GroupCoordinatorConfig, NoGroupConfigs
from barnabas.server.coordination.operation import Deferred, WriteOperation
from barnabas.server.coordination.ports import PartitionWriter, TopicCatalog
from barnabas.server.coordination.runtime import CoordinatorRuntime, RuntimeConfig
from barnabas.server.coordination.timeline import Timeline

if TYPE_CHECKING:
    from barnabas.server.coordination.context import CoordinatorContext
    from barnabas.server.coordination.group.shard import GroupShard

R = TypeVar("R")


class GroupShards:
    """The loaded partitions of groups, and access to one group. Implements the port `GroupRuntime` of share groups."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        writer: PartitionWriter,
        topics: TopicCatalog,
        clock: Clock,
        rng: Rng,
        group_configs: GroupConfigs | None = None,
    ) -> None:
        self._config = config
        self._topics = topics
        self._clock = clock
        self._partitions = 0
        configs = group_configs or NoGroupConfigs()
        self._runtime = CoordinatorRuntime(
            RuntimeConfig(CONSUMER_OFFSETS_TOPIC, config.offsets_commit_timeout_ms),
            writer,
            clock,
            rng,
            lambda partition, timeline: _new_shard(config, configs, self._topics, timeline),
            self._catch_up,
        )

    def active_shards(self) -> Iterator[tuple[int, GroupShard]]:
        """The loaded shards, in ascending order of partition."""
        return self._runtime.active()

    async def run(self) -> None:
        """Run the coordinator's tasks until cancelled. Must be running before the first `on_elected`."""
        await self._runtime.run()

    # -- leadership and metadata, called by the node -----------------------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load `__consumer_offsets-<partition>`, which this node leads now. Requests fail with
        COORDINATOR_LOAD_IN_PROGRESS until the partition is loaded."""
        self._runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """Unload the partition, which this node no longer leads, and fail its pending requests. A `leader_epoch` of
        None means that the replica was deleted."""
        self._runtime.on_resigned(partition, leader_epoch)

    def on_partition_count(self, partitions: int) -> None:
        """Set the number of partitions of `__consumer_offsets`; 0 while the topic does not exist."""
        self._partitions = partitions

    def on_topics_changed(self, topics: TopicCatalog, deleted: frozenset[str] = frozenset()) -> None:
        """Use a new metadata image, and delete the offsets of deleted topics from all groups."""
        before, self._topics = self._topics, topics
        created = not set(topics.names()).issubset(before.names())
        self._runtime.run_on_all(lambda shard, op: shard.on_topics_changed(op, topics, deleted, created=created))

    def _catch_up(self, shard: GroupShard, op: WriteOperation) -> None:
        """Give a shard the topics that have changed while its log was replayed."""
        if shard.topics is not self._topics:
            deleted = frozenset(name for name in shard.topics.names() if self._topics.by_name(name) is None)
            shard.on_topics_changed(op, self._topics, deleted, created=True)

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds the group.

        Raises KafkaError NOT_COORDINATOR while this broker does not know the topic, as on a new cluster before the
        image with the topic that FindCoordinator has created arrives: clients look for the coordinator again.
        """
        if self._partitions == 0:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"This broker does not know {CONSUMER_OFFSETS_TOPIC} yet.")
        return coordinator_partition(group_id, self._partitions)

    # -- one group ---------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> TopicCatalog:
        return self._topics

    async def write(
        self, group_id: str, decide: Callable[[GroupShard, WriteOperation], R | Deferred], *, may_defer: bool = False
    ) -> R:
        """Execute one operation on the group's shard. Raises KafkaError."""
        return await self._runtime.write(self.partition_for(group_id), decide, may_defer=may_defer)

    def read(self, group_id: str, query: Callable[[GroupShard], R]) -> R:
        """Query the committed state of the group's shard. Raises KafkaError."""
        try:
            return self._runtime.read(self.partition_for(group_id), query)
        except KafkaError as error:
            raise KafkaError(error_for_client(error.code), error.detail) from error

    def context(self, group_id: str) -> CoordinatorContext[GroupShard]:
        """The loaded partition that holds the group, with its newest state. Raises KafkaError."""
        return self._runtime.context(self.partition_for(group_id))


def _new_shard(
    config: GroupCoordinatorConfig, group_configs: GroupConfigs, topics: TopicCatalog, timeline: Timeline
) -> GroupShard:
    from barnabas.server.coordination.group.shard import GroupShard

    return GroupShard(config, group_configs, topics, timeline)


def check_group_id(group_id: str) -> None:
    """Raises KafkaError INVALID_GROUP_ID for an empty group id, which only OffsetCommit and OffsetFetch accept."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
