"""Where replicas go when brokers come and go."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.assign.moves import MoveError, plan_moves

FOUR = {1: None, 2: None, 3: None, 4: None}
CURRENT = {"a": (1, 2, 3), "b": (2, 3, 1), "c": (3, 1, 2)}


def test_a_broker_is_drained_and_the_others_keep_what_they_have() -> None:
    without_one = {2: None, 3: None, 4: None}
    assert plan_moves(CURRENT, without_one) == {"a": (2, 3, 4), "b": (2, 3, 4), "c": (3, 2, 4)}


def test_nothing_moves_without_a_reason() -> None:
    assert plan_moves(CURRENT, FOUR) == {}


def test_a_new_broker_gets_its_share() -> None:
    moves = plan_moves(CURRENT, FOUR, balance=True)
    after = Counter(broker for replicas in {**CURRENT, **moves}.values() for broker in replicas)
    assert sorted(after.values()) == [2, 2, 2, 3]


def test_racks_are_not_doubled() -> None:
    racks = {1: "x", 2: "y", 3: "y", 4: "x"}
    assert plan_moves({"a": (1, 9)}, racks) == {"a": (1, 2)}
    assert plan_moves({"a": (1,)}, racks, replication_factor=2) == {"a": (1, 2)}


def test_fewer_replicas_leave_the_heaviest_and_keep_the_leader() -> None:
    assert plan_moves({**CURRENT, "d": (1,)}, FOUR, only={"c"}, replication_factor=2) == {"c": (3, 2)}


def test_too_few_brokers() -> None:
    with pytest.raises(MoveError, match="a has 3 replicas, and only 2"):
        plan_moves({"a": (1, 2, 3)}, {1: None, 2: None})
    with pytest.raises(MoveError, match="5 replicas"):
        plan_moves(CURRENT, FOUR, replication_factor=5)


@given(
    st.dictionaries(st.integers(0, 40), st.permutations(range(6)).map(lambda p: tuple(p[:3])), min_size=1),
    st.sets(st.integers(0, 8), min_size=3),
    st.booleans(),
)
def test_whatever_comes_out_is_a_placement(
    current: dict[int, tuple[int, ...]], brokers: set[int], balance: bool
) -> None:
    racks = {broker: f"r{broker % 3}" for broker in brokers}
    moves = plan_moves(current, racks, balance=balance)
    for partition, replicas in current.items():
        after = moves.get(partition, replicas)
        assert len(after) == len(set(after)) == len(replicas)
        assert set(after) <= brokers
        if not balance and replicas[0] in brokers:
            assert after[0] == replicas[0]
