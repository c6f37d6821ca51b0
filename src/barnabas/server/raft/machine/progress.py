"""Machine: the replicas' end offsets, as their leader knows them, and the high watermark that follows from them.

A fetch from offset n acknowledges that the replica's log is durable up to n. The high watermark is the largest offset
that a majority of the voters has acknowledged. The high watermark only rises to offsets above the start of the
leader's own epoch (section 5.4.2 of the Raft paper).
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
        """Record a fetch. If `offset` reaches the leader's end, the replica is caught up now. If `offset` reaches the
        end that the leader had at the replica's previous fetch, the replica was caught up at the time of that fetch."""
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self.last_fetch_leader_end > 0 and offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = offset
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)
        self.last_fetch_leader_end = leader_end


class EpochProgress:
    """The replicas as the leader of one epoch knows them."""

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
        """Change the voters. Each replica keeps its progress, also when the new voters name its directory for the first
        time."""
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
        """Record a valid fetch. Returns whether the high watermark rose."""
        self.replica(key).on_fetch(offset, leader_end, now_ms)
        self.on_contact(key, now_ms)
        return self.is_voter(key) and self._advance()

    def on_contact(self, key: ReplicaKey, now_ms: int) -> None:
        """Record that a replica has sent a Fetch or FetchSnapshot. Each time a majority of the voters, including the
        leader, has done so, the check-quorum deadline is extended."""
        if not self.is_voter(key):
            return
        self._fetched.add(key.id)
        others = len(self.voters) // 2 + 1 - (self._me.id in self.voters)
        if len(self._fetched) >= others:
            self._fetched.clear()
            self.quorum_deadline_ms = now_ms + self._check_quorum_ms

    def has_lost_quorum(self, now_ms: int) -> bool:
        return now_ms >= self.quorum_deadline_ms and not self._is_only_voter()

    def next_check_ms(self) -> int | None:
        return None if self._is_only_voter() else self.quorum_deadline_ms

    def on_local_end(self, synced_offset: int) -> bool:
        """Record the end of the leader's own durable log. Returns whether the high watermark rose."""
        mine = self.replica(self._me)
        mine.end_offset = max(mine.end_offset, synced_offset)
        return self._advance()

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, those with the largest end offset first."""
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

    def _is_only_voter(self) -> bool:
        return len(self.voters) == 1 and self._me.id in self.voters

    def _advance(self) -> bool:
        """Raise the high watermark. A change of the voters can make the majority's offset smaller, which has no
        effect."""
        reached = majority_offset([progress.end_offset for progress in self.voters.values()])
        if reached <= self._epoch_start_offset or reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True


def majority_offset(ends: list[int]) -> int:
    """The largest offset that more than half of `ends` have reached."""
    return sorted(ends, reverse=True)[len(ends) // 2]
