"""Machine: the states of a replica, and the votes of an election (Kafka's UnattachedState, FollowerState, ...).

              +------------ a higher epoch, without a leader, from anywhere ------------+
              v                                                                         |
        Unattached --timeout--> Prospective --majority would--> Candidate --majority--> Leader --resigns--> Resigned
              ^                   |     ^                          |                                          |
              |      no majority  |     +-------- no majority -----+                                          |
              +-------------------+                                                                           |
              +------------------------------- timeout, into the next epoch ----------------------------------+

        any --learns of a leader of its epoch or a later one--> Follower --fetch timeout--> Prospective

After a lost pre-vote, a Prospective replica that knows the leader of its epoch becomes Follower again. A replica that
is not a voter is an observer, which is always Unattached or Follower.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from barnabas.server.raft.machine.progress import EpochProgress
from barnabas.server.raft.machine.values import OffsetAndEpoch, ReplicaKey, Voters


class Unattached(Struct):
    """Knows no leader that it can fetch from. May have voted in this epoch."""

    election_deadline_ms: int


class Tally(Struct):
    """The votes of one election, by voter id (Kafka's EpochElection)."""

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
        """Whether so many voters have rejected the vote that the remaining voters are not a majority."""
        return len(self.voters.members) - len(self.rejected) < self.voters.majority

    @property
    def unrecorded(self) -> tuple[ReplicaKey, ...]:
        return tuple(key for key in self.voters.keys if key.id not in self.granted and key.id not in self.rejected)


class Prospective(Struct):
    """Sends pre-votes (KIP-996). The epoch stays the same, so that a lost pre-vote does not disturb the leader."""

    election_deadline_ms: int
    tally: Tally
    retries: int = 0


class Candidate(Struct):
    """Has voted for itself in a new epoch. After a lost election, a candidate waits for a random backoff."""

    election_deadline_ms: int
    tally: Tally
    retries: int = 0
    backoff_until_ms: int | None = None


class Follower(Struct):
    """Fetches from a known leader."""

    fetch_deadline_ms: int
    membership_check_ms: int
    """The time of the next check whether the voters describe this node correctly (KIP-853)."""
    has_fetched: bool = False
    """Whether a fetch from this leader has succeeded. Such a follower rejects pre-votes (KIP-996)."""
    refused: bool = False
    """Whether the leader's host has refused a connection, and no replica has named this leader since."""
    snapshot: OffsetAndEpoch | None = None
    """The snapshot that is being fetched, or None. `snapshot_position` is the number of bytes fetched."""
    snapshot_position: int = 0
    snapshot_complete: bool = False


class Leader(Struct):
    """Accepts proposals, and responds to the other replicas' fetches."""

    progress: EpochProgress
    epoch_start_offset: int
    next_begin_quorum_epoch_ms: int


class Resigned(Struct):
    """Was the leader of this epoch. It neither leads again in this epoch nor votes for another candidate."""

    election_deadline_ms: int
    successors: tuple[ReplicaKey, ...] = ()
    unacknowledged: set[int] = field(default_factory=set)
    shutting_down: bool = False


State: TypeAlias = Unattached | Prospective | Candidate | Follower | Leader | Resigned
