"""Value: row changes of committed transactions, table by table, as the reader of a slot gives them.

Positions in a batch: every change has an ordinal, dense and ascending in the order of commits and, inside a
transaction, of statements. Two tables are put into one order by their ordinals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from barnabas.spark.connectors.postgres.messages import LogicalMessage, Origin, Relation, TypeName
from barnabas.spark.connectors.postgres.pgoutput import Rows

TableName = tuple[str, str]
"""(schema, table)."""


class Transaction(Struct, frozen=True, gc=False):
    """A committed transaction. `event_count` counts change events, `event_counts` those of each
    table, by name.

    An update that changes the key counts as two events, since it becomes a delete and a create.
    """

    xid: int
    commit_lsn: int
    end_lsn: int
    commit_time_us: int
    origin: Origin | None
    event_count: int
    event_counts: tuple[tuple[TableName, int], ...]

    @property
    def id(self) -> str:
        """The identity of the transaction in change events, in the form of Debezium: transaction id, colon, LSN."""
        return f"{self.xid}:{self.commit_lsn}"


class TableChanges(Struct, frozen=True):
    """Changes of one table while it had one schema. All arrays (numpy) have one element for each row of `rows`.

    `key` has the indexes of the key columns; it is empty if the table has no key. In `rows.new`, an unchanged TOAST
    value has been filled in from the old row where the server sent that; the others stay marked as unchanged.
    `transaction` is the index in `Batch.transactions`. `total_order` and `table_order` count events from 1 in the
    transaction, and in the transaction and the table; the create that follows from a changed key has the next number.
    """

    relation: Relation
    types: Mapping[int, TypeName]
    key: tuple[int, ...]
    rows: Rows
    lsn: Any
    ordinal: Any
    transaction: Any
    key_changed: Any
    total_order: Any
    table_order: Any

    @property
    def name(self) -> TableName:
        return self.relation.schema, self.relation.table


class TruncatedTable(Struct, frozen=True):
    """One table of a TRUNCATE. The orders are 0 if truncates are not counted as events."""

    relation: Relation
    lsn: int
    ordinal: int
    transaction: int
    total_order: int
    table_order: int
    cascade: bool
    restart_identity: bool


class EmittedMessage(Struct, frozen=True):
    """A message of `pg_logical_emit_message`. `transaction` is None if the message is not transactional.

    `ordinal` is that of the next change.
    """

    message: LogicalMessage
    ordinal: int
    transaction: int | None


class Batch(Struct, frozen=True):
    """What a reader gives at once: whole transactions, in commit order.

    `tables` has one element for each table and schema, in the order of first changes; more than one if a table has
    more than 256 MiB of changes.
    """

    transactions: tuple[Transaction, ...]
    tables: tuple[TableChanges, ...]
    truncates: tuple[TruncatedTable, ...]
    messages: tuple[EmittedMessage, ...]
