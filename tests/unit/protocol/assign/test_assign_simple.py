"""The share groups' assignor: everyone has something, every partition has someone, little moves."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.assign.server import GroupSpec, MemberSpec
from barnabas.protocol.assign.simple import SimpleAssignor

T, U = UUID(int=1), UUID(int=2)


def spec(members: int, partitions: int, had: dict[str, frozenset[int]] | None = None) -> GroupSpec:
    assigned = had or {}
    return GroupSpec(
        {
            f"m{i}": MemberSpec(frozenset({T}), {T: assigned[f"m{i}"]} if f"m{i}" in assigned else {})
            for i in range(members)
        },
        {T: partitions},
    )


def loads(group: GroupSpec) -> list[int]:
    return sorted(sum(map(len, target.values())) for target in SimpleAssignor().assign(group).values())


def test_more_partitions_than_members_are_divided() -> None:
    assert SimpleAssignor().assign(spec(2, 4)) == {"m0": {T: frozenset({0, 2})}, "m1": {T: frozenset({1, 3})}}


def test_more_members_than_partitions_share() -> None:
    assert SimpleAssignor().assign(spec(3, 1)) == {f"m{i}": {T: frozenset({0})} for i in range(3)}
    assert loads(spec(3, 2)) == [1, 1, 2]


def test_only_what_is_assignable() -> None:
    group = GroupSpec({"a": MemberSpec(frozenset({T, U}))}, {T: 3, U: 2}, {T: frozenset({1})})
    assert SimpleAssignor().assign(group) == {"a": {T: frozenset({1})}}


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 11), st.integers(0, 11))
def test_fair_complete_and_steady(before: int, members: int, partitions: int, more: int) -> None:
    partitions += 1
    assignor = SimpleAssignor()
    first = {m: target.get(T, frozenset()) for m, target in assignor.assign(spec(before, partitions)).items()}
    group = spec(members, partitions + more, first)
    target = assignor.assign(group)
    counts = [len(target[m].get(T, ())) for m in group.members]
    assert min(counts) >= 1
    owners = [sum(p in target[m].get(T, ()) for m in group.members) for p in range(partitions + more)]
    assert min(owners) >= 1
    if members == before and not more:
        assert {m: t.get(T, frozenset()) for m, t in target.items()} == first
