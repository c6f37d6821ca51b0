"""Value: the nouns of the quorum: replicas, voters, batches, control records, and what must survive."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from msgspec import Struct

from barnabas.core.buffers import Buffer

NO_DIRECTORY: Final = UUID(int=0)
NO_NODE: Final = -1
NO_OFFSET: Final = -1
HIGH_WATERMARK_NOT_SENT: Final = 0x7FFFFFFFFFFFFFFF
"""What a Fetch carries for the high watermark when its sender does not say one (KIP-1166)."""


class OffsetAndEpoch(Struct, frozen=True, order=True):
    """A place in the log: everything before `offset`, whose last record is of `epoch`. Also names a snapshot."""

    epoch: int
    offset: int

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


ORIGIN: Final = OffsetAndEpoch(0, 0)


class RaftEndpoint(NamedTuple):
    """Where a listener of a node is reached."""

    listener: str
    host: str
    port: int


Endpoints: TypeAlias = tuple[RaftEndpoint, ...]


class ReplicaKey(Struct, frozen=True, order=True):
    """Who a replica is (KIP-853): a node together with its disk. A new disk makes it another replica.

    `NO_DIRECTORY` stands for any disk, as in a quorum of kraft.version 0.
    """

    id: int
    directory_id: UUID = NO_DIRECTORY

    def covers(self, other: ReplicaKey) -> bool:
        """Whether `other` is this replica, as far as this key says."""
        return self.id == other.id and (self.directory_id in (NO_DIRECTORY, other.directory_id))

    def __str__(self) -> str:
        return str(self.id) if self.directory_id == NO_DIRECTORY else f"{self.id}/{self.directory_id.int:x}"


class VoterNode(Struct, frozen=True):
    """One member of the quorum, and the versions of the protocol (kraft.version) that it understands."""

    key: ReplicaKey
    endpoints: Endpoints = ()
    min_version: int = 0
    max_version: int = 1


class Voters(Struct, frozen=True):
    """The quorum: voters in the order of their ids. Changes give a new set, or None where they make no sense."""

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
        """None if there is a voter of that id, be it on another disk: it has to be removed first."""
        if self.get(voter.key.id) is not None:
            return None
        return Voters(tuple(sorted((*self.members, voter), key=lambda member: member.key)))

    def remove(self, key: ReplicaKey) -> Voters | None:
        """None if it is not there, or if none would be left."""
        if not self.has(key) or len(self.members) == 1:
            return None
        return Voters(tuple(voter for voter in self.members if voter.key.id != key.id))

    def update(self, voter: VoterNode) -> Voters | None:
        if not self.has(voter.key):
            return None
        return Voters(tuple(voter if member.key.id == voter.key.id else member for member in self.members))

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.keys)) + "}"


# ---- the log


class LeaderChangeControl(Struct, frozen=True):
    """The first record of a leader's epoch; committing it commits everything before it."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]


class KRaftVersionControl(Struct, frozen=True):
    """The version of the Raft protocol from here on; 1 lets the voters change."""

    version: int


ControlRecord: TypeAlias = LeaderChangeControl | KRaftVersionControl | Voters
"""`Voters` in the log means: the quorum from here on, committed or not (KIP-853)."""


class RaftBatch(Struct, frozen=True):
    """One batch of the log. The machine looks at everything but the payload, which it never opens.

    A batch holds either records of the state machine (`payload`), or control records, one offset each. A batch read
    from the wire or the disk may carry the bytes of both, so that they need not be built again.
    """

    base_offset: int
    count: int
    epoch: int
    payload: Buffer = b""
    controls: tuple[ControlRecord, ...] = ()

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count


# ---- what must survive


class ElectionState(Struct, frozen=True):
    """What `quorum-state` keeps. Within an epoch it only gains: a vote, then a leader; it never changes its mind."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None


class LogSummary(Struct, frozen=True):
    """What the machine is told about the log on the disk when it starts (the driver has read it through once)."""

    start: OffsetAndEpoch = ORIGIN
    end_offset: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, its first offset), ascending."""
    snapshots: tuple[OffsetAndEpoch, ...] = ()
    """Those that agree with the log. One that goes beyond it, as left by a crash, is where the log starts (`start`)."""
    kraft_versions: tuple[tuple[int, int], ...] = ()
    """(offset, version): what the newest snapshot says, at its end offset - 1, and then the log's control records."""
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
    """A controller, which is or may become a voter, and so syncs before it fetches on; a broker only observes."""
    bootstrap: tuple[tuple[int, Endpoints], ...] = ()
    """Where an observer begins its search for the leader; ids that are not known yet are negative."""
    voters: Voters = Voters()
    """The quorum as configured, until the log or a snapshot knows better."""
    kraft_version: int = 0
    """With 1, the first leader writes `voters` into the log."""
    endpoints: Endpoints = ()
    """Where this node is reached."""
    min_version: int = 0
    max_version: int = 1
    delayed_fetches_max: int = 1000
