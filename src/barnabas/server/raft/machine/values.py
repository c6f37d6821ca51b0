"""Value: replicas, voters, batches, control records, and the durable state of a replica."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from msgspec import Struct

from barnabas.core.buffers import Buffer

NO_DIRECTORY: Final = UUID(int=0)
NO_NODE: Final = -1
NO_OFFSET: Final = -1
HIGH_WATERMARK_NOT_SENT: Final = 0x7FFFFFFFFFFFFFFF
"""The high watermark in a Fetch whose sender does not state one (KIP-1166)."""


class OffsetAndEpoch(Struct, frozen=True, order=True):
    """An end of a log: `offset` is the next offset, `epoch` the epoch of the last record before it. Identifies
    snapshots."""

    epoch: int
    offset: int

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


ORIGIN: Final = OffsetAndEpoch(0, 0)


class RaftEndpoint(NamedTuple):
    """The address of one listener of a node."""

    listener: str
    host: str
    port: int


Endpoints: TypeAlias = tuple[RaftEndpoint, ...]


class ReplicaKey(Struct, frozen=True, order=True):
    """The identity of a replica: a node id and a directory id (KIP-853). A node with a new disk is another replica.

    `NO_DIRECTORY` matches any directory, as in a quorum of kraft.version 0.
    """

    id: int
    directory_id: UUID = NO_DIRECTORY

    def covers(self, other: ReplicaKey) -> bool:
        """Whether `other` can be this replica: the same node, and the same directory if this key has one."""
        return self.id == other.id and (self.directory_id in (NO_DIRECTORY, other.directory_id))

    def __str__(self) -> str:
        return str(self.id) if self.directory_id == NO_DIRECTORY else f"{self.id}/{self.directory_id.int:x}"


class VoterNode(Struct, frozen=True):
    """A voter (Kafka's VoterSet.VoterNode), its endpoints, and the range of kraft.version that it supports."""

    key: ReplicaKey
    endpoints: Endpoints = ()
    min_version: int = 0
    max_version: int = 1


class Voters(Struct, frozen=True):
    """The set of voters, in the order of their ids (Kafka's VoterSet). A change returns a new set."""

    members: tuple[VoterNode, ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter.key.id for voter in self.members)

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        return tuple(voter.key for voter in self.members)

    @property
    def majority(self) -> int:
        return len(self.members) // 2 + 1

    def get(self, node_id: int) -> VoterNode | None:
        return next((voter for voter in self.members if voter.key.id == node_id), None)

    def has(self, key: ReplicaKey) -> bool:
        voter = self.get(key.id)
        return voter is not None and voter.key.covers(key)

    def is_only(self, key: ReplicaKey) -> bool:
        return len(self.members) == 1 and self.members[0].key.covers(key)

    def add(self, voter: VoterNode) -> Voters | None:
        """The set with `voter` added. None if the set already has a voter with that id, even with another directory,
        because that voter must be removed first."""
        if self.get(voter.key.id) is not None:
            return None
        return Voters(tuple(sorted((*self.members, voter), key=lambda member: member.key)))

    def remove(self, key: ReplicaKey) -> Voters | None:
        """The set without the voter `key`. None if the set does not contain `key`, or contains no other voter."""
        if not self.has(key) or len(self.members) == 1:
            return None
        return Voters(tuple(voter for voter in self.members if voter.key.id != key.id))

    def update(self, voter: VoterNode) -> Voters | None:
        """The set with the endpoints and versions of `voter`. None if the set does not contain its key."""
        if not self.has(voter.key):
            return None
        return Voters(tuple(voter if member.key.id == voter.key.id else member for member in self.members))

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.keys)) + "}"


# ---- the log


class LeaderChangeControl(Struct, frozen=True):
    """The first record of a leader's epoch. When it is committed, all records before it are."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]


class KRaftVersionControl(Struct, frozen=True):
    """The kraft.version from this offset on. The voters can change from version 1 on."""

    version: int


ControlRecord: TypeAlias = LeaderChangeControl | KRaftVersionControl | Voters
"""`Voters` in the log are in force from their offset on, committed or not (KIP-853)."""


class RaftBatch(Struct, frozen=True):
    """One batch of the log. The machine never decodes the payload.

    A batch contains either records of the state machine (`payload`) or control records, one for each offset. A control
    batch that was read from the network or the disk also has its bytes as the payload, so that they can be sent on.
    """

    base_offset: int
    count: int
    epoch: int
    payload: Buffer = b""
    controls: tuple[ControlRecord, ...] = ()

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count


# ---- durable state


class ElectionState(Struct, frozen=True):
    """The content of the file `quorum-state`. Within an epoch, the vote and the leader are set once and never
    change."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None


class LogSummary(Struct, frozen=True):
    """The log on the disk when the replica starts. `ReplicatedLog.open` reads the log once and returns this."""

    start: OffsetAndEpoch = ORIGIN
    end_offset: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, its first offset), in ascending order."""
    snapshots: tuple[OffsetAndEpoch, ...] = ()
    """The snapshots that agree with the log. A crash can leave one that ends beyond the log; the log then starts
    there."""
    kraft_versions: tuple[tuple[int, int], ...] = ()
    """(offset, version): the newest snapshot's version, at its end offset - 1, then those of the log's control
    records."""
    voters: tuple[tuple[int, Voters], ...] = ()


class RaftConfig(Struct, frozen=True):
    """The configs of the metadata quorum, and the facts about this node that Raft needs."""

    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    controller_quorum_fetch_max_bytes: int
    controller_quorum_fetch_snapshot_max_bytes: int
    controller_quorum_auto_join_enable: bool
    fetch_max_wait_ms: int = 500
    """The longest that the leader may delay the response to a fetch. A constant in Kafka too, not a config."""
    can_vote: bool = True
    """Whether the node is a controller, which may be a voter and syncs its log before each fetch. A broker is an
    observer."""
    bootstrap: tuple[tuple[int, Endpoints], ...] = ()
    """The nodes that an observer asks for the leader. A node whose id is unknown has a negative id."""
    voters: Voters = Voters()
    """The configured voters, used unless the log or a snapshot contains voters."""
    kraft_version: int = 0
    """The kraft.version while neither the log nor a snapshot contains one. If it is 1, the first leader appends the
    version and `voters` to the log."""
    endpoints: Endpoints = ()
    """The addresses of this node's listeners."""
    min_version: int = 0
    max_version: int = 1
    delayed_fetches_max: int = 1000
