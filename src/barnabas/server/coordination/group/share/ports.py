"""Port: what share groups need of others: their share partitions' state, and where partitions end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicId, TopicPartition
from barnabas.server.coordination.share.state import ShareState


class StateTopic(Struct, frozen=True):
    """Partitions of a topic whose state is in the making, made, or being deleted."""

    name: str
    partitions: frozenset[int] = frozenset()


StateTopics = Mapping[TopicId, StateTopic]


class ShareStates(Protocol):
    """The share coordinators. One result for each share partition that was asked about."""

    async def initialize(
        self, group_id: str, state_epoch: int, starts: Mapping[TopicId, Mapping[int, int]]
    ) -> dict[tuple[TopicId, int], KafkaError | None]: ...

    async def delete(
        self, group_id: str, partitions: Mapping[TopicId, Iterable[int]]
    ) -> dict[tuple[TopicId, int], KafkaError | None]: ...

    async def summaries(
        self, group_id: str, partitions: Mapping[TopicId, Iterable[int]]
    ) -> dict[tuple[TopicId, int], ShareState | KafkaError]: ...


class PartitionEnds(Protocol):
    """Where partitions end, for lag."""

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks; a partition whose leader cannot be asked is left out."""
        ...
