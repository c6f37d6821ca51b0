"""Value: what the machines ask of ZooKeeper, and what it answers.

One request of a node is under way at a time. A `Multi` takes effect as a whole or not at all; that, versions, ephemeral
nodes and watches are all that is needed of ZooKeeper.
"""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct


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


class Sync(Struct, frozen=True):
    """Whatever was committed before is seen by the reads after. Answered by Done."""


class Get(Struct, frozen=True):
    """One node. With `watch`, its next change (or creation) is told once. Answered by Znode."""

    path: str
    watch: bool = False


class GetMany(Struct, frozen=True):
    """Several nodes in one go. Answered by Znodes."""

    paths: tuple[str, ...]


class Children(Struct, frozen=True):
    """The names below a node. Answered by Names."""

    path: str


class Create(Struct, frozen=True):
    path: str
    data: bytes = b""
    ephemeral: bool = False


class SetData(Struct, frozen=True):
    path: str
    data: bytes
    version: int


class Delete(Struct, frozen=True):
    path: str
    version: int = -1


class Check(Struct, frozen=True):
    """The node has this version, or nothing of the Multi happens."""

    path: str
    version: int


Op = Create | SetData | Delete | Check


class Multi(Struct, frozen=True):
    """A transaction. Answered by Done."""

    ops: tuple[Op, ...]


Request = Sync | Get | GetMany | Children | Multi


# ---- answers


class Znode(Struct, frozen=True):
    data: bytes
    version: int
    owner: int = 0
    """The session of an ephemeral node; 0 for one that stays."""


class Znodes(Struct, frozen=True):
    data: tuple[bytes, ...]


class Names(Struct, frozen=True):
    names: tuple[str, ...]


class Done(Struct, frozen=True):
    versions: tuple[int, ...] = ()
    """Of a Multi: the version that each SetData gave its node, 0 for the other operations."""


class Failed(Struct, frozen=True):
    failure: Failure
    op: int = -1
    """Which operation of a Multi was refused."""
    detail: str = ""


Answer = Znode | Znodes | Names | Done | Failed
