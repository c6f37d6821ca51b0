"""Machine: how far each replica has come, as its leader knows, and what of the log is therefore committed.

A fetch from offset n says: everything before n is on my disk. The high watermark is the furthest offset that a majority
of the voters has reached, and counts only once it lies beyond the start of the leader's own epoch (Raft 5.4.2).
"""

from __future__ import annotations

from msgspec import Struct

from barnabas.server.raft.machine.values import NO_OFFSET, RaftConfig, ReplicaKey, Voters

OBSERVER_SESSION_MS = 300_000
CAUGHT_UP_WITHIN_MS = 3_600_000


class ReplicaProgress(Struct):
    key: ReplicaKey
    end_offset: int = NO_OFFSET
    last_fetch_ms: int = -1
    last_fetch_leader_end: int = NO_OFFSET
    last_caught_up_ms: int = -1

    def on_fetch(self, offset: int, leader_end: int, now_ms: int) -> None:
        """Caught up when it reaches the leader's end, or where that was at the fetch before."""
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self.last_fetch_leader_end > 0 and offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = offset
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)
        self.last_fetch_leader_end = leader_end


class Progress:
    """One leader's view of everybody, for one epoch."""

    def __init__(
        self, me: ReplicaKey, voters: Voters, epoch_start_offset: int, config: RaftConfig, now_ms: int
    ) -> None:
        self._me = me
        self._epoch_start_offset = epoch_start_offset
        self._check_quorum_ms = config.controller_quorum_fetch_timeout_ms * 3 // 2
        self._fetched: set[int] = set()
        self.quorum_deadline_ms = now_ms + self._check_quorum_ms
        self.high_watermark = NO_OFFSET
        self.voters: dict[int, ReplicaProgress] = {key.id: ReplicaProgress(key) for key in voters.keys}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}

    def set_voters(self, voters: Voters) -> None:
        """The voters changed: progress stays with its replica, also when the voters now say on which disk it is."""
        known = {progress.key: progress for progress in self.voters.values()} | self.observers
        self.voters = {}
        for key in voters.keys:
            progress = next(
                (known.pop(other) for other in sorted(known) if key.covers(other) or other.covers(key)), None
            )
            self.voters[key.id] = progress or ReplicaProgress(key)
            self.voters[key.id].key = key
        self.observers = known
        self._fetched &= set(self.voters)

    def is_voter(self, key: ReplicaKey) -> bool:
        progress = self.voters.get(key.id)
        return progress is not None and progress.key.covers(key)

    def replica(self, key: ReplicaKey) -> ReplicaProgress:
        if self.is_voter(key):
            return self.voters[key.id]
        return self.observers.setdefault(key, ReplicaProgress(key))

    def on_fetch(self, key: ReplicaKey, offset: int, leader_end: int, now_ms: int) -> bool:
        """A valid fetch; True if it raised the high watermark."""
        self.replica(key).on_fetch(offset, leader_end, now_ms)
        self.on_contact(key, now_ms)
        return self.is_voter(key) and self._advance()

    def on_contact(self, key: ReplicaKey, now_ms: int) -> None:
        """Check-quorum: once a majority has fetched, the leader may go on for another while."""
        if not self.is_voter(key):
            return
        self._fetched.add(key.id)
        others = len(self.voters) // 2 + 1 - (self._me.id in self.voters)
        if len(self._fetched) >= others:
            self._fetched.clear()
            self.quorum_deadline_ms = now_ms + self._check_quorum_ms

    def has_lost_quorum(self, now_ms: int) -> bool:
        return now_ms >= self.quorum_deadline_ms and not self._is_alone()

    def next_check_ms(self) -> int | None:
        return None if self._is_alone() else self.quorum_deadline_ms

    def on_local_end(self, synced_offset: int) -> bool:
        """The leader's own log, as far as it is durable; True if that raised the high watermark."""
        mine = self.replica(self._me)
        mine.end_offset = max(mine.end_offset, synced_offset)
        return self._advance()

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, furthest first."""
        others = [progress for progress in self.voters.values() if progress.key.id != self._me.id]
        return tuple(progress.key for progress in sorted(others, key=lambda p: (-p.end_offset, p.key)))

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        progress = self.observers.get(key)
        return (
            progress is not None
            and progress.last_caught_up_ms >= 0
            and progress.last_fetch_ms > now_ms - CAUGHT_UP_WITHIN_MS
        )

    def expire_observers(self, now_ms: int) -> None:
        for key in sorted(self.observers):
            if key != self._me and now_ms - self.observers[key].last_fetch_ms >= OBSERVER_SESSION_MS:
                del self.observers[key]

    def _is_alone(self) -> bool:
        return len(self.voters) == 1 and self._me.id in self.voters

    def _advance(self) -> bool:
        """A smaller value than before is possible when the voters change, and is not taken."""
        reached = majority_offset([progress.end_offset for progress in self.voters.values()])
        if reached <= self._epoch_start_offset or reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True


def majority_offset(ends: list[int]) -> int:
    """The largest offset that more than half have reached."""
    return sorted(ends, reverse=True)[len(ends) // 2]
