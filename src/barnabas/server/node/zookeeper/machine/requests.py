"""Value: what the machines ask of ZooKeeper, and what it answers.

One request of a node is under way at a time. A `Multi` takes effect as a whole or not at all; that, versions, ephemeral
nodes and watches are all that is needed of ZooKeeper.
"""

from __future__ import annotations

from enum import Enum, auto

from barnabas.core.dataclass import dataclass


class Failure(Enum):
    """Why ZooKeeper did not do it."""

    NO_NODE = auto()
    NODE_EXISTS = auto()
    BAD_VERSION = auto()
    CONNECTION_LOSS = auto()
    """Nobody knows whether it took effect."""
    REFUSED = auto()
    """Something that trying again does not mend, such as a missing right."""


# ---- requests


@dataclass(frozen=True, slots=True)
class Sync:
    """Whatever was committed before is seen by the reads after. Answered by Done."""


@dataclass(frozen=True, slots=True)
class Get:
    """One node. With `watch`, its next change (or creation) is told once. Answered by Znode."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class GetMany:
    """Several nodes in one go. Answered by Znodes."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Children:
    """The names below a node. Answered by Names."""

    path: str


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """The node has this version, or nothing of the Multi happens."""

    path: str
    version: int


Op = Create | SetData | Delete | Check


@dataclass(frozen=True, slots=True)
class Multi:
    """A transaction. Answered by Done."""

    ops: tuple[Op, ...]


Request = Sync | Get | GetMany | Children | Multi


# ---- answers


@dataclass(frozen=True, slots=True)
class Znode:
    data: bytes
    version: int
    owner: int = 0
    """The session of an ephemeral node; 0 for one that stays."""


@dataclass(frozen=True, slots=True)
class Znodes:
    data: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Names:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    versions: tuple[int, ...] = ()
    """Of a Multi: the version that each SetData gave its node, 0 for the other operations."""


@dataclass(frozen=True, slots=True)
class Failed:
    failure: Failure
    op: int = -1
    """Which operation of a Multi was refused."""
    detail: str = ""


Answer = Znode | Znodes | Names | Done | Failed
