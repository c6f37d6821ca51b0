"""What a plan that balances a cluster promises, whatever the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.balance.actions import actions_between, pairs
from barnabas.protocol.assign.balance.planner import plan_balance
from barnabas.protocol.assign.balance.state import BalanceState
from barnabas.protocol.assign.balance.values import (
    HARD_GOALS,
    SOFT_GOALS,
    BalanceOptions,
    BalancePlan,
    ClusterLoad,
    PartitionLoad,
    PlannedBroker,
    PlannedRole,
)

MIB = 1024 * 1024
ROLES = [*[PlannedRole.TAKES_PART] * 6, PlannedRole.GIVES, PlannedRole.LEAVES, PlannedRole.EXCLUDED]


@st.composite
def clusters(draw: st.DrawFn) -> ClusterLoad:
    racked = draw(st.booleans())
    brokers = {
        broker: PlannedBroker(
            draw(st.sampled_from("abc")) if racked else None,
            draw(st.sampled_from(ROLES)),
            draw(st.sampled_from((None, None, 2000 * MIB))),
        )
        for broker in range(1, draw(st.integers(1, 7)) + 1)
    }
    partitions = {}
    for index in range(draw(st.integers(0, 14))):
        replicas = draw(st.permutations(sorted(brokers)))[: draw(st.integers(1, 3))]
        partitions[TopicPartition("t", index)] = PartitionLoad(
            tuple(replicas),
            draw(st.integers(0, 400)) * MIB,
            draw(st.integers(0, 500)) * 1024,
            draw(st.integers(0, 500)) * 1024,
            is_fixed=draw(st.integers(0, 9)) == 0,
        )
    return ClusterLoad(brokers, partitions)


@st.composite
def choices(draw: st.DrawFn) -> BalanceOptions:
    goals = draw(st.permutations(SOFT_GOALS))[: draw(st.integers(0, len(SOFT_GOALS)))]
    return BalanceOptions(tuple(goals), draw(st.sampled_from((0.0, 0.1, 0.3))), draw(st.sampled_from((5, 10_000))))


def carried_out(cluster: ClusterLoad, plan: BalancePlan) -> ClusterLoad:
    moved = {tp: replace(cluster.partitions[tp], replicas=move.after) for tp, move in plan.moves.items()}
    return ClusterLoad(cluster.brokers, {**cluster.partitions, **moved})


@given(clusters(), choices())
@settings(max_examples=100)
def test_a_plan_keeps_every_replica_count_and_the_spread_over_racks(
    cluster: ClusterLoad, options: BalanceOptions
) -> None:
    state = BalanceState(cluster, options)
    for tp, move in plan_balance(cluster, options).moves.items():
        assert move.before == cluster.partitions[tp].replicas != move.after
        assert len(set(move.after)) == len(move.after) == len(move.before)
        assert state.spread(move.after) >= state.spread(move.before)
        assert not cluster.partitions[tp].is_fixed
        assert move.bytes == cluster.partitions[tp].size * len({*move.after} - {*move.before})


@given(clusters(), choices())
@settings(max_examples=100)
def test_a_plan_respects_the_roles_and_capacities_of_the_brokers(cluster: ClusterLoad, options: BalanceOptions) -> None:
    plan = plan_balance(cluster, options)
    for broker, after in plan.after.items():
        before, state = plan.before[broker], cluster.brokers[broker]
        assert after.replicas <= max(before.replicas, options.replicas_max)
        assert state.bytes_max is None or after.size <= max(before.size, state.bytes_max)
        for move in plan.moves.values():
            if broker in move.after and broker not in move.before:
                assert state.role is PlannedRole.TAKES_PART
            if broker in move.before and broker not in move.after:
                assert state.role is not PlannedRole.EXCLUDED


@given(clusters(), choices())
@settings(max_examples=100)
def test_a_plan_improves_the_goals_in_their_order_and_converges(cluster: ClusterLoad, options: BalanceOptions) -> None:
    plan = plan_balance(cluster, options)
    before, after = list(plan.imbalance_before.values()), list(plan.imbalance_after.values())
    assert list(plan.imbalance_before) == [*HARD_GOALS, *options.goals]
    assert after < before if plan.moves else after == before
    result = carried_out(cluster, plan)
    assert BalanceState(result, options).imbalances == tuple(after), "the sums that were kept are those of the result"
    assert plan_balance(result, options).moves == {}, "the next plan has nothing left to do"


@given(clusters(), choices())
@settings(max_examples=100)
def test_no_move_of_a_plan_is_in_vain(cluster: ClusterLoad, options: BalanceOptions) -> None:
    plan = plan_balance(cluster, options)
    state = BalanceState(carried_out(cluster, plan), options)
    for tp, move in plan.moves.items():
        back = {tp: move.before}
        is_better_moved = state.gain(back) > (0,) * len(state.goals)
        assert is_better_moved or state.spread(move.before) < state.spread(move.after) or not state.has_room(back)


@given(clusters(), choices(), st.integers(0, 3), st.integers(0, 600))
@settings(max_examples=100)
def test_a_limited_plan_respects_its_limits_and_repeats_to_an_end(
    cluster: ClusterLoad, options: BalanceOptions, moves_max: int, size_max: int
) -> None:
    options = replace(options, moves_max=moves_max, bytes_max=size_max * MIB)
    imbalances = BalanceState(cluster, options).imbalances
    while (plan := plan_balance(cluster, options)).moves:
        assert len(plan.moves) <= moves_max
        assert plan.bytes <= size_max * MIB
        cluster = carried_out(cluster, plan)
        assert BalanceState(cluster, options).imbalances < imbalances
        imbalances = BalanceState(cluster, options).imbalances


@given(clusters(), choices(), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_a_plan_does_not_depend_on_the_order_of_its_input(
    cluster: ClusterLoad, options: BalanceOptions, random: object
) -> None:
    brokers, partitions = list(cluster.brokers.items()), list(cluster.partitions.items())
    random.shuffle(brokers)  # type: ignore[attr-defined]  # Hypothesis has no public type for its randoms
    random.shuffle(partitions)  # type: ignore[attr-defined]
    shuffled = ClusterLoad(dict(brokers), dict(partitions))
    assert plan_balance(shuffled, options) == plan_balance(cluster, options)


@given(clusters(), choices())
@settings(max_examples=100)
def test_the_quick_look_at_two_brokers_rules_no_improvement_out(cluster: ClusterLoad, options: BalanceOptions) -> None:
    quick, thorough = BalanceState(cluster, options), _Thorough(cluster, options)
    for goal in (*HARD_GOALS[2:], *options.goals):
        for heavy, light in pairs(quick, goal):
            found = list(actions_between(quick, goal, heavy, light))
            for action in actions_between(thorough, goal, heavy, light):
                if quick.is_allowed(action) and quick.improves(action):
                    assert action in found


class _Thorough(BalanceState):
    """Rules no action out before it is made."""

    def improvement_between(self, heavy: int, light: int) -> Callable[[Sequence[int]], bool]:
        return lambda load: True
