"""Value: messages of transactions that are not decoded yet. The lists grow while a peek is read."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from barnabas.spark.connectors.postgres.messages import (
    Begin,
    Commit,
    LogicalMessage,
    Origin,
    Relation,
    Truncate,
    TypeName,
)


class TableVersion(Struct, frozen=True):
    """A table with one schema, the names of its types, and the indexes of its key columns."""

    relation: Relation
    types: Mapping[int, TypeName]
    key: tuple[int, ...]


class RowMessages(Struct):
    """Row messages of one table with one schema, in order; the three lists have the same length."""

    table: TableVersion
    lsns: list[int] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    ordinals: list[int] = field(default_factory=list)


class TruncateEvent(Struct, frozen=True):
    """One table of a TRUNCATE."""

    relation: Relation
    lsn: int
    ordinal: int
    truncate: Truncate


class Committed(Struct, frozen=True, gc=False):
    """A transaction that belongs to the batch. There are many at once, and none can be in a cycle: gc=False."""

    begin: Begin
    commit: Commit
    first_ordinal: int
    origin: Origin | None


class OpenTransaction(Struct):
    """A transaction whose commit has not been read. `kept` says whether it belongs to the batch."""

    begin: Begin
    first_ordinal: int
    kept: bool
    origin: Origin | None = None
    rows: list[RowMessages] = field(default_factory=list)
    truncates: list[TruncateEvent] = field(default_factory=list)
    messages: list[tuple[int, LogicalMessage]] = field(default_factory=list)
