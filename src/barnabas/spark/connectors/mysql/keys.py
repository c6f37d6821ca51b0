"""Machine: the key of a table as the server writes it in TABLE_MAP events.

Without a PRIMARY KEY, a server takes the first UNIQUE index whose columns are all NOT NULL, without prefixes. Only SHOW
KEYS has the indexes in the server's order. Source: `open_table_from_share` and `open_binary_frm` of both servers'
table.cc, and the binlogs of MariaDB 10.11 and MySQL 9.7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

PRIMARY_KEYS_QUERY: Final = (
    "SELECT table_schema, table_name, column_name FROM information_schema.statistics"
    " WHERE index_name = 'PRIMARY' ORDER BY table_schema, table_name, seq_in_index"
)
"""One row for each column of each primary key."""


def promoted_key(indexes: Iterable[tuple[Any, ...]], virtual: Collection[str], engine: str) -> tuple[str, ...]:
    """The columns of the key that stands for the primary key of a table that has none; empty if there is no such key.

    `indexes` are the rows of SHOW KEYS, `virtual` the generated columns that are not stored.
    """
    found: dict[str, list[str]] = {}
    refused = set()
    for row in indexes:
        not_unique, index, column, prefix, nullable, kind = row[1], row[2], row[4], row[7], row[9], row[10]
        found.setdefault(index, []).append(column)
        hashed = kind == "HASH" and engine.upper() != "MEMORY"  # MariaDB's index of a hidden column, not of `column`
        if int(not_unique) or column is None or prefix is not None or nullable == "YES" or hashed or column in virtual:
            refused.add(index)
    return next((tuple(columns) for index, columns in found.items() if index not in refused), ())
