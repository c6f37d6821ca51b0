"""Shell: `python -m bench.postgres_changes`: rows per second from the bytes of a replication slot to Arrow columns.

Each row is the best of a few runs in memory on one core, without a database. Budget on a 2-core machine: a server gives
some 100,000 rows/s of a peek, so 500,000 rows/s in large transactions, and 50,000 transactions/s of one row, keep the
server the slower side.
"""

from __future__ import annotations

from functools import partial

from rich.console import Console
from rich.table import Table
from tests.pgoutput import encode, insert

from barnabas.spark.connectors.postgres.messages import Begin, Column, Commit, Relation, ReplicaIdentity
from barnabas.spark.connectors.postgres.text_columns import convert
from barnabas.spark.connectors.postgres.transactions import TransactionReader
from barnabas.spark.connectors.postgres.types import ValuePolicy, column_type
from bench.records_columnar import best_seconds

ROWS = 100_000
COLUMNS = (
    Column("id", 20, -1, True),
    Column("name", 25, -1, False),
    Column("note", 25, -1, False),
    Column("at", 1184, -1, False),
    Column("amount", 1700, (10 << 16 | 2) + 4, False),
    Column("paid", 16, -1, False),
    Column("data", 3802, -1, False),
    Column("count", 23, -1, False),
    Column("ratio", 701, -1, False),
    Column("tags", 1009, -1, False),
)
ORDERS = Relation(1, "public", "orders", ReplicaIdentity.DEFAULT, COLUMNS)


def peek(rows_in_transaction: int) -> list[tuple[int, int, bytes]]:
    """The rows of a peek with ROWS inserts into a table of ten columns."""
    rows = [(0, 0, encode(ORDERS))]
    for first in range(0, ROWS, rows_in_transaction):
        lsn = (first + 1) * 100
        rows.append((lsn, 1, encode(Begin(lsn + 50, 0, 1))))
        for number in range(first, first + rows_in_transaction):
            values = [b"%d" % number, b"name of %d" % number, None, b"2024-01-01 00:00:00.5+00", b"12.50", b"t"]
            rows.append((lsn, 1, insert(1, [*values, b'{"a": 1}', b"22", b"3.25", b"{a,b}"])))
        rows.append((lsn, 1, encode(Commit(lsn + 50, lsn + 60, 0))))
    return rows


def read(rows: list[tuple[int, int, bytes]]) -> None:
    """All changes as columns in their Arrow types."""
    reader = TransactionReader(0, 1 << 62)
    reader.feed(rows)
    policy = ValuePolicy()
    for table in reader.finish().tables:
        for column, values in zip(table.relation.columns, table.rows.new.values, strict=True):
            convert(values, column_type(column, table.types, policy), policy, column.name)


def main() -> None:
    """Measure and print."""
    shown = Table("rows in a transaction", "rows/s")
    for rows_in_transaction in (1, 10, ROWS):
        rows = peek(rows_in_transaction)
        shown.add_row(f"{rows_in_transaction:,}", f"{ROWS / best_seconds(partial(read, rows)):,.0f}")
    Console().print(shown)


if __name__ == "__main__":
    main()
