"""Value: what an assignor is told, and the port that all assignors of the classic protocol fill.

The classic assignors run in the group's leader, a consumer. All members of a group must agree on what an assignor does,
and they may be written in any language; so ours give the same result as Java's for the same input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from barnabas.core.hashing import java_string_hash
from barnabas.core.ids import TopicPartition

DEFAULT_GENERATION = -1

Assignment = dict[str, list[TopicPartition]]
"""Member id -> its partitions."""


class Subscription(Struct, frozen=True):
    """One member's part in the assignment."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int | None = None
    """The generation in which it came to own them."""
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


class Topics(Struct, frozen=True):
    """Topic -> number of partitions, and where known the racks of each partition's replicas."""

    partitions: Mapping[str, int]
    racks: Mapping[TopicPartition, frozenset[str]] | None = None

    def racks_of(self, partition: TopicPartition) -> frozenset[str]:
        return frozenset() if self.racks is None else self.racks.get(partition, frozenset())


class Assignor(Protocol):
    """One entry of `partition.assignment.strategy`."""

    @property
    def name(self) -> str:
        """As it is known on the wire."""
        ...

    @property
    def is_cooperative(self) -> bool:
        """Members keep their partitions while they rebalance, and give up only what another gets (KIP-429)."""
        ...

    def assign(self, topics: Topics, members: Mapping[str, Subscription]) -> Assignment: ...

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """What this assignor wants a member to tell the leader when it joins."""
        ...


def sorted_members(members: Mapping[str, Subscription]) -> list[str]:
    """Static members first, by instance id; then the others, by member id (AbstractPartitionAssignor.MemberInfo)."""

    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    return sorted(members, key=rank)


def java_order(keys: Iterable[str]) -> list[str]:
    """The order in which a `java.util.HashMap` filled in this order gives its keys back.

    Java's assignors iterate hash maps where the result depends on it: who may keep one partition more. The order is
    that of the buckets, and within a bucket that of insertion.
    """
    listed = list(keys)
    return sorted(listed, key=lambda key: java_bucket(java_string_hash(key), len(listed)))


def java_bucket(java_hash: int, size: int) -> int:
    """The bucket of a hash code in a `java.util.HashMap` that was filled with `size` entries one by one."""
    capacity = 16
    while size > capacity * 3 // 4:
        capacity *= 2
    unsigned = java_hash & 0xFFFFFFFF
    return (unsigned ^ (unsigned >> 16)) & (capacity - 1)


def uses_racks(member_racks: Iterable[str], partition_racks: Mapping[TopicPartition, frozenset[str]]) -> bool:
    """Racks matter when some member is near some replica, and not every partition is in every rack."""
    wanted = set(member_racks)
    everywhere = frozenset[str]().union(*partition_racks.values())
    if not wanted or wanted.isdisjoint(everywhere):
        return False
    return any(racks != everywhere for racks in partition_racks.values())
