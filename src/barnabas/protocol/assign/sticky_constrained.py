"""Machine: sticky assignment when all members subscribe to the same topics: one pass over members, one over partitions.

Each member gets `low` or `high = low + 1` partitions, or exactly `low` if the number divides evenly. First each member
keeps its owned partitions up to that number. Then the remaining partitions go to the members with too few.
(AbstractStickyAssignor.ConstrainedAssignmentBuilder.)
"""

from __future__ import annotations

from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import Assignment
from barnabas.protocol.assign.sticky_state import StickyInput


class ConstrainedAssignment:
    """Computes one assignment."""

    def __init__(self, inputs: StickyInput, disputed: set[TopicPartition]) -> None:
        self._inputs = inputs
        self._racks = inputs.racks
        self._disputed = disputed
        members, total = len(inputs.owned), sum(inputs.topics.values())
        self._low, self._highs_wanted = divmod(total, members) if members else (0, 0)
        self._high = self._low + (self._highs_wanted > 0)
        self._highs = 0
        """The number of members with more than `low` partitions."""
        self._assignment: Assignment = {member_id: [] for member_id in inputs.owned}
        self._below_low: list[str] = []
        self._at_low: list[str] = []
        """The members with exactly `low` partitions that may get one more."""
        self._given_up: dict[TopicPartition, str] = {}
        self.transferring: dict[TopicPartition, str] = {}

    def build(self) -> Assignment:
        self._keep_owned()
        kept = {tp for partitions in self._assignment.values() for tp in partitions}
        left = [tp for tp in self._inputs.partitions(sorted(self._inputs.topics)) if tp not in kept]
        self._below_low.sort()
        self._at_low.sort()
        left = self._racks.scarcest_first(left)
        if self._racks.consumers:
            left = self._deal_near(left)
        self._deal(left)
        return self._assignment

    def _keep_owned(self) -> None:
        for member_id, claimed in self._inputs.owned.items():
            owned = []
            for tp in sorted(claimed, key=lambda tp: (tp.partition, tp.topic)):
                if self._racks.mismatch(member_id, tp):
                    self._given_up[tp] = member_id
                elif tp not in self._disputed:
                    owned.append(tp)
            if len(owned) < self._low:
                keep = len(owned)
                self._below_low.append(member_id)
            elif len(owned) >= self._high and self._highs < self._highs_wanted:
                keep = self._high
                self._count_high()
            else:
                keep = self._low
                if self._highs < self._highs_wanted:
                    self._at_low.append(member_id)
            self._assignment[member_id].extend(owned[:keep])
            self._given_up.update(dict.fromkeys(owned[keep:], member_id))

    def _count_high(self) -> None:
        self._highs += 1
        if self._highs == self._highs_wanted:
            self._at_low.clear()

    def _deal_near(self, left: list[TopicPartition]) -> list[TopicPartition]:
        """Assign each partition to the next member in a rack that holds a replica of it. Returns the partitions for
        which there is no such member."""
        remaining = []
        turn = 0
        below, at = self._below_low, self._at_low
        for tp in left:
            index = self._racks.next_consumer(tp, below, turn)
            if index >= 0:
                member_id = below[index]
                count = len(self._assignment[member_id]) + 1
                if count >= self._low:
                    below.remove(member_id)
                    if count < self._high and self._highs < self._highs_wanted:
                        at.append(member_id)
                else:
                    index += 1
                turn = index % len(below) if below else 0
                self._give(tp, member_id)
                continue
            index = self._racks.next_consumer(tp, at, 0)
            if index < 0:
                remaining.append(tp)
                continue
            member_id = at[index]
            if len(self._assignment[member_id]) + 1 == self._high:
                del at[index]
                self._count_high()
            self._give(tp, member_id)
        return remaining

    def _deal(self, left: list[TopicPartition]) -> None:
        """Assign partitions in rounds to members below `low`, then one each to members at `low`."""
        below, at = self._below_low, self._at_low
        turn = 0
        for tp in left:
            if below:
                turn %= len(below)
                member_id = below[turn]
                if self._give(tp, member_id) == self._low:
                    del below[turn]
                    at.append(member_id)
                else:
                    turn += 1
            else:
                self._give(tp, at.pop(0))

    def _give(self, tp: TopicPartition, member_id: str) -> int:
        partitions = self._assignment[member_id]
        partitions.append(tp)
        if self._given_up.get(tp, member_id) != member_id or tp in self._disputed:
            self.transferring[tp] = member_id
        return len(partitions)
