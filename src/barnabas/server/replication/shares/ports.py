"""Port: what the leader of share partitions needs: where their state is kept, and what their groups want."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct, field

from barnabas.core.ids import TopicId
from barnabas.server.replication.partition import Isolation, SpecialTimestamp
from barnabas.server.replication.rules.share_values import ShareLimits


class SharePersister(Protocol):
    """The share coordinator of a share partition, wherever it is. Both raise KafkaError."""

    async def read(
        self, group_id: str, topic_id: TopicId, partition: int, leader_epoch: int
    ) -> tuple[int, int, list[tuple[int, int, int, int]]]:
        """State epoch, start offset (-1: nobody has said), batches of (first, last, state, deliveries)."""
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


class ShareSettings(Struct, frozen=True):
    """One group's settings (`share.*`), as they are now."""

    limits: ShareLimits = field(default_factory=ShareLimits)
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    reset: SpecialTimestamp = SpecialTimestamp.LATEST
    """`share.auto.offset.reset`: where to begin on a partition that nobody has said anything of."""
    lookback_ms: int | None = None
    """Set for `by_duration`: begin with what is not older than this."""


SettingsOf = Callable[[str], ShareSettings]
"""The settings of a group, by its id."""
