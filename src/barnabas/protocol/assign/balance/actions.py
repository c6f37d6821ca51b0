"""Machine: the actions that may improve one goal, the most promising ones first.

The number of actions is limited, so that a plan for a large cluster takes seconds. All functions depend on the state
only, and the order of their results is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.balance.state import LEADERS, LOAD_OF, RATE_OUT, REPLICAS, SIZE, Action, BalanceState
from barnabas.protocol.assign.balance.values import Goal, PlannedRole, Replicas

MayImprove = Callable[[Sequence[int]], bool]
"""Gets the load that would go from one broker to another, in the order of `Loads`."""

_BROKERS: Final = 8
"""The number of brokers with the most load, and with the least, between which replicas may move."""
_CANDIDATES: Final = 32
"""The number of partitions of one broker that may move to another one."""
_SWAPPED: Final = 12
"""The number of partitions of each of two brokers that may change places."""


def actions_for_partitions(state: BalanceState, goal: Goal) -> Iterator[Action]:
    """Actions that may bring the replicas of single partitions to better brokers. Those that follow an action which was
    applied take it into account."""
    if goal is Goal.PLACEMENT:
        yield from _relocations(state, [b for b in state.brokers if state.role[b] is PlannedRole.LEAVES])
    else:
        yield from _spreading(state)


def pairs(state: BalanceState, goal: Goal) -> Iterator[tuple[int, int]]:
    """(broker that gives, broker that gets): at least one of both is outside the band of the goal."""
    which = LOAD_OF[goal]
    giving = [b for b in state.brokers if state.role[b] in (PlannedRole.TAKES_PART, PlannedRole.GIVES)]
    heaviest = sorted(giving, key=lambda b: (-state.loads[b][which], b))[:_BROKERS]
    taking = [b for b in state.brokers if state.role[b] is PlannedRole.TAKES_PART]
    lightest = sorted(taking, key=lambda b: (state.loads[b][which], b))[:_BROKERS]
    for heavy in heaviest:
        above = state.loads[heavy][which] > state.band(goal, heavy)[1]
        for light in lightest:
            below = state.loads[light][which] < state.band(goal, light)[0]
            if (above or below) and state.loads[heavy][which] > state.loads[light][which]:
                yield heavy, light


def actions_between(state: BalanceState, goal: Goal, heavy: int, light: int) -> Iterator[Action]:
    """Actions that bring some of the load of one broker to the other, touch no third broker, and may improve a goal."""
    may_improve = state.improvement_between(heavy, light)
    yield from _moves(state, goal, heavy, light, may_improve)
    if goal not in (Goal.REPLICA_CAPACITY, Goal.REPLICAS):  # a swap does not change the number of replicas
        yield from _swaps(state, goal, heavy, light, may_improve)


def _relocations(state: BalanceState, leaving: list[int]) -> Iterator[Action]:
    """A replica of a broker that leaves goes to the broker that is best for the racks and has the fewest replicas. The
    new replica is the last one, so that a replica that has the records is the preferred leader; unless that one is on
    a broker that gets no leaderships."""
    for broker in leaving:
        for tp in sorted(state.on[broker]):
            kept = tuple(b for b in state.replicas[tp] if b != broker)
            takers = [b for b in state.brokers if state.role[b] is PlannedRole.TAKES_PART and b not in kept]
            takers.sort(key=lambda b: (-state.spread((*kept, b)), *_fullness(state, b)))
            is_first = bool(kept) and state.role[kept[0]] is PlannedRole.EXCLUDED and state.replicas[tp][0] == broker
            for taker in takers:
                yield {tp: (taker, *kept) if is_first else (*kept, taker)}


def _spreading(state: BalanceState) -> Iterator[Action]:
    """Of two replicas on one rack, one goes to another rack; the leader stays if it can."""
    takers = [b for b in state.brokers if state.role[b] is PlannedRole.TAKES_PART]
    for tp in state.replicas:
        replicas = state.replicas[tp]
        if state.cluster.partitions[tp].is_fixed or not state.spread_missing(replicas):
            continue
        takers.sort(key=lambda b: _fullness(state, b))
        for broker in reversed(replicas):
            for taker in takers:
                if taker not in replicas:
                    changed = _replaced(replicas, broker, taker)
                    if state.spread(changed) > state.spread(state.replicas[tp]):
                        yield {tp: changed}


def _fullness(state: BalanceState, broker: int) -> tuple[int, int, int]:
    return state.loads[broker][REPLICAS], state.loads[broker][SIZE], broker


def _moves(state: BalanceState, goal: Goal, heavy: int, light: int, may_improve: MayImprove) -> Iterator[Action]:
    """The preferred leadership, which costs nothing, or a replica goes from one broker to the other."""
    which, shares, replicas = LOAD_OF[goal], state.shares, state.replicas
    if which in (LEADERS, RATE_OUT):
        # Only what a leader has more than a follower goes; which partitions suit is judged by all that the leader has.
        shared = [(shares[tp][True][which], tp) for tp in state.on[heavy] & state.on[light] if replicas[tp][0] == heavy]
        for tp in _most_suitable(state, goal, heavy, light, shared):
            follower, leader = shares[tp]
            if may_improve([more - less for more, less in zip(leader, follower, strict=True)]):
                yield {tp: _led_by(replicas[tp], light)}
    for tp in _most_suitable(state, goal, heavy, light, _movable(state, which, heavy, light)):
        if may_improve(shares[tp][replicas[tp][0] == heavy]):
            yield {tp: _replaced(replicas[tp], heavy, light)}


def _swaps(state: BalanceState, goal: Goal, heavy: int, light: int, may_improve: MayImprove) -> Iterator[Action]:
    """A replica of one broker and a smaller one of the other change places."""
    which, shares, replicas = LOAD_OF[goal], state.shares, state.replicas
    given = sorted((-load, tp) for load, tp in _movable(state, which, heavy, light))[:_SWAPPED]
    got = sorted(_movable(state, which, light, heavy))[:_SWAPPED]
    for negative, tp in given:
        ours = shares[tp][replicas[tp][0] == heavy]
        for load, other in got:
            if -negative <= load:
                break
            theirs = shares[other][replicas[other][0] == light]
            if may_improve([more - less for more, less in zip(ours, theirs, strict=True)]):
                yield {
                    tp: _replaced(replicas[tp], heavy, light),
                    other: _replaced(replicas[other], light, heavy),
                }


def _movable(state: BalanceState, which: int, broker: int, without: int) -> list[tuple[int, TopicPartition]]:
    """The partitions that may go from one broker to another one that does not have them, with their load."""
    shares, replicas = state.shares, state.replicas
    found = (state.on[broker] - state.on[without]) - state.fixed
    return [(shares[tp][replicas[tp][0] == broker][which], tp) for tp in found]


def _most_suitable(
    state: BalanceState, goal: Goal, heavy: int, light: int, loads: list[tuple[int, TopicPartition]]
) -> list[TopicPartition]:
    """The partitions whose load is nearest to half of the difference of the two brokers; of those, the smallest."""
    which, shares = LOAD_OF[goal], state.shares
    half = (state.loads[heavy][which] - state.loads[light][which]) / 2
    ranked = sorted((abs(load - half), shares[tp][False][SIZE], tp) for load, tp in loads if load)
    return [tp for _, _, tp in ranked[:_CANDIDATES]]


def _replaced(replicas: Replicas, old: int, new: int) -> Replicas:
    return tuple(new if b == old else b for b in replicas)


def _led_by(replicas: Replicas, leader: int) -> Replicas:
    """The same replicas; the leader and the first one change places."""
    place = replicas.index(leader)
    return (leader, *replicas[1:place], replicas[0], *replicas[place + 1 :])
