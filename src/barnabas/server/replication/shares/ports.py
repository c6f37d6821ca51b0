"""Port: the share coordinator and the group configs, as the leader of share partitions uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from barnabas.core.ids import TopicId
from barnabas.server.replication.partition import Isolation, SpecialTimestamp
from barnabas.server.replication.rules.share_values import SharePartitionConfig


class SharePersister(Protocol):
    """The share coordinator of a share partition, on this or another broker. Both methods raise KafkaError."""

    async def read(
        self, group_id: str, topic_id: TopicId, partition: int, leader_epoch: int
    ) -> tuple[int, int, list[tuple[int, int, int, int]]]:
        """Returns the state epoch, the start offset (-1 if unset), and batches of (first, last, state, deliveries)."""
        ...

    async def write(
        self,
        group_id: str,
        topic_id: TopicId,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        complete_count: int,
        batches: Iterable[tuple[int, int, int, int]],
    ) -> None: ...


class ShareGroupConfig(Struct, frozen=True):
    """The `share.*` configs of one group."""

    partition: SharePartitionConfig
    share_isolation_level: Isolation
    share_auto_offset_reset: SpecialTimestamp
    """Where a share partition without a stored state starts."""
    lookback_ms: int | None = None
    """Set if `share.auto.offset.reset` is `by_duration`: the partition starts at the first record that is not older."""


ShareGroupConfigOf = Callable[[str], ShareGroupConfig]
"""Returns the configs of a group, by group id."""
