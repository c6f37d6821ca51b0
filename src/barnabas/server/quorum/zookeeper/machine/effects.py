"""Value: the effects that the machines decide on. The shell executes the effects in order."""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from barnabas.server.metadata.ports import CommittedBatch, LoadedSnapshot


class Commit(Struct, frozen=True):
    """Notify the listeners of `LogReader` number `reader` of a batch. Reader 0 is the main reader; the others read the
    log again for listeners that were registered later."""

    reader: int
    batch: CommittedBatch


class LoadSnapshot(Struct, frozen=True):
    reader: int
    snapshot: LoadedSnapshot


class Joined(Struct, frozen=True):
    """The listeners of `reader` have been notified of everything up to the position of reader 0. From now on they are
    listeners of reader 0."""

    reader: int


class LeaderChanged(Struct, frozen=True):
    leader_id: int
    epoch: int


class NodesRegistered(Struct, frozen=True):
    """The nodes that own a znode in /brokers/ids. Only the leader is notified."""

    node_ids: frozenset[int]


class ProposalOutcome(Enum):
    COMMITTED = auto()
    REFUSED = auto()
    """The proposal is not in the log and cannot get in any more."""
    UNKNOWN = auto()
    """Unknown: the entry was replaced by a snapshot before this node could read it."""


class Settled(Struct, frozen=True):
    """The outcome of a proposal. Its last record has `last_offset` if it was committed."""

    token: int
    last_offset: int
    outcome: ProposalOutcome


class Fatal(Struct, frozen=True):
    """The node must stop."""

    reason: str


Effect = Commit | LoadSnapshot | Joined | LeaderChanged | NodesRegistered | Settled | Fatal
