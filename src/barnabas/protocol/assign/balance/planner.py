"""Machine: plans the moves that balance a cluster.

The planner climbs: it applies the first action that improves a goal without making an earlier goal worse, until there
is none. Then it undoes each move that no goal needs, and climbs again. Every step makes the imbalances, compared in the
order of the goals, smaller, or leaves them and has fewer moves; therefore the planner ends. It depends on the present
placement only: the plan for a cluster in which a plan without limits was carried out is empty.
"""

from __future__ import annotations

from barnabas.protocol.assign.balance.actions import actions_for
from barnabas.protocol.assign.balance.state import Action, State
from barnabas.protocol.assign.balance.values import BalanceOptions, BrokerRole, ClusterLoad, Goal, Move, Plan


def plan_balance(cluster: ClusterLoad, options: BalanceOptions | None = None) -> Plan:
    """The plan with which the cluster reaches the goals, or comes nearer to them."""
    state = State(cluster, options or BalanceOptions())
    before, imbalance_before = state.broker_loads(), _imbalances(state)
    while True:
        _climb(state)
        if not _undo_needless(state):
            break
    return Plan(
        {
            tp: Move(cluster.partitions[tp].replicas, state.replicas[tp], size)
            for tp, size in sorted(state.moved.items())
        },
        before,
        state.broker_loads(),
        imbalance_before,
        _imbalances(state),
        tuple(
            tp for tp, replicas in state.replicas.items() if any(state.role[b] is BrokerRole.LEAVES for b in replicas)
        ),
    )


def _imbalances(state: State) -> dict[Goal, int]:
    return dict(zip(state.goals, state.imbalances, strict=True))


def _climb(state: State) -> None:
    """Apply improving actions until there is none."""
    is_improved = True
    while is_improved:
        is_improved = False
        for goal in state.goals:
            while (action := _find_improving(state, goal)) is not None:
                state.apply(action)
                is_improved = True


def _find_improving(state: State, goal: Goal) -> Action | None:
    if not state.imbalance(goal):
        return None
    for action in actions_for(state, goal):
        if state.is_allowed(action) and state.gain(action) < (0,) * len(state.goals):
            return action
    return None


def _undo_needless(state: State) -> bool:
    """Undo each move without which the goals are reached as well. Moves of many bytes come first."""
    undone = False
    for tp in sorted(state.moved, key=lambda tp: (-state.moved[tp], tp)):
        back = {tp: state.cluster.partitions[tp].replicas}
        if state.spread(back[tp]) >= state.spread(state.replicas[tp]) and state.gain(back) <= (0,) * len(state.goals):
            state.apply(back)
            undone = True
    return undone
