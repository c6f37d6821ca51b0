"""Replica placement: the goals and the limits of Kafka's StripedReplicaPlacer."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.errors import ErrorCode
from barnabas.protocol.assign.placement import PlacementError, UsableBroker, place_replicas


class Zeros(random.Random):
    """No luck at all: every start is 0 and nothing is shuffled."""

    def randrange(self, *args: object, **kwargs: object) -> int:  # type: ignore[override]
        return 0

    def shuffle(self, x: object) -> None:  # type: ignore[override]
        return None


def brokers(*racks: tuple[str | None, int]) -> list[UsableBroker]:
    made: list[UsableBroker] = []
    for rack, count in racks:
        made += [UsableBroker(len(made) + index, rack) for index in range(count)]
    return made


def test_the_stripes_of_the_documentation() -> None:
    nine = [UsableBroker(number, "ABC"[number // 3]) for number in range(9)]
    assert place_replicas(nine, 3, 3, Zeros()) == [(0, 3, 6), (4, 7, 1), (8, 2, 5)]


def test_fenced_brokers_come_last_and_never_lead() -> None:
    three = [UsableBroker(0), UsableBroker(1, fenced=True), UsableBroker(2)]
    placed = place_replicas(three, 20, 3, random.Random(1))
    assert all(replicas[2] == 1 and set(replicas) == {0, 1, 2} for replicas in placed)


def test_leaders_are_spread() -> None:
    placed = place_replicas(brokers((None, 5)), 100, 3, random.Random(2))
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {20}


def test_growing_a_topic_goes_on_where_it_stopped() -> None:
    four = brokers((None, 4))
    first = place_replicas(four, 1, 1, random.Random(3))
    second = place_replicas(four, 1, 1, random.Random(3), existing=first)
    assert second[0][0] == (first[0][0] + 1) % 4


@pytest.mark.parametrize(
    ("cluster", "factor", "words"),
    [
        ([UsableBroker(0)], 0, "must be positive"),
        ([UsableBroker(0)], 2, "cannot be reached because only 1 broker"),
        ([UsableBroker(0, fenced=True)], 1, "All brokers are currently fenced"),
        ([], 1, "All brokers are currently fenced"),
    ],
)
def test_what_cannot_be_placed(cluster: list[UsableBroker], factor: int, words: str) -> None:
    with pytest.raises(PlacementError, match=words) as refusal:
        place_replicas(cluster, 1, factor, random.Random(0))
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


clusters = st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=12).map(
    lambda given: [UsableBroker(number, rack, fenced) for number, (rack, fenced) in enumerate(given)]
)


@given(clusters, st.integers(1, 20), st.integers(1, 12), st.randoms(use_true_random=False))
def test_constraints_hold_in_every_cluster(
    cluster: list[UsableBroker], partitions: int, factor: int, rng: random.Random
) -> None:
    fenced = {broker.broker_id for broker in cluster if broker.fenced}
    if factor > len(cluster) or len(fenced) == len(cluster):
        with pytest.raises(PlacementError):
            place_replicas(cluster, partitions, factor, rng)
        return
    racks = {broker.broker_id: broker.rack for broker in cluster}
    for replicas in place_replicas(cluster, partitions, factor, rng):
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(racks)
        assert replicas[0] not in fenced
        # Racks are filled evenly while every rack has brokers left.
        per_rack = Counter(racks[broker] for broker in replicas)
        sizes = Counter(racks.values())
        if factor <= len(sizes):
            assert max(per_rack.values()) == 1
