"""Machine: sticky assignment when members subscribe to different topics: hill climbing from the owned partitions.

Each unassigned partition goes to the subscribed member with the fewest partitions. Then single partitions move from
members with more to members with fewer, until no move improves the balance. A result that is not better than the start
is dropped. (AbstractStickyAssignor.GeneralAssignmentBuilder.)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from barnabas.core.hashing import java_string_hash
from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import Assignment, java_bucket
from barnabas.protocol.assign.sticky_state import Racks, StickyInput


class GeneralAssignment:
    """Computes one assignment. `previous` has the owners in older generations, to which a partition may return."""

    def __init__(self, inputs: StickyInput, previous: Mapping[TopicPartition, str]) -> None:
        self._topics = inputs.topics
        self._racks = inputs.racks
        self._previous = previous
        self._current = inputs.owned
        self._wants = {
            m: frozenset(t for t in topics if t in inputs.topics) for m, topics in inputs.subscriptions.items()
        }
        self._wanted_by: dict[str, list[str]] = {topic: [] for topic in inputs.topics}
        for member_id, topics in inputs.subscriptions.items():
            for topic in topics:
                if topic in self._wanted_by:
                    self._wanted_by[topic].append(member_id)
        self._owner = {tp: m for m, partitions in self._current.items() for tp in partitions}
        # Topics with few subscribers come first, because they have the fewest choices.
        self._all = inputs.partitions(sorted(inputs.topics, key=lambda t: (len(self._wanted_by[t]), t)))
        self._ranking: list[tuple[int, str]] = []
        """Members by number of partitions, then id; kept sorted."""
        self._moves = _Moves()
        self._must_revoke = False

    def build(self) -> Assignment:
        kept = self._keep_owned()
        unassigned = [tp for tp in self._all if tp not in kept]
        self._ranking = sorted((len(partitions), m) for m, partitions in self._current.items())
        if self._ranking:
            self._balance(unassigned)
        return self._current

    def _keep_owned(self) -> set[TopicPartition]:
        kept: set[TopicPartition] = set()
        for member_id, partitions in self._current.items():
            for tp in list(partitions):
                if tp.topic not in self._wants[member_id] or self._racks.mismatch(member_id, tp):
                    partitions.remove(tp)
                    self._must_revoke = True
                else:
                    kept.add(tp)
        return kept

    def _balance(self, unassigned: list[TopicPartition]) -> None:
        initializing = self._ranking[-1][0] == 0
        remaining = unassigned
        if self._racks.consumers:
            remaining = [tp for tp in unassigned if not self._try_assign(tp, self._racks)]
        for tp in remaining:
            self._try_assign(tp, None)
        fixed = {t for t, members in self._wanted_by.items() if len(members) < 2}
        movable = [tp for tp in self._all if tp.topic not in fixed]
        unassigned = [tp for tp in unassigned if tp.topic not in fixed]
        settled: Assignment = {}
        for member_id in self._wants:
            if not self._may_take_part(member_id):
                self._unrank(member_id)
                settled[member_id] = self._current.pop(member_id)
        if self._ranking:
            before = {m: list(partitions) for m, partitions in self._current.items()}
            if not self._must_revoke:
                self._reassign(unassigned)
            moved = self._reassign(movable)
            if not initializing and moved and _imbalance(self._current) >= _imbalance(before):
                self._current.clear()
                self._current.update(before)
        self._current.update(settled)

    def _try_assign(self, tp: TopicPartition, racks: Racks | None) -> bool:
        for _, member_id in self._ranking:
            if tp.topic in self._wants[member_id] and (racks is None or not racks.mismatch(member_id, tp)):
                self._unrank(member_id)
                self._current[member_id].append(tp)
                self._owner[tp] = member_id
                self._rank(member_id)
                return True
        return False

    def _may_take_part(self, member_id: str) -> bool:
        """Whether the member lacks a partition that it could have, or has one that another member could have."""
        current = self._current[member_id]
        if len(current) < self._most(member_id):
            return True
        return any(len(self._wanted_by[tp.topic]) >= 2 for tp in current)

    def _most(self, member_id: str) -> int:
        return sum(self._topics[topic] for topic in self._wants[member_id])

    def _is_balanced(self) -> bool:
        if self._ranking[0][0] >= self._ranking[-1][0] - 1:
            return True
        owner = {tp: m for m, partitions in self._current.items() for tp in partitions}
        for count, member_id in self._ranking:
            if count == self._most(member_id):
                continue
            for topic in self._wants[member_id]:
                for p in range(self._topics[topic]):
                    other = owner.get(TopicPartition(topic, p))
                    if other is not None and other != member_id and count + 1 < len(self._current[other]):
                        return False
        return True

    def _reassign(self, candidates: list[TopicPartition]) -> bool:
        """Move partitions to members with fewer, until none moves or the assignment is balanced. Returns whether any
        moved."""
        any_moved = False
        moved = True
        while moved:
            moved = False
            for tp in candidates:
                if self._is_balanced():
                    break
                target = self._better_owner(tp)
                if target is not None:
                    self._move(tp, target)
                    moved = any_moved = True
        return any_moved

    def _better_owner(self, tp: TopicPartition) -> str | None:
        """The member that should own the partition instead: a subscribed member with at least two partitions fewer
        than the owner. None if there is no such member."""
        load = len(self._current[self._owner[tp]])
        previous = self._previous.get(tp)
        # Java does not check whether the earlier owner still subscribes, and may assign it a topic without a
        # subscription.
        if (
            previous is not None
            and previous in self._current
            and tp.topic in self._wants[previous]
            and load > len(self._current[previous]) + 1
        ):
            return previous
        # With racks, Java first searches members with fewer partitions in the partition's racks, but then moves the
        # partition to the subscribed member with the fewest anyway, so that one search is enough.
        if not any(m in self._current and load > len(self._current[m]) + 1 for m in self._wanted_by[tp.topic]):
            return None
        return next(m for _, m in self._ranking if tp.topic in self._wants[m])

    def _move(self, tp: TopicPartition, target: str) -> None:
        tp = self._moves.instead_of(tp, self._owner[tp], target)
        source = self._owner[tp]
        self._unrank(source)
        if target != source:
            self._unrank(target)
        self._moves.record(tp, source, target)
        self._current[source].remove(tp)
        self._current[target].append(tp)
        self._owner[tp] = target
        self._rank(target)
        if target != source:
            self._rank(source)

    def _rank(self, member_id: str) -> None:
        insort(self._ranking, (len(self._current[member_id]), member_id))

    def _unrank(self, member_id: str) -> None:
        entry = (len(self._current[member_id]), member_id)
        index = bisect_left(self._ranking, entry)
        if index < len(self._ranking) and self._ranking[index] == entry:
            del self._ranking[index]


class _Moves:
    """Records all moves, so that two members do not swap two partitions of one topic."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, tuple[str, str]] = {}
        self._by_pair: dict[tuple[str, str, str], dict[TopicPartition, None]] = {}

    def record(self, tp: TopicPartition, source: str, target: str) -> None:
        before = self._by_partition.pop(tp, None)
        if before is not None:
            source_before, target_before = before
            pair = self._by_pair[(tp.topic, source_before, target_before)]
            del pair[tp]
            if not pair:
                del self._by_pair[(tp.topic, source_before, target_before)]
            if source_before == target:
                return
            source = source_before
        self._by_partition[tp] = (source, target)
        self._by_pair.setdefault((tp.topic, source, target), {})[tp] = None

    def instead_of(self, tp: TopicPartition, source: str, target: str) -> TopicPartition:
        """The partition to move from `source` to `target` instead of `tp`, so that two members do not swap partitions:
        one of the same topic that was moved from `target` to `source` before, or `tp` itself if there is none.
        """
        if tp in self._by_partition:
            source = self._by_partition[tp][0]
        reverse = self._by_pair.get((tp.topic, target, source))
        return min(reverse, key=lambda moved: java_bucket(_java_hash(moved), len(reverse))) if reverse else tp


def _java_hash(tp: TopicPartition) -> int:
    """`TopicPartition.hashCode`."""
    return 31 * (31 + tp.partition) + java_string_hash(tp.topic)


def _imbalance(assignment: Assignment) -> int:
    """The sum of the differences in load over all pairs of members; 0 if all members have equal load."""
    loads = sorted(map(len, assignment.values()))
    return sum(load * (2 * i - len(loads) + 1) for i, load in enumerate(loads))
