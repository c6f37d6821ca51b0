"""Shell: the share partitions of the partitions that this broker leads, created by a member's first request.

A share partition is closed when the leadership ends, and when the last member of its group has closed its share session
with this broker. An administrator may then alter the group's offsets, and the next member must read them from the share
coordinator.
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
    """The open share partitions, by group, topic id and partition. Implements `LeadershipListener`."""

    def __init__(self, persister: SharePersister, config: ShareGroupConfigOf, clock: Clock) -> None:
        self._persister = persister
        self._config = config
        self._clock = clock
        self._by_key: dict[ShareKey, SharePartition] = {}
        self._keys_of: dict[TopicPartition, dict[ShareKey, None]] = {}
        """The keys of the share partitions of each partition."""
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the tasks of the share partitions until cancelled, then close all share partitions."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None
            for found in list(self._by_key.values()):
                found.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            self._by_key.clear()
            self._keys_of.clear()

    def __len__(self) -> int:
        return len(self._by_key)

    def config(self, group_id: str) -> ShareGroupConfig:
        return self._config(group_id)

    def find(self, group_id: str, topic_id: TopicId, partition: int) -> SharePartition | None:
        """The share partition, or None if no member has requested it in this leader epoch."""
        return self._by_key.get((group_id, topic_id, partition))

    async def get(self, group_id: str, partition: Partition) -> SharePartition:
        """The share partition. Its state is read from the share coordinator if necessary. Raises KafkaError."""
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
                lambda: self._config(group_id),
                self._clock,
                self._spawn,
                self._forget,
            )
            self._keys_of.setdefault(partition.name, {})[key] = None
        await found.load()
        return found

    def forget_group(self, group_id: str) -> None:
        """Close the group's share partitions: no member of the group has a share session with this broker."""
        for key in [key for key in self._by_key if key[0] == group_id]:
            self._pop(key).close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        """Close the share partitions of the previous leader epoch: its acquired records become available again."""
        self.on_resigned(partition, leader_epoch)

    def on_resigned(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        for key in list(self._keys_of.get(partition, ())):
            self._pop(key).close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _pop(self, key: ShareKey) -> SharePartition:
        found = self._by_key.pop(key)
        name = found.partition.name
        keys = self._keys_of[name]
        del keys[key]
        if not keys:
            del self._keys_of[name]
        return found

    def _forget(self, fenced: SharePartition) -> None:
        key = (fenced.group_id, fenced.partition.topic_id, fenced.partition.name.partition)
        if self._by_key.get(key) is fenced:
            self._pop(key)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> object:
        if self._tasks is None:
            coroutine.close()
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The node is shutting down.")
        return self._tasks.create_task(coroutine)
