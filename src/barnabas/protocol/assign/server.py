"""Value: the input of a server-side assignor (KIP-848), and the interface of these assignors.

The group coordinator runs these assignors. Topics are identified by id, and the result is a target assignment that
members reconcile step by step. Unlike the classic assignors, these need not compute the same results as other
implementations, because only brokers run them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field

from barnabas.core.ids import TopicId

Partitions = Mapping[TopicId, frozenset[int]]
"""Topic id -> partitions; never an empty set."""


class MemberSpec(Struct, frozen=True):
    """A member: its subscribed topics, and its previous target assignment."""

    topics: frozenset[TopicId]
    assigned: Partitions = field(default_factory=dict)
    instance_id: str | None = None


class GroupSpec(Struct, frozen=True):
    """All members by id, and the number of partitions of each subscribed topic. Topics that do not exist are
    omitted."""

    members: Mapping[str, MemberSpec]
    topics: Mapping[TopicId, int]
    assignable: Mapping[TopicId, frozenset[int]] | None = None
    """If given, only these partitions are assigned (share groups: the partitions with initialized state)."""

    def partitions_of(self, topic_id: TopicId) -> list[int]:
        """The partitions of a topic that may be assigned, in order."""
        if self.assignable is not None:
            return sorted(self.assignable.get(topic_id, ()))
        return list(range(self.topics.get(topic_id, 0)))

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len({member.topics for member in self.members.values()}) <= 1


class ServerAssignor(Protocol):
    """One entry of `group.consumer.assignors` or `group.share.assignors`."""

    @property
    def name(self) -> str: ...

    def assign(self, group: GroupSpec) -> dict[str, Partitions]:
        """The target assignment of every member."""
        ...
