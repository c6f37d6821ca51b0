"""Value: what the machines have decided; the shell carries it out, in this order."""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from barnabas.server.metadata.ports import CommittedBatch, LoadedSnapshot


class Commit(Struct, frozen=True):
    """Tell the listeners of `reader` of a batch. Reader 0 is the node's own."""

    reader: int
    batch: CommittedBatch


class LoadSnapshot(Struct, frozen=True):
    reader: int
    snapshot: LoadedSnapshot


class Joined(Struct, frozen=True):
    """The listeners of `reader` know all that those of reader 0 know; from now on they hear together."""

    reader: int


class LeaderChanged(Struct, frozen=True):
    leader_id: int
    epoch: int


class Outcome(Enum):
    COMMITTED = auto()
    REFUSED = auto()
    """It is not in the log, and never will be."""
    UNKNOWN = auto()
    """The log was cut off before it could be read whether it was there."""


class Settled(Struct, frozen=True):
    """What became of a proposal, whose last record has or would have had `last_offset`."""

    token: int
    last_offset: int
    outcome: Outcome


class Fatal(Struct, frozen=True):
    """The node must not go on."""

    reason: str


Effect = Commit | LoadSnapshot | Joined | LeaderChanged | Settled | Fatal
