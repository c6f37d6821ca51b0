"""Machine: the "sticky" and "cooperative-sticky" assignors: a balanced assignment that moves few partitions.

Sticky sends a member's owned partitions in the assignor's user data, and rebalances eagerly. Cooperative-sticky reads
them from the subscription, and revokes a partition one rebalance before another member gets it (KIP-429).

If all members subscribe to the same topics, `sticky_constrained` computes the assignment in one pass (KAFKA-9987).
Otherwise `sticky_general` moves partitions until no move improves the balance.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import (
    DEFAULT_GENERATION,
    Assignment,
    MemberSubscription,
    Topics,
    java_order,
    uses_racks,
)
from barnabas.protocol.assign.sticky_constrained import ConstrainedAssignment
from barnabas.protocol.assign.sticky_general import GeneralAssignment
from barnabas.protocol.assign.sticky_state import Racks, StickyInput

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")


class Memory(Struct, frozen=True):
    """The previous assignment of one member."""

    owned: tuple[TopicPartition, ...] = ()
    generation: int | None = None


class _Result(Struct):
    assignment: Assignment
    transferring: dict[TopicPartition, str] | None = field(default=None)
    """The partitions that move from one member to another; None if they were not computed."""


class StickyAssignor:
    name = "sticky"
    is_cooperative = False

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        return encode_memory(Memory(tuple(owned), generation))

    def assign(self, topics: Topics, members: Mapping[str, MemberSubscription]) -> Assignment:
        memories = {member_id: decode_memory(s.user_data) for member_id, s in members.items()}
        return _assign(topics, members, memories).assignment


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes:
        return _I32.pack(generation)

    def assign(self, topics: Topics, members: Mapping[str, MemberSubscription]) -> Assignment:
        result = _assign(topics, members, {m: _owned_memory(s) for m, s in members.items()})
        transferring = result.transferring
        if transferring is None:
            transferring = _transfers(members, result.assignment)
        for partition, member_id in transferring.items():
            # assigned in the next rebalance, after the owner has revoked it
            result.assignment[member_id].remove(partition)
        return result.assignment


def _owned_memory(subscription: MemberSubscription) -> Memory:
    if subscription.generation is not None:
        return Memory(subscription.owned, subscription.generation)
    generation = None
    if subscription.user_data is not None:  # subscriptions before version 2 carry the generation here
        try:
            (generation,) = _I32.unpack_from(subscription.user_data)
        except struct.error:
            generation = DEFAULT_GENERATION
    return Memory(subscription.owned, generation)


def _transfers(members: Mapping[str, MemberSubscription], assignment: Assignment) -> dict[TopicPartition, str]:
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member_id, partitions in assignment.items():
        owned = set(members[member_id].owned)
        added.update((tp, member_id) for tp in partitions if tp not in owned)
        revoked.update(owned.difference(partitions))
    return {tp: member_id for tp, member_id in added.items() if tp in revoked}


def _assign(topics: Topics, members: Mapping[str, MemberSubscription], memories: Mapping[str, Memory]) -> _Result:
    members = {member_id: members[member_id] for member_id in java_order(members)}
    subscribed = {topic for s in members.values() for topic in s.topics}
    known = {t: n for t, n in topics.partitions.items() if n and t in subscribed}
    racks = _racks(known, topics, members)
    owned, disputed, newest = _owned(known, members, memories)
    inputs = StickyInput(known, {m: s.topics for m, s in members.items()}, owned, racks)
    if _all_alike(members):
        constrained = ConstrainedAssignment(inputs, disputed)
        return _Result(constrained.build(), constrained.transferring)
    previous: dict[TopicPartition, tuple[str, int]] = {}
    for member_id in members:
        memory = memories[member_id]
        generation = DEFAULT_GENERATION if memory.generation is None else memory.generation
        if generation >= newest:
            continue
        for tp in memory.owned:
            if tp not in previous or generation > previous[tp][1]:
                previous[tp] = (member_id, generation)
    return _Result(GeneralAssignment(inputs, {tp: member_id for tp, (member_id, _) in previous.items()}).build())


def _all_alike(members: Mapping[str, MemberSubscription]) -> bool:
    """Whether all members subscribe to the same topics. Members before the first one with a subscription do not
    count."""
    subscribed = [frozenset(s.topics) for s in members.values()]
    first = next((i for i, topics in enumerate(subscribed) if topics), 0)
    return len(set(subscribed[first:])) <= 1


def _owned(
    known: Mapping[str, int], members: Mapping[str, MemberSubscription], memories: Mapping[str, Memory]
) -> tuple[dict[str, list[TopicPartition]], set[TopicPartition], int]:
    """Returns the partitions that each member owns, the disputed partitions, and the newest generation of a member.

    If several members claim a partition, the claim of the newest generation counts. If two claims have the same
    generation, the partition is disputed, and neither claim counts.
    """
    owned: dict[str, list[TopicPartition]] = {}
    owners: dict[TopicPartition, str] = {}
    disputed: set[TopicPartition] = set()
    newest = DEFAULT_GENERATION
    for member_id in members:
        memory = memories[member_id]
        generation = DEFAULT_GENERATION if memory.generation is None else memory.generation
        newest = max(newest, generation)
        mine = owned[member_id] = []
        for tp in memory.owned:
            if tp.topic not in known:
                continue
            other = owners.get(tp)
            if other is not None:
                other_generation = members[other].generation
                theirs = DEFAULT_GENERATION if other_generation is None else other_generation
                if generation < theirs:
                    continue
                if tp in owned[other]:
                    owned[other].remove(tp)
                if generation == theirs:
                    disputed.add(tp)
                    owners[tp] = member_id
                    continue
            mine.append(tp)
            owners[tp] = member_id
    return {member_id: owned[member_id] for member_id in java_order(owned)}, disputed, newest


def _racks(known: Mapping[str, int], topics: Topics, members: Mapping[str, MemberSubscription]) -> Racks:
    consumers = {m: s.rack for m, s in members.items() if s.rack}
    if not consumers:
        return Racks({}, {}, {})
    partitions = {tp: topics.racks_of(tp) for t, n in known.items() for tp in (TopicPartition(t, p) for p in range(n))}
    population: dict[str, int] = {}
    for rack in consumers.values():
        population[rack] = population.get(rack, 0) + 1
    near = {tp: sum(population.get(rack, 0) for rack in racks) for tp, racks in partitions.items()}
    if uses_racks(consumers.values(), partitions):
        return Racks(consumers, partitions, near)
    return Racks({}, {}, near)


# -- user data: topics [ topic string, partitions [ int32 ] ], generation int32 --------------------------------------


def encode_memory(memory: Memory) -> bytes:
    """StickyAssignor's user data, version 1."""
    by_topic: dict[str, list[int]] = {}
    for tp in memory.owned:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    out = bytearray(_I32.pack(len(by_topic)))
    for topic, partitions in by_topic.items():
        name = topic.encode()
        out += _I16.pack(len(name)) + name + _I32.pack(len(partitions))
        out += b"".join(map(_I32.pack, partitions))
    out += _I32.pack(DEFAULT_GENERATION if memory.generation is None else memory.generation)
    return bytes(out)


def decode_memory(data: bytes | None) -> Memory:
    """Decode version 1, or 0 (without a generation). Other data decodes to an empty assignment without a generation."""
    if not data:
        return Memory()
    try:
        owned, pos = _decode_topics(data)
    except (struct.error, UnicodeDecodeError, ValueError):
        return Memory((), DEFAULT_GENERATION)
    if len(data) - pos >= _I32.size:
        return Memory(owned, _I32.unpack_from(data, pos)[0])
    return Memory(owned, None)


def _decode_topics(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    (count,) = _I32.unpack_from(data)
    pos = _I32.size
    owned: list[TopicPartition] = []
    if not 0 <= count <= len(data):
        raise ValueError("more topics than bytes")
    for _ in range(count):
        (length,) = _I16.unpack_from(data, pos)
        pos += _I16.size
        topic = data[pos : pos + length].decode()
        pos += length
        (partitions,) = _I32.unpack_from(data, pos)
        pos += _I32.size
        if not 0 <= partitions <= (len(data) - pos) // _I32.size:
            raise ValueError("more partitions than bytes")
        end = pos + partitions * _I32.size
        owned.extend(TopicPartition(topic, number) for (number,) in _I32.iter_unpack(data[pos:end]))
        pos = end
    return tuple(owned), pos
