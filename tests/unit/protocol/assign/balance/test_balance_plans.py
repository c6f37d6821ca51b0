"""Plans for small clusters, as a person would make them."""

from __future__ import annotations

from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.balance.healing import Healer, HealingPolicy
from barnabas.protocol.assign.balance.planner import plan_balance
from barnabas.protocol.assign.balance.values import (
    BalanceOptions,
    ClusterLoad,
    Goal,
    PartitionLoad,
    PlannedBroker,
    PlannedRole,
    Replicas,
)

GIB = 1 << 30


def cluster(brokers: dict[int, PlannedBroker], *partitions: PartitionLoad) -> ClusterLoad:
    return ClusterLoad(brokers, {TopicPartition("t", index): load for index, load in enumerate(partitions)})


def moves(load: ClusterLoad, options: BalanceOptions | None = None) -> dict[int, Replicas]:
    return {tp.partition: move.after for tp, move in plan_balance(load, options).moves.items()}


def brokers(*ids: int) -> dict[int, PlannedBroker]:
    return dict.fromkeys(ids, PlannedBroker())


def test_a_new_broker_gets_its_share_of_replicas_and_of_leaders() -> None:
    load = cluster(brokers(1, 2, 3), *[PartitionLoad((1, 2)), PartitionLoad((2, 1))] * 3)
    plan = plan_balance(load)
    assert {broker: (after.replicas, after.leaders) for broker, after in plan.after.items()} == {
        1: (4, 2),
        2: (4, 2),
        3: (4, 2),
    }


def test_a_balanced_cluster_stays_as_it_is() -> None:
    assert moves(cluster(brokers(1, 2), PartitionLoad((1, 2), GIB), PartitionLoad((2, 1), GIB))) == {}


def test_replicas_change_places_when_only_their_sizes_differ() -> None:
    sizes = (8, 8, 1, 1)
    loads = [PartitionLoad((1 if size == 8 else 2,), size * GIB) for size in sizes]
    plan = plan_balance(cluster(brokers(1, 2), *loads), BalanceOptions((Goal.REPLICAS, Goal.DISK)))
    assert {broker: (after.replicas, after.size) for broker, after in plan.after.items()} == {
        1: (2, 9 * GIB),
        2: (2, 9 * GIB),
    }


def test_leaders_are_balanced_without_copying() -> None:
    plan = plan_balance(cluster(brokers(1, 2), *[PartitionLoad((1, 2), GIB)] * 4))
    assert (len(plan.moves), plan.bytes) == (2, 0)


def test_replicas_on_one_rack_are_spread() -> None:
    racks = {1: PlannedBroker("a"), 2: PlannedBroker("a"), 3: PlannedBroker("b")}
    assert moves(cluster(racks, PartitionLoad((1, 2))), BalanceOptions(())) == {0: (1, 3)}


def test_a_full_disk_gets_nothing() -> None:
    full = {1: PlannedBroker(), 2: PlannedBroker(bytes_max=GIB // 2), 3: PlannedBroker()}
    load = cluster(full, *[PartitionLoad((1,), GIB)] * 4)
    plan = plan_balance(load)
    assert {broker: after.replicas for broker, after in plan.after.items()} == {1: 2, 2: 0, 3: 2}


def test_a_removed_broker_gives_everything_away_and_the_old_replicas_lead() -> None:
    load = cluster(
        {**brokers(2, 3), 1: PlannedBroker(role=PlannedRole.LEAVES)}, PartitionLoad((1, 2)), PartitionLoad((3,))
    )
    assert moves(load, BalanceOptions(())) == {0: (2, 3)}


def test_a_replica_without_another_place_is_reported() -> None:
    load = cluster({**brokers(2), 1: PlannedBroker(role=PlannedRole.LEAVES)}, PartitionLoad((1, 2)))
    plan = plan_balance(load)
    assert (dict(plan.moves), plan.unplaced) == ({}, (TopicPartition("t", 0),))


def test_healing_waits_until_a_broker_has_been_dead_for_long_enough_without_interruption() -> None:
    healer = Healer(HealingPolicy(after_ms=60_000))
    assert healer.observe(0, []).reason == "all brokers that have replicas are alive"
    assert healer.observe(1_000, [3]).reason == "broker 3 is dead; healing begins in 60 s unless it comes back"
    assert healer.observe(60_000, [3]).heal == ()
    assert healer.observe(61_000, []).heal == ()
    assert healer.observe(62_000, [3]).heal == ()
    assert healer.observe(122_000, [3]).heal == (3,)


def test_healing_begins_again_when_the_cluster_could_not_be_observed() -> None:
    healer = Healer(HealingPolicy(after_ms=60_000))
    healer.observe(0, [3])
    healer.on_unobserved()
    assert healer.observe(60_000, [3]).heal == ()


def test_nothing_is_healed_while_many_brokers_are_dead_or_replicas_are_moving() -> None:
    healer = Healer(HealingPolicy(after_ms=0, dead_max=1))
    assert "2 brokers are dead at once (2, 3)" in healer.observe(0, [3, 2]).reason
    assert "reassignments are under way: 4" in healer.observe(0, [3], moves_under_way=4).reason
    assert healer.observe(0, [3]).heal == (3,)
