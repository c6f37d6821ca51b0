"""Value: the messages of pgoutput except the row messages, which stay bytes until a whole column of them is decoded.

LSNs are byte positions in the write-ahead log. Times are microseconds since 1970-01-01 UTC; on the wire they count from
2000-01-01. There are many of these values at once, and none can be in a cycle, so the garbage collector does not track
them. Source: PostgreSQL's manual, section "Logical Replication Message Formats".
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class ReplicaIdentity(StrEnum):
    """What UPDATE and DELETE write about the old row; the values are those of `pg_class.relreplident`."""

    DEFAULT = "d"  # the primary key
    NOTHING = "n"
    FULL = "f"  # all columns
    INDEX = "i"  # the columns of a unique index


class Begin(Struct, frozen=True, gc=False):
    """`B`: a transaction follows. `final_lsn` is the start of its commit record."""

    final_lsn: int
    commit_time_us: int
    xid: int


class Commit(Struct, frozen=True, gc=False):
    """`C`: the transaction ends. `end_lsn` is the first byte after the commit record."""

    commit_lsn: int
    end_lsn: int
    commit_time_us: int


class Origin(Struct, frozen=True, gc=False):
    """`O`: the transaction was replicated from another server, where it committed at `origin_lsn`."""

    origin_lsn: int
    name: str


class Column(Struct, frozen=True, gc=False):
    """A column of a relation. `in_key` says whether the column is in the replica identity."""

    name: str
    type_oid: int
    typmod: int
    in_key: bool


class Relation(Struct, frozen=True):
    """`R`: a table as it is for the changes that follow. Dropped and generated columns are not in it."""

    oid: int
    schema: str
    table: str
    identity: ReplicaIdentity
    columns: tuple[Column, ...]


class TypeName(Struct, frozen=True, gc=False):
    """`Y`: the name of a type that is not built in. For a domain, the server sends the name of its base type."""

    oid: int
    schema: str
    name: str


class Truncate(Struct, frozen=True):
    """`T`: these tables were emptied by one statement."""

    oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


class LogicalMessage(Struct, frozen=True):
    """`M`: a message of `pg_logical_emit_message`. `lsn` is where its record starts."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


PgoutputMessage = Begin | Commit | Origin | Relation | TypeName | Truncate | LogicalMessage
