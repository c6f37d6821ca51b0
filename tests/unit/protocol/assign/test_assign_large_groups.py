"""The work of the server's assignors for large groups, counted: a rebalance runs in one step of the event loop."""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any
from uuid import UUID

from barnabas.protocol.assign.server import GroupSpec, MemberSpec, Partitions, ServerAssignor
from barnabas.protocol.assign.simple import SimpleAssignor
from barnabas.protocol.assign.uniform import UniformAssignor

PARTITIONS = 5_000


class CountedId(UUID):
    """A topic id that counts how often it is looked up."""

    hashes = 0

    def __hash__(self) -> int:
        CountedId.hashes += 1
        return super().__hash__()


def calls_of(assignor: ServerAssignor, group: GroupSpec) -> tuple[dict[str, Partitions], int]:
    """The assignment, and the number of Python calls."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        assigned = assignor.assign(group)
    finally:
        sys.setprofile(None)
    return assigned, calls


def test_a_share_group_of_two_hundred_members_is_assigned_with_few_lookups() -> None:
    topic = CountedId(int=1)
    members = {f"m{number:03}": MemberSpec(frozenset({topic})) for number in range(200)}
    CountedId.hashes = 0
    assigned = SimpleAssignor().assign(GroupSpec(members, {topic: PARTITIONS}))
    assert {len(assigned[member][topic]) for member in members} == {PARTITIONS // 200}
    assert CountedId.hashes <= 20 * PARTITIONS
    kept = {name: MemberSpec(frozenset({topic}), assigned[name]) for name in members}
    kept["new"] = MemberSpec(frozenset({topic}))
    CountedId.hashes = 0
    after = SimpleAssignor().assign(GroupSpec(kept, {topic: PARTITIONS}))
    assert {len(after[member][topic]) for member in kept} == {PARTITIONS // 201, PARTITIONS // 201 + 1}
    assert CountedId.hashes <= 20 * PARTITIONS


def test_a_thousand_members_with_different_subscriptions_are_assigned_with_few_calls() -> None:
    rng = random.Random(1)
    topics = {UUID(int=number): PARTITIONS // 50 for number in range(50)}
    members = {
        f"m{number:04}": MemberSpec(frozenset(rng.sample(sorted(topics), 5))) for number in range(1_000)
    }  # fmt: skip
    assigned, calls = calls_of(UniformAssignor(), GroupSpec(members, topics))
    assert sum(len(some) for partitions in assigned.values() for some in partitions.values()) == PARTITIONS
    assert calls <= 40 * PARTITIONS


def test_a_thousand_uneven_subscriptions_are_assigned_with_few_lookups() -> None:
    rng = random.Random(1)
    topics = {CountedId(int=number): PARTITIONS // 50 for number in range(1, 51)}
    members = {f"m{number:04}": MemberSpec(frozenset(rng.sample(list(topics), 5))) for number in range(1_000)}
    CountedId.hashes = 0
    assigned = UniformAssignor().assign(GroupSpec(members, topics))
    assert sum(len(some) for partitions in assigned.values() for some in partitions.values()) == PARTITIONS
    assert CountedId.hashes <= 8 * PARTITIONS


def test_a_thousand_uneven_subscriptions_keep_the_assignment_of_the_plain_rules() -> None:
    rng = random.Random(2)
    topics = {UUID(int=number): 20 for number in range(1, 31)}
    members = {f"m{number:04}": MemberSpec(frozenset(rng.sample(sorted(topics), 4))) for number in range(300)}
    first = UniformAssignor().assign(GroupSpec(members, topics))
    assert first == plainly(GroupSpec(members, topics))
    later = {
        name: MemberSpec(frozenset(rng.sample(sorted(topics), 4)) if rng.random() < 0.2 else members[name].topics, kept)
        for name, kept in first.items()
        if rng.random() < 0.9
    }
    group = GroupSpec(later, topics)
    assert UniformAssignor().assign(group) == plainly(group)


def plainly(group: GroupSpec) -> dict[str, Partitions]:
    """The assignment of a group with different subscriptions, by the rules of `uniform.py` as they are written."""
    names = sorted(group.members)
    held = {
        name: [
            (topic, partition)
            for topic in sorted(group.members[name].assigned)
            if topic in group.members[name].topics
            for partition in sorted(group.members[name].assigned[topic])
        ]
        for name in names
    }
    wanted_by = {topic: [n for n in names if topic in group.members[n].topics] for topic in sorted(group.topics)}
    taken = {pair for pairs in held.values() for pair in pairs}
    for topic in sorted(wanted_by, key=lambda topic: (len(wanted_by[topic]), topic)):
        for partition in range(group.topics[topic]):
            if wanted_by[topic] and (topic, partition) not in taken:
                held[min(wanted_by[topic], key=lambda n: (len(held[n]), n))].append((topic, partition))
    while sum([_move_plainly(held, topic, names) for topic, names in wanted_by.items()]):
        pass
    return {
        name: {topic: frozenset(p for t, p in pairs if t == topic) for topic in sorted({t for t, _ in pairs})}
        for name, pairs in held.items()
    }


def _move_plainly(held: dict[str, list[tuple[UUID, int]]], topic: UUID, names: list[str]) -> bool:
    """Move partitions of the topic from members with many to those with few. Returns whether one was moved."""
    moved = False
    while names:
        poorest = min(names, key=lambda n: (len(held[n]), n))
        owners = [n for n in names if any(t == topic for t, _ in held[n]) and len(held[n]) > len(held[poorest]) + 1]
        if not owners:
            break
        richest = min(owners, key=lambda n: (-len(held[n]), n))
        index = max(i for i, (t, _) in enumerate(held[richest]) if t == topic)
        held[poorest].append(held[richest].pop(index))
        moved = True
    return moved
