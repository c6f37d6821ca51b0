"""Machine: the states of a replica, and the votes it counts (Kafka's UnattachedState, FollowerState, ...).

              +------------ a higher epoch, without a leader, from anywhere ------------+
              v                                                                         |
        Unattached --timeout--> Prospective --majority would--> Candidate --majority--> Leader --resigns--> Resigned
              ^                   |     ^                          |                                          |
              |      no majority  |     +-------- no majority -----+                                          |
              +-------------------+                                                                           |
              +------------------------------- timeout, into the next epoch ----------------------------------+

        any --hears of a leader of its epoch or a later one--> Follower --leader silent--> Prospective

A replica that is not among the voters is an observer: only ever Unattached or Follower.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from barnabas.server.raft.machine.progress import Progress
from barnabas.server.raft.machine.values import OffsetAndEpoch, ReplicaKey, Voters


class Unattached(Struct):
    """Knows of no leader that it could follow. May have voted in this epoch."""

    election_deadline_ms: int


class Tally(Struct):
    """The votes of one election, by voter id."""

    voters: Voters
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)

    def record(self, voter_id: int, granted: bool) -> None:
        if self.voters.get(voter_id) is not None:
            (self.granted if granted else self.rejected).add(voter_id)

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        """So many refused that the rest cannot make a majority."""
        return len(self.voters.members) - len(self.rejected) < self.voters.majority

    @property
    def silent(self) -> tuple[ReplicaKey, ...]:
        return tuple(key for key in self.voters.keys if key.id not in self.granted and key.id not in self.rejected)


class Prospective(Struct):
    """Asks whether it would be elected (KIP-996), in the epoch that it knows, so that asking disturbs nobody."""

    election_deadline_ms: int
    tally: Tally
    retries: int = 0


class Candidate(Struct):
    """Has voted for itself in a new epoch. After a lost election it waits, so that candidates do not keep colliding."""

    election_deadline_ms: int
    tally: Tally
    retries: int = 0
    backoff_until_ms: int | None = None


class Follower(Struct):
    """Fetches from a leader it knows."""

    fetch_deadline_ms: int
    membership_check_ms: int
    """When to look whether the voters still say the right thing about this node (KIP-853)."""
    has_fetched: bool = False
    """Heard of the leader by a successful fetch; one who has does not encourage others to replace it (KIP-996)."""
    refused: bool = False
    """The leader's host has said that its process does not run."""
    snapshot: OffsetAndEpoch | None = None
    """Being fetched, and how much of it is there."""
    snapshot_position: int = 0
    snapshot_complete: bool = False


class Leader(Struct):
    progress: Progress
    epoch_start_offset: int
    next_announcement_ms: int


class Resigned(Struct):
    """Was the leader of this epoch, and will not be again, which also keeps it from voting for another in it."""

    election_deadline_ms: int
    successors: tuple[ReplicaKey, ...] = ()
    unacknowledged: set[int] = field(default_factory=set)
    for_good: bool = False


State: TypeAlias = Unattached | Prospective | Candidate | Follower | Leader | Resigned
