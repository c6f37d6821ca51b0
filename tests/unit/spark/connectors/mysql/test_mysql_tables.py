"""The tables of a server: their captured columns, and the keys of tables without a primary key."""

from __future__ import annotations

from typing import Any

import pytest
from tests.property import mysql_encoder as enc

from barnabas.spark.connectors.mysql.binlog.decoder import BinlogDecoder
from barnabas.spark.connectors.mysql.binlog.events import BinlogColumn, BinlogTable, TableMap
from barnabas.spark.connectors.mysql.changes import CapturedTables
from barnabas.spark.connectors.mysql.columns import snapshot_table
from barnabas.spark.connectors.mysql.errors import PositionError, UnsupportedBinlogError
from barnabas.spark.connectors.mysql.keys import promoted_key
from barnabas.spark.connectors.mysql.source import _from_position


def table_map(*columns: enc.EncodedColumn, key: tuple[int, ...] = ()) -> BinlogTable:
    reader = BinlogDecoder("bin.000001")
    reader.decode(enc.format_description())
    event = reader.decode(enc.table_map(list(columns), key=key))
    assert isinstance(event, TableMap)
    return event.table


def without(*names: str) -> CapturedTables:
    return CapturedTables(lambda table: True, lambda table, column: column not in names, {})


def row(name: str, kind: str, *, nullable: str = "NO") -> tuple[Any, ...]:
    """A row of COLUMNS_QUERY."""
    return ("shop", "t", name, nullable, kind, kind, None, None, 10, 0, None, "InnoDB", "", "BASE TABLE")


def index(name: str, column: str | None, *, unique: bool = True, prefix: int | None = None, null: str = "") -> Any:
    """A row of SHOW KEYS."""
    return ("t", 0 if unique else 1, name, 1, column, "A", 0, prefix, None, null, "BTREE")


def test_a_column_in_an_unknown_character_set_is_an_error_only_if_it_is_captured() -> None:
    geostd8 = enc.EncodedColumn("g", 15, b"\x0a\x00", collation=92)
    table = table_map(enc.INT, geostd8, enc.TEXT, key=(2,))
    schema, indexes = without("g").schema(table)
    assert ([column.name for column in schema.columns], schema.key, indexes) == (["id", "name"], (1,), (0, 2))
    with pytest.raises(UnsupportedBinlogError, match="collation 92"):
        without().schema(table)


def test_a_column_of_a_snapshot_with_an_unknown_type_is_an_error_only_if_it_is_captured() -> None:
    table = snapshot_table(("shop", "t"), [row("id", "int"), row("u", "uuid")], ["id"])
    schema, indexes = without("u").schema(table.table)
    assert ([column.name for column in schema.columns], indexes) == (["id"], (0,))
    with pytest.raises(UnsupportedBinlogError, match=r"shop\.t\.u has the type uuid[\s\S]*column\.exclude\.list"):
        without().schema(table.table)


def test_the_hidden_column_of_a_hashed_unique_index_is_not_captured() -> None:
    columns = (BinlogColumn("id", 3, 0, nullable=False), BinlogColumn("DB_ROW_HASH_1", 8, 0, nullable=False))
    schema, indexes = without().schema(BinlogTable("shop", "t", columns, (), described=True))
    assert ([column.name for column in schema.columns], indexes) == (["id"], (0,))


@pytest.mark.parametrize(
    ("rows", "key"),
    [
        ([], ()),
        ([index("z", "c"), index("y", "b")], ("c",)),
        ([index("z", "c"), index("z", "a"), index("y", "b")], ("c", "a")),
        ([index("p", "b", prefix=10), index("q", "a"), index("q", "c", null="YES"), index("r", "b")], ("b",)),
        ([index("k", "a", unique=False)], ()),
        ([index("f", None), index("v", "g"), index("q", "b")], ("b",)),
        ([(*index("h", "a")[:10], "HASH"), index("q", "b")], ("b",)),
    ],
)
def test_the_first_unique_index_without_nulls_and_prefixes_stands_for_the_primary_key(
    rows: list[Any], key: tuple[str, ...]
) -> None:
    assert promoted_key(rows, {"g"}, "InnoDB") == key


def test_a_hashed_index_of_a_memory_table_is_of_its_columns() -> None:
    assert promoted_key([(*index("h", "a")[:10], "HASH")], set(), "MEMORY") == ("a",)


def test_a_position_of_another_kind_of_source_is_a_position_error() -> None:
    with pytest.raises(PositionError, match="is not a position in a binlog"):
        _from_position({"lsn": 5})
