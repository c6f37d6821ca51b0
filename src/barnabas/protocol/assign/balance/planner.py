"""Machine: plans the moves that balance a cluster.

The planner climbs: it applies the first action that improves a goal without making an earlier goal worse, until there
is none. Then it undoes each move that no goal needs, and climbs again. Every step makes the imbalances, compared in the
order of the goals, smaller, or leaves them and has fewer moves; therefore the planner ends. It depends on the present
placement only: the plan for a cluster in which a plan without limits was carried out is empty.
"""

from __future__ import annotations

from barnabas.protocol.assign.balance.actions import actions_between, actions_for_partitions, pairs
from barnabas.protocol.assign.balance.state import BalanceState
from barnabas.protocol.assign.balance.values import BalanceOptions, BalancePlan, ClusterLoad, Goal, Move, PlannedRole

Failed = dict[tuple[Goal, int, int], tuple[int, int]]
"""(goal, two brokers) between which no action improves the goal -> the versions of the brokers when that was found."""


def plan_balance(cluster: ClusterLoad, options: BalanceOptions | None = None) -> BalancePlan:
    """The plan with which the cluster reaches the goals, or comes nearer to them."""
    state = BalanceState(cluster, options or BalanceOptions())
    before, imbalance_before = state.broker_loads(), _imbalances(state)
    while True:
        _climb(state)
        if not _undo_needless(state):
            break
    return BalancePlan(
        {
            tp: Move(cluster.partitions[tp].replicas, state.replicas[tp], size)
            for tp, size in sorted(state.moved.items())
        },
        before,
        state.broker_loads(),
        imbalance_before,
        _imbalances(state),
        tuple(
            tp for tp, replicas in state.replicas.items() if any(state.role[b] is PlannedRole.LEAVES for b in replicas)
        ),
    )


def _imbalances(state: BalanceState) -> dict[Goal, int]:
    return dict(zip(state.goals, state.imbalances, strict=True))


def _climb(state: BalanceState) -> None:
    """Apply improving actions until there is none."""
    failed: Failed = {}
    is_improved = True
    while is_improved:
        is_improved = False
        for goal in state.goals:
            while state.imbalance(goal) and _improve(state, goal, failed):
                is_improved = True


def _improve(state: BalanceState, goal: Goal, failed: Failed) -> bool:
    """Apply one action, or several, that improve the goal. Returns False if there is none."""
    is_improved = False
    if goal in (Goal.PLACEMENT, Goal.RACKS):
        for action in actions_for_partitions(state, goal):
            if state.is_allowed(action) and state.improves(action):
                state.apply(action)
                is_improved = True
        return is_improved
    for heavy, light in pairs(state, goal):
        versions = state.version[heavy], state.version[light]
        if failed.get((goal, heavy, light)) == versions:
            continue
        for action in actions_between(state, goal, heavy, light):
            if state.is_allowed(action) and state.improves(action):
                state.apply(action)
                return True
        if not state.is_limited:  # with limits, an action may be refused for what happens elsewhere
            failed[goal, heavy, light] = versions
    return False


def _undo_needless(state: BalanceState) -> bool:
    """Undo each move without which the goals are reached as well. Moves of many bytes come first."""
    undone = False
    for tp in sorted(state.moved, key=lambda tp: (-state.moved[tp], tp)):
        back = {tp: state.cluster.partitions[tp].replicas}
        keeps_spread = state.spread(back[tp]) >= state.spread(state.replicas[tp])
        if keeps_spread and state.has_room(back) and state.gain(back) <= (0,) * len(state.goals):
            state.apply(back)
            undone = True
    return undone
