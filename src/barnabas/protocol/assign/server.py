"""Value: what a server-side assignor is told (KIP-848), and the port that they fill.

The coordinator runs them, topics go by id, and the result is a target that members move towards by themselves. So
unlike the classic ones they need not agree with anyone else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field

from barnabas.core.ids import TopicId

Partitions = Mapping[TopicId, frozenset[int]]
"""Topic id -> partitions; never an empty set."""


class MemberSpec(Struct, frozen=True):
    """A member: the topics it wants, and what it was to have so far."""

    topics: frozenset[TopicId]
    assigned: Partitions = field(default_factory=dict)
    instance_id: str | None = None


class GroupSpec(Struct, frozen=True):
    """All members by id, and how many partitions each of their topics has. Topics that do not exist are left out."""

    members: Mapping[str, MemberSpec]
    topics: Mapping[TopicId, int]
    assignable: Mapping[TopicId, frozenset[int]] | None = None
    """Where given, only these partitions are handed out (share groups: those whose state has been made)."""

    def partitions_of(self, topic_id: TopicId) -> list[int]:
        """The partitions of a topic that may be handed out, in order."""
        if self.assignable is not None:
            return sorted(self.assignable.get(topic_id, ()))
        return list(range(self.topics.get(topic_id, 0)))

    @property
    def is_homogeneous(self) -> bool:
        """Everyone wants the same."""
        return len({member.topics for member in self.members.values()}) <= 1


class ServerAssignor(Protocol):
    """One entry of `group.consumer.assignors` or `group.share.assignors`."""

    @property
    def name(self) -> str: ...

    def assign(self, group: GroupSpec) -> dict[str, Partitions]:
        """The target of every member."""
        ...
