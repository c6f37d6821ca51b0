"""Codec: a plan that balances a cluster -> the tables for people and the document for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from barnabas.cli.output import note, print_table, size_text
from barnabas.client.explanations.words import counted
from barnabas.protocol.assign.balance.values import HARD_GOALS, BalancePlan, BrokerLoad, ClusterLoad, Goal, PlannedRole

_SHOWN_MAX: Final = 50
_IN_BYTES: Final = (Goal.DISK_CAPACITY, Goal.DISK)
_IN_RATES: Final = (Goal.NETWORK_IN, Goal.NETWORK_OUT)


def plan_document(plan: BalancePlan, load: ClusterLoad, *, is_executed: bool) -> dict[str, Any]:
    return {
        "executed": is_executed,
        "bytes": plan.bytes,
        "goals": [
            {"goal": goal.value, "hard": goal in HARD_GOALS, "imbalance_before": before, "imbalance_after": after}
            for goal, before, after in _imbalances(plan)
        ],
        "brokers": [
            {
                "broker": broker,
                "rack": load.brokers[broker].rack,
                "role": load.brokers[broker].role.value,
                "before": _load_document(plan.before[broker]),
                "after": _load_document(plan.after[broker]),
            }
            for broker in sorted(load.brokers)
        ],
        "moves": [
            {"partition": str(tp), "from": move.before, "to": move.after, "bytes": move.bytes}
            for tp, move in plan.moves.items()
        ],
        "unplaced": [str(tp) for tp in plan.unplaced],
    }


def print_plan(plan: BalancePlan, load: ClusterLoad) -> None:
    """Print the goals that are not reached, the brokers before and after, and the moves."""
    goals = [
        (goal.value, _amount(goal, before), _amount(goal, after))
        for goal, before, after in _imbalances(plan)
        if before or after
    ]
    print_table(["GOAL", "MISSED BY NOW>", "AFTER>"], goals, empty="all goals are reached")
    rows = [
        (broker, load.brokers[broker].rack, *_cells(plan.before[broker], plan.after[broker]), _role_text(load, broker))
        for broker in sorted(load.brokers)
    ]
    print_table(["BROKER>", "RACK", "REPLICAS>", "LEADERS>", "DISK>", "IN/S>", "OUT/S>", ""], rows)
    moves = [(str(tp), move.before, move.after, size_text(move.bytes)) for tp, move in plan.moves.items()]
    print_table(["PARTITION", "FROM", "TO", "COPIED>"], moves[:_SHOWN_MAX], empty="no moves")
    if len(moves) > _SHOWN_MAX:
        note(f"and {len(moves) - _SHOWN_MAX} more; --json shows all")
    if plan.unplaced:
        note(f"{unplaced_text(plan)}. Start another broker, or the dead one; partitions without a leader cannot move.")


def unplaced_text(plan: BalancePlan) -> str:
    first = ", ".join(map(str, plan.unplaced[:3])) + (", ..." if len(plan.unplaced) > 3 else "")
    return f"{counted(len(plan.unplaced), 'partition')} could not be placed elsewhere: {first}"


def summary(plan: BalancePlan) -> str:
    """`12 moves, 3.4 GiB to be copied`."""
    return f"{counted(len(plan.moves), 'move')}, {size_text(plan.bytes)} to be copied"


def _imbalances(plan: BalancePlan) -> list[tuple[Goal, int, int]]:
    return [(goal, before, plan.imbalance_after[goal]) for goal, before in plan.imbalance_before.items()]


def _load_document(load: BrokerLoad) -> dict[str, int]:
    names = {"size": "bytes", "rate_in": "bytes_in_per_s", "rate_out": "bytes_out_per_s"}
    return {names.get(name, name): value for name, value in asdict(load).items()}


def _amount(goal: Goal, amount: int) -> str:
    if goal in _IN_BYTES:
        return size_text(amount)
    return f"{size_text(amount)}/s" if goal in _IN_RATES else f"{amount:,}"


def _cells(before: BrokerLoad, after: BrokerLoad) -> Sequence[str]:
    counts = ((before.replicas, after.replicas), (before.leaders, after.leaders))
    sizes = ((before.size, after.size), (before.rate_in, after.rate_in), (before.rate_out, after.rate_out))
    texts = [(f"{old:,}", f"{new:,}") for old, new in counts] + [(size_text(old), size_text(new)) for old, new in sizes]
    return [old if old == new else f"{old} → {new}" for old, new in texts]


def _role_text(load: ClusterLoad, broker: int) -> str:
    role = load.brokers[broker].role
    return "" if role is PlannedRole.TAKES_PART else role.value
