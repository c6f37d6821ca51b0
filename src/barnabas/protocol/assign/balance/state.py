"""Machine: the load of each broker while a plan is made, and by how much the goals are missed.

An *action* is a set of new replicas for one or two partitions. `BalanceState.gain` computes what an action would
change; `BalanceState.apply` carries it out. Only the brokers that an action touches are computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor
from typing import Final

from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.balance.values import (
    HARD_GOALS,
    BalanceOptions,
    BrokerLoad,
    ClusterLoad,
    Goal,
    PartitionLoad,
    PlannedRole,
    Replicas,
)

Action = Mapping[TopicPartition, Replicas]
Loads = list[int]

REPLICAS, LEADERS, SIZE, RATE_IN, RATE_OUT = range(5)
LOAD_OF: Final = {
    Goal.REPLICA_CAPACITY: REPLICAS,
    Goal.DISK_CAPACITY: SIZE,
    Goal.REPLICAS: REPLICAS,
    Goal.DISK: SIZE,
    Goal.NETWORK_IN: RATE_IN,
    Goal.NETWORK_OUT: RATE_OUT,
    Goal.LEADERS: LEADERS,
}
"""The load that a goal measures, as an index of `Loads`."""
_SLACK: Final = {Goal.DISK: 16 * 1024 * 1024, Goal.NETWORK_IN: 64 * 1024, Goal.NETWORK_OUT: 64 * 1024}
"""A difference from the average that is too small to copy data for, in the goal's unit."""
_NO_LIMIT: Final = 1 << 62


class BalanceState:
    """The replicas of all partitions, and sums over them."""

    def __init__(self, cluster: ClusterLoad, options: BalanceOptions) -> None:
        self.cluster = cluster
        self.options = options
        self.goals = (*HARD_GOALS, *options.goals)
        self.replicas = {tp: partition.replicas for tp, partition in sorted(cluster.partitions.items())}
        self.brokers = sorted({*cluster.brokers, *(b for replicas in self.replicas.values() for b in replicas)})
        self.role = {b: cluster.brokers[b].role if b in cluster.brokers else PlannedRole.EXCLUDED for b in self.brokers}
        self.rack = {b: cluster.brokers[b].rack if b in cluster.brokers else None for b in self.brokers}
        self.loads: dict[int, Loads] = {b: [0] * 5 for b in self.brokers}
        self.on: dict[int, set[TopicPartition]] = {b: set() for b in self.brokers}
        self.shares = {tp: _shares(partition) for tp, partition in cluster.partitions.items()}
        """For each partition what a follower adds to the load of its broker, and what the leader adds."""
        self.fixed = {tp for tp, partition in cluster.partitions.items() if partition.is_fixed}
        for tp, replicas in self.replicas.items():
            self._add(tp, replicas, 1)
        self._is_any_leaving = PlannedRole.LEAVES in self.role.values()
        self.version = dict.fromkeys(self.brokers, 0)
        """Changes when a partition of the broker has changed."""
        self._spreads: dict[Replicas, int] = {}
        staying = {self._rack_of(b) for b in self.brokers if self.role[b] is not PlannedRole.LEAVES}
        self._racks = len(staying)
        self.bands = {goal: {b: self._band(goal, b) for b in self.brokers} for goal in self.goals if goal in LOAD_OF}
        self.imbalances = tuple(self._imbalance(goal) for goal in self.goals)
        """By how much the cluster misses each goal, in the order of `goals`."""
        self.moved: dict[TopicPartition, int] = {}
        """The partitions whose replicas differ from those at the start, and the bytes to copy for each."""

    def spread(self, replicas: Replicas) -> int:
        """The number of racks that hold replicas. A broker without a rack is a rack of its own, and one that leaves
        does not count."""
        found = self._spreads.get(replicas)
        if found is None:
            racks = {self._rack_of(b) for b in replicas if self.role[b] is not PlannedRole.LEAVES}
            found = self._spreads[replicas] = len(racks)
        return found

    def spread_missing(self, replicas: Replicas) -> int:
        """The number of racks that the partition could have besides those that hold its replicas now."""
        return min(len(replicas), self._racks) - self.spread(replicas)

    def band(self, goal: Goal, broker: int) -> tuple[int, int]:
        """The smallest and the largest load with which the broker reaches the goal."""
        return self.bands[goal][broker]

    def imbalance(self, goal: Goal) -> int:
        """By how much the cluster misses the goal."""
        return self.imbalances[self.goals.index(goal)]

    def _imbalance(self, goal: Goal) -> int:
        match goal:
            case Goal.PLACEMENT:
                return sum(self._misplaced(replicas) for replicas in self.replicas.values())
            case Goal.RACKS:
                return sum(
                    self.spread_missing(replicas)
                    for tp, replicas in self.replicas.items()
                    if not self.cluster.partitions[tp].is_fixed
                )
        return sum(self._outside(goal, b, self.loads[b][LOAD_OF[goal]]) for b in self.brokers)

    def gain(self, action: Action) -> tuple[int, ...]:
        """The change of each goal's imbalance, in the order of the goals: below 0 is better."""
        changes = self._changes(action)
        return tuple(self._gain_of(goal, action, changes) for goal in self.goals)

    def improves(self, action: Action) -> bool:
        """Whether the first imbalance that the action changes becomes smaller: `gain(action)` is below zeros."""
        changes = self._changes(action)
        for goal in self.goals:
            if gain := self._gain_of(goal, action, changes):
                return gain < 0
        return False

    def improvement_between(self, heavy: int, light: int) -> Callable[[Sequence[int]], bool]:
        """A function that says of some load whether an action which brings it from one broker to the other, and touches
        no third one, may improve the first imbalance that it changes.

        It is called for every action that is thought of, so it compares numbers of two brokers only. Whether the action
        is allowed, and what it does to the racks, is left to `is_allowed` and `improves`.
        """
        if self.imbalance(Goal.RACKS):
            return lambda load: True
        measured = [
            (LOAD_OF[goal], self.loads[heavy][LOAD_OF[goal]], *self.bands[goal][heavy],
             self.loads[light][LOAD_OF[goal]], *self.bands[goal][light])
            for goal in self.goals if goal in LOAD_OF
        ]  # fmt: skip
        before = [
            max(given - high, low - given, 0) + max(got - high_of_light, low_of_light - got, 0)
            for _, given, low, high, got, low_of_light, high_of_light in measured
        ]
        rows = list(zip(measured, before, strict=True))

        def may_improve(load: Sequence[int]) -> bool:
            for (which, given, low, high, got, low_of_light, high_of_light), now in rows:
                if amount := load[which]:
                    less, more = given - amount, got + amount
                    then = less - high if less > high else low - less if less < low else 0
                    if more > high_of_light:
                        then += more - high_of_light
                    elif more < low_of_light:
                        then += low_of_light - more
                    if then != now:
                        return then < now
            return False

        return may_improve

    def _gain_of(self, goal: Goal, action: Action, changes: Mapping[int, Loads]) -> int:
        if goal is Goal.PLACEMENT:
            return sum(self._misplaced(new) - self._misplaced(self.replicas[tp]) for tp, new in action.items())
        if goal is Goal.RACKS:
            pairs = ((self.replicas[tp], new) for tp, new in action.items())
            return sum(self.spread_missing(new) - self.spread_missing(old) for old, new in pairs)
        which, gain = LOAD_OF[goal], 0
        for b, change in changes.items():
            if change[which]:
                now = self.loads[b][which]
                gain += self._outside(goal, b, now + change[which]) - self._outside(goal, b, now)
        return gain

    def is_allowed(self, action: Action) -> bool:
        """Whether the action keeps the hard limits and the limits of the plan."""
        for tp, new in action.items():
            old = self.replicas[tp]
            if self.cluster.partitions[tp].is_fixed or self.spread(new) < self.spread(old):
                return False
            if any(self.role[b] is not PlannedRole.TAKES_PART for b in new if b not in old):
                return False
            if any(self.role[b] is PlannedRole.EXCLUDED for b in old if b not in new):
                return False
            if new[0] != old[0] and not self._may_lead_after(old[0], new[0]):
                return False
        return self.has_room(action) and self._is_within_limits(action)

    def apply(self, action: Action) -> None:
        self.imbalances = tuple(now + gain for now, gain in zip(self.imbalances, self.gain(action), strict=True))
        for tp, new in action.items():
            for b in {*self.replicas[tp], *new}:
                self.version[b] += 1
            self._add(tp, self.replicas[tp], -1)
            self.replicas[tp] = new
            self._add(tp, new, 1)
            if new == self.cluster.partitions[tp].replicas:
                self.moved.pop(tp, None)
            else:
                self.moved[tp] = self.bytes_to_copy(tp, new)

    def bytes_to_copy(self, tp: TopicPartition, new: Replicas) -> int:
        """The bytes that are copied if the partition gets these replicas."""
        partition = self.cluster.partitions[tp]
        return partition.size * sum(b not in partition.replicas for b in new)

    def broker_loads(self) -> dict[int, BrokerLoad]:
        return {b: BrokerLoad(*self.loads[b]) for b in self.brokers}

    def share(self, tp: TopicPartition, replicas: Replicas, broker: int) -> Sequence[int]:
        """What the partition adds to the load of a broker among these replicas.

        Every replica receives what producers write; the leader also sends it to the followers and to the consumers.
        """
        return self.shares[tp][replicas[0] == broker]

    def _add(self, tp: TopicPartition, replicas: Replicas, sign: int) -> None:
        for b in replicas:
            loads = self.loads[b]
            for which, amount in enumerate(self.share(tp, replicas, b)):
                loads[which] += sign * amount
            if sign > 0:
                self.on[b].add(tp)
            else:
                self.on[b].discard(tp)

    def _changes(self, action: Action) -> dict[int, Loads]:
        """Broker -> the change of its load. Brokers that keep the same part of a partition are left out."""
        changes: dict[int, Loads] = {}
        for tp, new in action.items():
            old = self.replicas[tp]
            for replicas, others, sign in ((old, new, -1), (new, old, 1)):
                for b in replicas:
                    if b not in others or (old[0] != new[0] and b in (old[0], new[0])):
                        change = changes.setdefault(b, [0] * 5)
                        for which, amount in enumerate(self.share(tp, replicas, b)):
                            change[which] += sign * amount
        return changes

    def _may_lead_after(self, old: int, new: int) -> bool:
        """Whether a preferred leadership may go from one broker to the other."""
        if self.role[old] is PlannedRole.LEAVES:
            return self.role[new] is not PlannedRole.EXCLUDED
        return self.role[old] is not PlannedRole.EXCLUDED and self.role[new] is PlannedRole.TAKES_PART

    def has_room(self, action: Action) -> bool:
        """Whether no broker that gets more than it has exceeds a hard limit."""
        for b, change in self._changes(action).items():
            for goal in (Goal.REPLICA_CAPACITY, Goal.DISK_CAPACITY):
                which = LOAD_OF[goal]
                if change[which] > 0 and self.loads[b][which] + change[which] > self.band(goal, b)[1]:
                    return False
        return True

    @property
    def is_limited(self) -> bool:
        return self.options.moves_max is not None or self.options.bytes_max is not None

    def _is_within_limits(self, action: Action) -> bool:
        if not self.is_limited:
            return True
        moved = dict(self.moved)
        for tp, new in action.items():
            moved.pop(tp, None)
            if new != self.cluster.partitions[tp].replicas:
                moved[tp] = self.bytes_to_copy(tp, new)
        moves_max, bytes_max = self.options.moves_max, self.options.bytes_max
        return (moves_max is None or len(moved) <= moves_max) and (
            bytes_max is None or sum(moved.values()) <= bytes_max
        )

    def _band(self, goal: Goal, broker: int) -> tuple[int, int]:
        """A band does not change while a plan is made, because moves do not change the sum of a load."""
        if goal is Goal.REPLICA_CAPACITY:
            return 0, self.options.replicas_max
        if goal is Goal.DISK_CAPACITY:
            found = self.cluster.brokers.get(broker)
            return 0, _NO_LIMIT if found is None or found.bytes_max is None else found.bytes_max
        balanced = [b for b in self.brokers if self.role[b] in (PlannedRole.TAKES_PART, PlannedRole.GIVES)]
        if broker not in balanced:
            return 0, _NO_LIMIT
        total = sum(self.loads[b][LOAD_OF[goal]] for b in self.brokers if self.role[b] is not PlannedRole.EXCLUDED)
        average = total / len(balanced)
        width = max(average * self.options.tolerance, _SLACK.get(goal, 0))
        # A count can always be the average rounded up or down, however small the tolerance is.
        return max(min(floor(average), ceil(average - width)), 0), max(ceil(average), floor(average + width))

    def _outside(self, goal: Goal, broker: int, load: int) -> int:
        low, high = self.bands[goal][broker]
        return max(load - high, low - load, 0)

    def _misplaced(self, replicas: Replicas) -> int:
        if not self._is_any_leaving:
            return 0
        return sum(self.role[b] is PlannedRole.LEAVES for b in replicas)

    def _rack_of(self, broker: int) -> str | int:
        rack = self.rack[broker]
        return broker if rack is None else rack


def _shares(partition: PartitionLoad) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a follower of the partition adds to the load of its broker, and what the leader adds."""
    sent = partition.rate_in * (len(partition.replicas) - 1) + partition.rate_out
    return (1, 0, partition.size, partition.rate_in, 0), (1, 1, partition.size, partition.rate_in, sent)
