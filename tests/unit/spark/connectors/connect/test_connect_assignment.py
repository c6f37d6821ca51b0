"""Which worker runs which connector: balanced, sticky, and never twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import MemberSubscription, Topics
from barnabas.spark.connectors.connect.cluster.assignment import ConnectorAssignor, assign_connectors


def test_connectors_of_a_dead_worker_move_and_the_others_stay() -> None:
    before = assign_connectors({"a", "b", "c", "d"}, {"w1": [], "w2": [], "w3": []}, {})
    assert sorted(map(len, before.values())) == [1, 1, 2]
    left = {worker: names for worker, names in before.items() if worker != "w1"}
    after = assign_connectors({"a", "b", "c", "d"}, left, {})
    assert sorted(name for names in after.values() for name in names) == ["a", "b", "c", "d"]
    for worker, names in left.items():
        assert set(names) <= set(after[worker])


def test_a_new_worker_gets_connectors_in_the_second_rebalance() -> None:
    first = assign_connectors({"a", "b", "c", "d"}, {"w1": ["a", "b", "c", "d"], "w2": []}, {"w1": 1})
    assert first == {"w1": ["a", "b"], "w2": []}
    assert assign_connectors({"a", "b", "c", "d"}, first, {"w1": 2, "w2": 2}) == {"w1": ["a", "b"], "w2": ["c", "d"]}


def test_the_newer_generation_keeps_a_connector_that_two_workers_claim() -> None:
    assert assign_connectors({"a"}, {"zombie": ["a"], "b-new": ["a"]}, {"zombie": 3, "b-new": 4}) == {
        "zombie": [],
        "b-new": ["a"],
    }


def test_deleted_connectors_are_not_assigned() -> None:
    assert assign_connectors(set(), {"w1": ["a"]}, {}) == {"w1": []}
    assert assign_connectors({"a"}, {}, {}) == {}


WORKERS = st.dictionaries(
    st.sampled_from([f"w{n}" for n in range(5)]), st.lists(st.sampled_from("abcdefghij"), unique=True), min_size=1
)


@given(connectors=st.sets(st.sampled_from("abcdefghij")), owned=WORKERS)
def test_repeated_rebalances_end_balanced_and_no_connector_moves_without_being_stopped(
    connectors: set[str], owned: dict[str, list[str]]
) -> None:
    running = owned
    for generation in range(1, 30):
        after = assign_connectors(connectors, running, dict.fromkeys(running, generation))
        placed = [name for names in after.values() for name in names]
        assert len(placed) == len(set(placed))
        owners = {name: {w for w, names in running.items() if name in names} for name in connectors}
        for worker, names in after.items():
            assert all(not owners[name] or worker in owners[name] for name in names)
        if after == {worker: sorted(names) for worker, names in running.items()}:
            break
        running = after
    sizes = [len(names) for names in running.values()]
    assert max(sizes) - min(sizes) <= 1
    assert sorted(name for names in running.values() for name in names) == sorted(connectors)


def test_the_assignor_speaks_in_partitions_with_the_names_of_connectors() -> None:
    assignor = ConnectorAssignor(lambda: ["a", "b"])
    members = {
        "m1": MemberSubscription(("connect-configs",), (TopicPartition("a", 0),), 3),
        "m2": MemberSubscription(("connect-configs",)),
    }
    assert assignor.take_led() is None
    assert assignor.assign(Topics({}), members) == {"m1": [TopicPartition("a", 0)], "m2": [TopicPartition("b", 0)]}
    assert assignor.take_led() == {"a", "b"}
    assert assignor.take_led() is None
