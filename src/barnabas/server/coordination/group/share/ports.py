"""Port: what share groups need from other nodes: the state of share partitions, and the end offsets of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicId, TopicPartition
from barnabas.server.coordination.share.state import ShareState


class StateTopic(Struct, frozen=True):
    """The name of a topic, and some of its partitions."""

    name: str
    partitions: frozenset[int] = frozenset()


StateTopics = Mapping[TopicId, StateTopic]


class ShareStates(Protocol):
    """Client of the share coordinators. The methods return one result for each requested share partition."""

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
    """The end offsets of partitions, from which the lag of share groups is computed."""

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks. A partition whose leader cannot be reached is left out."""
        ...
