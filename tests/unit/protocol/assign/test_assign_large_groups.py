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
