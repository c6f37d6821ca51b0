"""What every assignor promises, whatever the input."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import MemberSubscription, Topics
from barnabas.protocol.assign.server import GroupSpec, MemberSpec
from barnabas.protocol.assign.table import CLASSIC_ASSIGNORS, SERVER_ASSIGNORS
from tests.unit.protocol.assign.assign_cases import random_case

SEEDS = st.integers(0, 2**32)


@pytest.mark.parametrize("name", sorted(CLASSIC_ASSIGNORS))
@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_every_partition_goes_to_one_subscriber(name: str, seed: int) -> None:
    case = random_case(random.Random(seed), name)
    assignor = CLASSIC_ASSIGNORS[name]
    assigned = assignor.assign(*case.inputs())

    assert set(assigned) == set(case.members)
    given_out = [tp for partitions in assigned.values() for tp in partitions]
    assert len(given_out) == len(set(given_out)), "a partition has two owners"
    for member_id, partitions in assigned.items():
        assert all(tp.topic in case.members[member_id].topics for tp in partitions)
    wanted = {
        TopicPartition(topic, p)
        for topic, count in case.topics.items()
        if any(topic in s.topics for s in case.members.values())
        for p in range(count)
    }
    if assignor.is_cooperative:
        owned = {tp for s in case.members.values() for tp in s.owned}
        assert wanted - set(given_out) <= owned, "only what must be taken from an owner may wait"
    else:
        assert set(given_out) == wanted


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_cooperative_rebalances_settle(seed: int) -> None:
    """Two rebalances later nothing moves any more, everything is assigned, and loads of equals differ by one."""
    case = random_case(random.Random(seed), "cooperative-sticky")
    assignor = CLASSIC_ASSIGNORS["cooperative-sticky"]
    topics, members = Topics(case.topics), {m: MemberSubscription(s.topics) for m, s in case.members.items()}
    assigned = {}
    for generation in range(4):
        before = assigned
        assigned = assignor.assign(topics, members)
        members = {
            m: MemberSubscription(s.topics, tuple(assigned[m]), generation, s.instance_id) for m, s in members.items()
        }
    assert {m: set(p) for m, p in assigned.items()} == {m: set(p) for m, p in before.items()}
    if len({frozenset(s.topics) for s in members.values()}) == 1:
        loads = [len(p) for p in assigned.values()]
        assert max(loads) - min(loads) <= 1


@st.composite
def groups(draw: st.DrawFn) -> GroupSpec:
    topics = {UUID(int=i): draw(st.integers(1, 8)) for i in range(1, draw(st.integers(1, 4)) + 1)}
    free = [(topic_id, p) for topic_id, count in topics.items() for p in range(count + 1)]  # one too many: deleted
    draw(st.randoms(use_true_random=False)).shuffle(free)
    alike = draw(st.booleans())
    everything = frozenset(draw(st.sets(st.sampled_from(sorted(topics)))))
    members = {}
    for i in range(draw(st.integers(1, 8))):
        wanted = everything if alike else frozenset(draw(st.sets(st.sampled_from(sorted(topics)))))
        had: dict[UUID, set[int]] = {}
        for topic_id, p in [free.pop() for _ in range(min(len(free), draw(st.integers(0, 6))))]:
            had.setdefault(topic_id, set()).add(p)
        members[f"m{i}"] = MemberSpec(wanted, {t: frozenset(p) for t, p in had.items()})
    return GroupSpec(members, topics)


@pytest.mark.parametrize("name", sorted(SERVER_ASSIGNORS))
@given(group=groups())
@settings(max_examples=200, deadline=None)
def test_server_assignors_give_every_partition_to_one_subscriber(name: str, group: GroupSpec) -> None:
    assigned = SERVER_ASSIGNORS[name].assign(group)

    assert set(assigned) == set(group.members)
    given_out = [(t, p) for partitions in assigned.values() for t, ps in partitions.items() for p in ps]
    assert len(given_out) == len(set(given_out))
    assert all(partitions.keys() <= group.members[m].topics for m, partitions in assigned.items())
    assert all(ps for partitions in assigned.values() for ps in partitions.values()), "an empty set is no assignment"
    wanted = {t for member in group.members.values() for t in member.topics}
    assert set(given_out) == {(t, p) for t in wanted for p in range(group.topics[t])}


@given(group=groups())
@settings(max_examples=200, deadline=None)
def test_uniform_is_balanced_and_stays_put(group: GroupSpec) -> None:
    uniform = SERVER_ASSIGNORS["uniform"]
    assigned = uniform.assign(group)
    load = {m: sum(map(len, partitions.values())) for m, partitions in assigned.items()}

    for richer, partitions in assigned.items():
        for poorer in assigned:
            if load[richer] > load[poorer] + 1:
                assert not partitions.keys() & group.members[poorer].topics, "one more move would help"
    again = GroupSpec({m: MemberSpec(s.topics, assigned[m]) for m, s in group.members.items()}, group.topics)
    assert uniform.assign(again) == assigned
