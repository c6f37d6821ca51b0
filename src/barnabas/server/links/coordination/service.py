"""Shell: the coordinator of links as the broker calls it. The methods raise KafkaError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import MIRROR_STATE_TOPIC, TopicId
from barnabas.core.rng import Rng
from barnabas.server.coordination.ports import PartitionWriter
from barnabas.server.coordination.runtime import CoordinatorRuntime, RuntimeConfig
from barnabas.server.links.coordination.shard import LinkShard
from barnabas.server.links.coordination.values import MirrorId, MirrorStored, StoredLink

WRITE_TIMEOUT_MS: Final = 5_000


class LinkCoordinator:
    """The links whose partition of `__mirror_state` this node leads."""

    def __init__(self, writer: PartitionWriter, clock: Clock, rng: Rng, on_changed: Callable[[str], None]) -> None:
        """`on_changed` is called with the name of a link whose definition, or the state of a mirror of which, was
        stored."""
        self._partitions = 0
        self._runtime: CoordinatorRuntime[LinkShard] = CoordinatorRuntime(
            RuntimeConfig(MIRROR_STATE_TOPIC, WRITE_TIMEOUT_MS),
            writer,
            clock,
            rng,
            lambda _partition, timeline: LinkShard(timeline),
        )
        self._on_changed = on_changed

    async def run(self) -> None:
        """Run the coordinator's tasks until cancelled. Must be running before the first `on_elected`."""
        await self._runtime.run()

    # -- leadership and metadata, called by the node -------------------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        self._runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        self._runtime.on_resigned(partition, leader_epoch)

    def on_partition_count(self, partitions: int) -> None:
        """Set the number of partitions of `__mirror_state`; 0 while the topic does not exist."""
        self._partitions = partitions

    def _partition(self, link: str) -> int:
        if self._partitions == 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{MIRROR_STATE_TOPIC} does not exist yet.")
        return coordinator_partition(link, self._partitions)

    # -- links ---------------------------------------------------------------------------------------------------

    async def create(self, link: StoredLink) -> StoredLink:
        stored = await self._runtime.write(self._partition(link.name), lambda shard, op: shard.create(op, link))
        self._on_changed(link.name)
        return stored

    async def alter(self, link: StoredLink) -> StoredLink:
        stored = await self._runtime.write(self._partition(link.name), lambda shard, op: shard.alter(op, link))
        self._on_changed(link.name)
        return stored

    async def delete(self, name: str, exists: Callable[[TopicId], bool]) -> StoredLink:
        """Delete a link. `exists` says whether the cluster has the topic with an id."""
        stored = await self._runtime.write(self._partition(name), lambda shard, op: shard.delete(op, name, exists))
        self._on_changed(name)
        return stored

    def definition(self, name: str) -> StoredLink | None:
        """The committed definition; None if there is no such link."""
        return self._runtime.read(self._partition(name), lambda shard: shard.committed_links().get(name))

    def links(self) -> list[StoredLink]:
        """The committed links that this node coordinates, by name; of partitions that are loading none."""
        found = []
        for partition, _ in self._runtime.active():
            try:
                found += self._runtime.read(partition, lambda shard: list(shard.committed_links().values()))
            except KafkaError:
                continue  # not known to be committed yet
        return sorted(found, key=lambda link: link.name)

    # -- mirror partitions ---------------------------------------------------------------------------------------

    def states(self, link: str) -> dict[MirrorId, MirrorStored]:
        """The committed states of the link's partitions."""
        return self._runtime.read(self._partition(link), lambda shard: shard.committed_states(link))

    async def read(self, key: MirrorId, leader_epoch: int) -> MirrorStored:
        return await self._runtime.write(self._partition(key.link), lambda shard, op: shard.read(op, key, leader_epoch))

    async def write(self, key: MirrorId, state: MirrorStored) -> None:
        await self._runtime.write(self._partition(key.link), lambda shard, op: shard.write(op, key, state))
        self._on_changed(key.link)

    async def forget(self, link: str, topic_ids: frozenset[TopicId]) -> None:
        """Delete the states of deleted topics."""
        await self._runtime.write(self._partition(link), lambda shard, op: shard.forget(op, link, topic_ids))
