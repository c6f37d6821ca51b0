"""Machine: messages of a slot -> row changes of the transactions whose commit records start in [start, end).

A transaction is kept exactly if start <= the start of its commit record < end. So each transaction belongs to one
micro-batch, whatever else the peek returns: a peek begins at the slot's confirmed position, which may be older than
`start`, and stops after the record that reaches `end`. The server itself compares the start of a commit record with the
confirmed position, so this rule, unlike one by the end of the record, also holds for a position inside a record. The
flush position can be such a one: the server flushes whole pages of its log, and a record can span pages. A message that
is not transactional is kept by the start of its own record in the same way.

The reader keeps relations and types (`R` and `Y`) for as long as it lives, which is one peek: the server sends them
again in each. Row messages stay bytes until `take`, which decodes all rows of one table and schema together.
Source: `logicalfuncs.c` (where a peek stops), `decode.c` and `snapbuild.c` (SnapBuildXactNeedsSkip), `xlog.c`
(XLogBackgroundFlush), `pgoutput.c`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from barnabas.spark.connectors.postgres.changes import Batch, EmittedMessage, TableName
from barnabas.spark.connectors.postgres.collected import OpenTransaction, RowMessages, TableVersion, TruncateEvent
from barnabas.spark.connectors.postgres.decoding import Collected, build_batch
from barnabas.spark.connectors.postgres.errors import ChangeOrderError
from barnabas.spark.connectors.postgres.lsn import format_lsn
from barnabas.spark.connectors.postgres.messages import (
    Begin,
    Commit,
    LogicalMessage,
    Origin,
    Relation,
    ReplicaIdentity,
    Truncate,
    TypeName,
)
from barnabas.spark.connectors.postgres.pgoutput import ROW_TAGS, decode_message, relation_oid
from barnabas.spark.connectors.postgres.setup_state import PrimaryKey
from barnabas.spark.connectors.postgres.types import FIRST_NAMED_TYPE
from barnabas.spark.connectors.sql.dialects import Dialect, quote_for_display


class ReaderOptions(Struct, frozen=True):
    """What a reader needs to know beside the range.

    `key_columns` gives the keys that are configured (message.key.columns). A key of a table whose replica identity is
    an index is some of the columns of the index. `primary_keys` gives the keys of tables whose replica identity is FULL
    or NOTHING, since the server marks all or none of their columns. `wants` says for a schema and a table whether the
    table is captured; a publication may have others. `count_truncates` gives truncates a place in the order of events.
    """

    key_columns: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    primary_keys: Mapping[TableName, PrimaryKey] = field(default_factory=dict)
    wants: Callable[[str, str], bool] | None = None
    count_truncates: bool = False


_UNWANTED: Final = RowMessages(TableVersion(Relation(0, "", "", ReplicaIdentity.NOTHING, ()), {}, ()))
"""Stands for the rows of tables that are not captured."""


class TransactionReader:
    """Reads one peek of a slot. After an error the reader cannot be used any more; a new peek gives the same rows."""

    def __init__(self, start: int, end: int, options: ReaderOptions | None = None) -> None:
        self._start = start
        self._end = end
        self._options = ReaderOptions() if options is None else options
        self._types: dict[int, TypeName] = {}
        self._described: dict[int, tuple[Relation, Mapping[int, TypeName]]] = {}
        self._unwanted: set[int] = set()
        self._tables: dict[int, TableVersion] = {}
        self._open: OpenTransaction | None = None
        self._open_rows: dict[bytes, RowMessages] = {}
        self._collected = Collected(0)
        self._ordinal = 0
        self._last_end_lsn = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of the row messages of committed transactions that `take` has not returned yet."""
        return self._collected.size

    def feed(self, rows: Iterable[tuple[int, int, bytes]]) -> None:
        """Take rows of the peek: (lsn, xid, data), in the order of the peek, in pieces of any size.

        Raises PgoutputError if a message is malformed or unknown, and ChangeOrderError if a message cannot stand where
        it does.
        """
        open_rows = self._open_rows
        ordinal = self._ordinal
        skips = self._open is not None and not self._open.kept
        for lsn, xid, data in rows:
            if data and data[0] in ROW_TAGS:
                if skips:
                    continue
                lists = open_rows.get(data[1:5])
                if lists is None:
                    lists = self._first_row(lsn, data)
                if lists is _UNWANTED:
                    continue
                lists.lsns.append(lsn)
                lists.messages.append(data)
                lists.ordinals.append(ordinal)
                ordinal += 1
            else:
                self._ordinal = ordinal
                self._message(lsn, xid, data)
                ordinal = self._ordinal
                skips = self._open is not None and not self._open.kept
        self._ordinal = ordinal

    def take(self) -> Batch:
        """The changes of all transactions that ended since the last call. The rows of an open transaction stay.

        Raises PgoutputError if a row message is malformed.
        """
        until = self._ordinal if self._open is None else self._open.first_ordinal
        collected, self._collected = self._collected, Collected(until)
        return build_batch(collected, until, count_truncates=self._options.count_truncates)

    def finish(self) -> Batch:
        """The remaining changes at the end of the peek. Raises ChangeOrderError if a transaction has no end."""
        if self._open is not None:
            raise ChangeOrderError(
                f"the peek ends inside transaction {self._open.begin.xid}: read the peek to its last row"
            )
        return self.take()

    def _first_row(self, lsn: int, data: bytes) -> RowMessages:
        oid = relation_oid(lsn, data)
        transaction = self._inside(lsn, "a row")
        if oid in self._unwanted:
            lists = _UNWANTED
        else:
            lists = RowMessages(self._table(oid, f"the row at LSN {format_lsn(lsn)} belongs to"))
            transaction.rows.append(lists)
        self._open_rows[data[1:5]] = lists
        return lists

    def _table(self, oid: int, subject: str) -> TableVersion:
        """The table of a change. Its key is looked for only here, since transactions that are skipped need none."""
        table = self._tables.get(oid)
        if table is None:
            described = self._described.get(oid)
            if described is None:
                raise ChangeOrderError(
                    f"{subject} the table with the oid {oid}, which no message describes: read the peek from its first"
                    " row"
                )
            relation, types = described
            table = self._tables[oid] = TableVersion(relation, types, self._key(relation))
        return table

    def _inside(self, lsn: int, subject: str) -> OpenTransaction:
        if self._open is None:
            raise ChangeOrderError(
                f"{subject} at LSN {format_lsn(lsn)} is outside of a transaction: read the peek from its first row"
            )
        return self._open

    def _message(self, lsn: int, xid: int, data: bytes) -> None:
        match decode_message(lsn, data):
            case Begin() as begin:
                self._begin(lsn, xid, begin)
            case Commit() as commit:
                self._commit(lsn, commit)
            case Origin() as origin:
                self._inside(lsn, "an origin").origin = origin
            case TypeName() as name:
                self._types[name.oid] = name
            case Relation() as relation:
                self._relation(lsn, relation)
            case Truncate() as truncate:
                self._truncate(lsn, truncate)
            case LogicalMessage() as message:
                self._emitted(lsn, message)

    def _begin(self, lsn: int, xid: int, begin: Begin) -> None:
        if self._open is not None:
            raise ChangeOrderError(
                f"transaction {begin.xid} begins at LSN {format_lsn(lsn)} before transaction {self._open.begin.xid}"
                " has ended: read the peek with proto_version 1, in its own order"
            )
        if begin.xid != xid:
            raise ChangeOrderError(
                f"transaction {begin.xid} begins at LSN {format_lsn(lsn)} in a row of transaction {xid}:"
                " pass the columns lsn, xid and data of the same row"
            )
        self._open = OpenTransaction(begin, self._ordinal, self._start <= begin.final_lsn < self._end)

    def _commit(self, lsn: int, commit: Commit) -> None:
        transaction = self._inside(lsn, "a commit")
        if commit.commit_lsn != transaction.begin.final_lsn or commit.end_lsn <= commit.commit_lsn:
            raise ChangeOrderError(
                f"transaction {transaction.begin.xid} announced its commit at"
                f" {format_lsn(transaction.begin.final_lsn)}, but commits at {format_lsn(commit.commit_lsn)} to"
                f" {format_lsn(commit.end_lsn)}: check that the rows of the peek come from one server"
            )
        if commit.end_lsn <= self._last_end_lsn:
            raise ChangeOrderError(
                f"transaction {transaction.begin.xid} ends at {format_lsn(commit.end_lsn)}, not after"
                f" {format_lsn(self._last_end_lsn)}, where the one before it ended: read the peek in its own order"
            )
        self._last_end_lsn = commit.end_lsn
        self._open = None
        self._open_rows.clear()
        if transaction.kept:
            self._collected.add(transaction, commit)

    def _relation(self, lsn: int, relation: Relation) -> None:
        wants = self._options.wants
        if wants is not None and not wants(relation.schema, relation.table):
            self._unwanted.add(relation.oid)
            self._forget(relation.oid)
            return
        if relation.oid in self._unwanted:  # a table that was renamed
            self._unwanted.remove(relation.oid)
            self._forget(relation.oid)
        types = {}
        for column in relation.columns:
            if column.type_oid >= FIRST_NAMED_TYPE:
                name = self._types.get(column.type_oid)
                if name is None:
                    raise ChangeOrderError(
                        f"the table {relation.schema}.{relation.table} at LSN {format_lsn(lsn)} has a column"
                        f" {column.name} with the type {column.type_oid}, which no message describes:"
                        " read the peek from its first row"
                    )
                types[column.type_oid] = name
        if (relation, types) != self._described.get(relation.oid):
            self._forget(relation.oid)
            self._described[relation.oid] = (relation, types)

    def _forget(self, oid: int) -> None:
        """The rows that follow belong to another version of the table."""
        self._described.pop(oid, None)
        self._tables.pop(oid, None)
        self._open_rows.pop(oid.to_bytes(4, "big"), None)

    def _primary_key(self, relation: Relation) -> tuple[int, ...]:
        """The places of the primary key. The changes can be older than the key that the catalog has: a column of the
        key that was renamed since then is found by its place.
        """
        key = self._options.primary_keys.get((relation.schema, relation.table))
        if key is None:
            return ()
        names = [column.name for column in relation.columns]
        places = []
        for place in key.places:
            name = key.columns[place]
            if name in names:
                places.append(names.index(name))
            elif len(names) == len(key.columns) and names[place] not in key.columns:
                places.append(place)
            else:
                raise ChangeOrderError(
                    f"the column {name} of the primary key of {relation.schema}.{relation.table} is not in the changes,"
                    " which are older than that key: name columns that they have until these changes are read"
                    f" (message.key.columns={relation.schema}.{relation.table}:..), or start the query over with a new"
                    " checkpoint, which reads a new snapshot"
                )
        return tuple(places)

    def _key(self, relation: Relation) -> tuple[int, ...]:
        names = self._options.key_columns.get((relation.schema, relation.table))
        if names is None:
            if relation.identity in (ReplicaIdentity.FULL, ReplicaIdentity.NOTHING):
                return self._primary_key(relation)
            return tuple(index for index, column in enumerate(relation.columns) if column.in_key)
        columns = relation.columns
        places = {column.name: index for index, column in enumerate(columns)}
        for name in names:
            if name not in places:
                raise ChangeOrderError(
                    f"the table {relation.schema}.{relation.table} has no column {name}, which the configuration names"
                    " as a part of its key: change the key columns (message.key.columns)"
                )
            if (
                relation.identity in (ReplicaIdentity.DEFAULT, ReplicaIdentity.INDEX)
                and not columns[places[name]].in_key
            ):
                table = ".".join(
                    quote_for_display(Dialect.POSTGRES, part) for part in (relation.schema, relation.table)
                )
                raise ChangeOrderError(
                    f"the column {name} of {relation.schema}.{relation.table} is not in its replica identity, so that"
                    " deletes do not have it: leave it out of the key (message.key.columns), or run"
                    f" ALTER TABLE {table} REPLICA IDENTITY FULL; and read the changes after that"
                )
        return tuple(places[name] for name in names)

    def _truncate(self, lsn: int, truncate: Truncate) -> None:
        transaction = self._inside(lsn, "a truncate")
        if not transaction.kept:
            return
        for oid in truncate.oids:
            if oid in self._unwanted:
                continue
            table = self._table(oid, f"the truncate at LSN {format_lsn(lsn)} names")
            transaction.truncates.append(TruncateEvent(table.relation, lsn, self._ordinal, truncate))
            self._ordinal += 1

    def _emitted(self, lsn: int, message: LogicalMessage) -> None:
        if message.transactional:
            transaction = self._inside(lsn, "a transactional message")
            if transaction.kept:
                transaction.messages.append((self._ordinal, message))
        elif self._start <= message.lsn < self._end:
            if self._open is not None:
                raise ChangeOrderError(
                    f"the message at LSN {format_lsn(lsn)} is not transactional, but inside transaction"
                    f" {self._open.begin.xid}: read the peek in its own order"
                )
            self._collected.messages.append(EmittedMessage(message, self._ordinal, None))
