"""Value: the requests to ZooKeeper and their answers.

A node has one request in flight at a time. A `Multi` is atomic. Of ZooKeeper, only transactions, versions, ephemeral
nodes and watches are used.
"""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct


class FailureReason(Enum):
    """Why a request failed."""

    NO_NODE = auto()
    NODE_EXISTS = auto()
    BAD_VERSION = auto()
    CONNECTION_LOSS = auto()
    """The connection was lost before the answer; the request may have been executed."""
    REFUSED = auto()
    """A failure that a retry does not solve, such as a missing permission."""


# ---- requests


class SyncRequest(Struct, frozen=True):
    """After this request, reads see all earlier commits. Answered by Done."""


class Get(Struct, frozen=True):
    """Read a znode. With `watch`, the next change or creation of the znode is notified once. Answered by Znode."""

    path: str
    watch: bool = False


class GetMany(Struct, frozen=True):
    """Read several znodes. Answered by Znodes."""

    paths: tuple[str, ...]


class Children(Struct, frozen=True):
    """List the names of the children of a znode. With `watch`, the next creation or deletion of a child is notified
    once, with this path. Answered by Names."""

    path: str
    watch: bool = False


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
    """Fails the Multi if the znode does not have this version."""

    path: str
    version: int


Op = Create | SetData | Delete | Check


class Multi(Struct, frozen=True):
    """A transaction. Answered by Done."""

    ops: tuple[Op, ...]


Request = SyncRequest | Get | GetMany | Children | Multi


# ---- answers


class Znode(Struct, frozen=True):
    data: bytes
    version: int
    owner: int = 0
    """The session that owns an ephemeral node; 0 for a persistent node."""


class Znodes(Struct, frozen=True):
    data: tuple[bytes, ...]


class Names(Struct, frozen=True):
    names: tuple[str, ...]


class Done(Struct, frozen=True):
    versions: tuple[int, ...] = ()
    """For a Multi: the new version after each SetData, 0 for the other operations."""


class RequestFailed(Struct, frozen=True):
    failure: FailureReason
    op: int = -1
    """The index of the operation of a Multi that failed."""
    detail: str = ""


Answer = Znode | Znodes | Names | Done | RequestFailed
