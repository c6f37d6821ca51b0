"""Value: the input of an assignor, and the interface of all assignors of the classic protocol.

A classic assignor runs in the leader of the group, which is a consumer. The members of a group may be written in
different languages, and any of them may be the leader: our assignors therefore compute exactly the same results as
those of the Java client.
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


class MemberSubscription(Struct, frozen=True):
    """The subscription of one member, as its assignor gets it."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int | None = None
    """The generation in which the member got its owned partitions."""
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


class Topics(Struct, frozen=True):
    """Topic -> number of partitions, and, if known, the racks of each partition's replicas."""

    partitions: Mapping[str, int]
    racks: Mapping[TopicPartition, frozenset[str]] | None = None

    def racks_of(self, partition: TopicPartition) -> frozenset[str]:
        return frozenset() if self.racks is None else self.racks.get(partition, frozenset())


class Assignor(Protocol):
    """One entry of `partition.assignment.strategy`."""

    @property
    def name(self) -> str:
        """The name of the assignor in JoinGroup requests."""
        ...

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions during a rebalance, and revoke only those that move (KIP-429)."""
        ...

    def assign(self, topics: Topics, members: Mapping[str, MemberSubscription]) -> Assignment: ...

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """The user data that a member sends to the leader when it joins."""
        ...


def sorted_members(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Static members first, by instance id; then the others, by member id (AbstractPartitionAssignor.MemberInfo)."""

    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    return sorted(members, key=rank)


def java_order(keys: Iterable[str]) -> list[str]:
    """The iteration order of a `java.util.HashMap` into which `keys` were inserted in this order.

    The results of Java's assignors depend on the iteration order of hash maps, for example for the member that may keep
    one partition more. The order is that of the buckets, and within a bucket that of insertion.
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
    """Whether racks matter: some member is in the rack of some replica, and not every partition is in every rack."""
    wanted = set(member_racks)
    everywhere = frozenset[str]().union(*partition_racks.values())
    if not wanted or wanted.isdisjoint(everywhere):
        return False
    return any(racks != everywhere for racks in partition_racks.values())
