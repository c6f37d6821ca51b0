"""Shell: the share partitions whose partitions this node leads, made when a member first asks.

They go when the leadership goes, and when the last member of their group has left this node: then an administrator may
move the group, and the next member must find what the share coordinator says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId, TopicPartition
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.shares.partition import SharePartition
from barnabas.server.replication.shares.ports import ShareGroupConfig, ShareGroupConfigOf, SharePersister

ShareKey = tuple[str, TopicId, int]


class SharePartitions:
    """By group, topic id and partition. Fills `LeadershipListener`."""

    def __init__(self, persister: SharePersister, settings: ShareGroupConfigOf, clock: Clock) -> None:
        self._persister = persister
        self._settings = settings
        self._clock = clock
        self._by_key: dict[ShareKey, SharePartition] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the tasks until cancelled; then close everything."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None
            for found in list(self._by_key.values()):
                found.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            self._by_key.clear()

    def __len__(self) -> int:
        return len(self._by_key)

    def settings(self, group_id: str) -> ShareGroupConfig:
        return self._settings(group_id)

    def find(self, group_id: str, topic_id: TopicId, partition: int) -> SharePartition | None:
        """The share partition, if a member has asked for it since this node leads the partition."""
        return self._by_key.get((group_id, topic_id, partition))

    async def get(self, group_id: str, partition: Partition) -> SharePartition:
        """The share partition, read from its share coordinator if need be. Raises KafkaError."""
        if not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        key = (group_id, partition.topic_id, partition.name.partition)
        found = self._by_key.get(key)
        if found is None or found.closed is not None or found.leader_epoch != partition.leader_epoch:
            if found is not None:
                found.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            found = self._by_key[key] = SharePartition(
                group_id,
                partition,
                self._persister,
                lambda: self._settings(group_id),
                self._clock,
                self._spawn,
                self._forget,
            )
        await found.load()
        return found

    def forget_group(self, group_id: str) -> None:
        """No member of the group is left at this node."""
        for key in [key for key in self._by_key if key[0] == group_id]:
            self._by_key.pop(key).close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        """A new epoch begins: what was acquired in the one before is nobody's."""
        self.on_resigned(partition, leader_epoch)

    def on_resigned(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        for key, found in list(self._by_key.items()):
            if found.partition.name == partition:
                del self._by_key[key]
                found.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _forget(self, fenced: SharePartition) -> None:
        key = (fenced.group_id, fenced.partition.topic_id, fenced.partition.name.partition)
        if self._by_key.get(key) is fenced:
            del self._by_key[key]

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> object:
        if self._tasks is None:
            coroutine.close()
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The node is shutting down.")
        return self._tasks.create_task(coroutine)
