"""Codec: which kind of statement a QUERY event has, and which tables its DDL names. It parses no more than that.

The schema of the rows comes from TABLE_MAP events, so that DDL is only reported: a table was truncated, dropped,
renamed or altered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final

from msgspec import Struct


class StatementKind(Enum):
    """What a statement does."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    ROLLBACK_TO = "rollback to savepoint"
    RELEASE = "release savepoint"
    XA = "xa"
    CREATE = "create"
    ALTER = "alter"
    DROP = "drop"
    RENAME = "rename"
    TRUNCATE = "truncate"
    CHANGE = "change"
    """It changes rows, and was logged as a statement, so that the rows are unknown."""
    OTHER = "other"
    """It changes no row and no table: GRANT, ANALYZE, CREATE VIEW, and so on."""


class TableName(Struct, frozen=True):
    """A table, with the database that the statement names or that was the session's."""

    database: str
    table: str


class BinlogStatement(Struct, frozen=True):
    """The kind of a statement and what it names: tables of DDL, or the savepoint or the words after XA.

    For RENAME, and for ALTER with RENAME TO, `renamed_to` has the new names of the first tables of `tables`.
    `without_rows` has the words of an ALTER that removes or adds rows of `tables` without rows events, such as DROP
    PARTITION. `versions` is whether a CREATE or ALTER makes a table one WITH SYSTEM VERSIONING (MariaDB).
    """

    kind: StatementKind
    tables: tuple[TableName, ...] = ()
    renamed_to: tuple[TableName, ...] = ()
    name: str = ""
    without_rows: str = ""
    versions: bool = False


_TOKEN: Final = re.compile(
    r"""\s+ | \#[^\n]*\n? | --(?=\s|$)[^\n]*\n? | /\*(?!M?!).*?\*/ | /\*M?!\d* | \*/
    | (?P<quoted>`(?:[^`]|``)*` | "(?:[^"\\]|\\.|"")*") | (?P<text>'(?:[^'\\]|\\.|'')*')
    | (?P<word>[\w$\u0080-\uffff]+) | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_CHANGES: Final = frozenset(("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "WITH"))
_INTO: Final = frozenset(("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK", "IGNORE", "INTO", "FROM"))
_BEFORE_TABLE: Final = frozenset(("OR", "REPLACE", "TEMPORARY", "IGNORE", "ONLINE", "OFFLINE"))
_WITHOUT_ROWS: Final = frozenset(
    (
        ("TRUNCATE", "PARTITION"),
        ("DROP", "PARTITION"),
        ("EXCHANGE", "PARTITION"),
        ("CONVERT", "PARTITION"),
        ("CONVERT", "TABLE"),
        ("DISCARD", "PARTITION"),
        ("IMPORT", "PARTITION"),
        ("DISCARD", "TABLESPACE"),
        ("IMPORT", "TABLESPACE"),
    )
)
"""The first words of what an ALTER TABLE may do to rows without rows events."""
_TOKENS_MAX: Final = 20_000
_SCANNED_MAX: Final = 1 << 20

Token = tuple[str, bool]
"""The text of a token, and whether it may be a name; a quoted name is without its quotes."""


def _tokens(statement: str) -> list[Token]:
    """The first tokens. Spaces and comments are passed over; the inside of `/*! ... */` counts, as in the server."""
    tokens: list[Token] = []
    for match in _TOKEN.finditer(statement, 0, _SCANNED_MAX):
        if (word := match["word"]) is not None:
            tokens.append((word, True))
        elif (quoted := match["quoted"]) is not None:
            tokens.append((quoted[1:-1].replace(quoted[0] * 2, quoted[0]), True))
        elif match["text"] is not None:
            tokens.append(("''", False))
        elif match["sign"] is not None:
            tokens.append((match["sign"], False))
        if len(tokens) >= _TOKENS_MAX:
            break
    return tokens


def classify(statement: str, database: str) -> BinlogStatement:
    """The kind of a statement. `database` is the session's, for tables without one."""
    tokens = _without_settings(_tokens(statement))
    words = [text.upper() if is_name else text for text, is_name in tokens[:8]] + [""] * 8
    match words[0]:
        case "BEGIN" | "START":
            return BinlogStatement(StatementKind.BEGIN)
        case "COMMIT":
            return BinlogStatement(StatementKind.COMMIT)
        case "ROLLBACK":
            if "TO" in words[1:3] and len(tokens) > 2:
                return BinlogStatement(StatementKind.ROLLBACK_TO, name=tokens[-1][0])
            return BinlogStatement(StatementKind.ROLLBACK)
        case "SAVEPOINT":
            return BinlogStatement(StatementKind.SAVEPOINT, name=tokens[1][0] if len(tokens) > 1 else "")
        case "RELEASE":
            return BinlogStatement(StatementKind.RELEASE, name=tokens[-1][0])
        case "XA":
            return BinlogStatement(StatementKind.XA, name=words[1])
        case "TRUNCATE":
            return BinlogStatement(StatementKind.TRUNCATE, _names(tokens, 2 if words[1] == "TABLE" else 1, database))
        case "DELETE" if words[1] == "FROM":  # of a MEMORY table after a restart; without WHERE it is a TRUNCATE
            names, end = _name_at(tokens, 2, database)
            if names and end == len(tokens):
                return BinlogStatement(StatementKind.TRUNCATE, names)
            return _change(tokens, words, database)
        case "RENAME" if words[1] in ("TABLE", "TABLES"):
            return _rename(tokens, database)
        case "CREATE" | "ALTER" | "DROP":
            return _ddl(tokens, words, database)
        case first if first in _CHANGES:
            return _change(tokens, words, database)
        case _:
            return BinlogStatement(StatementKind.OTHER)


def _without_settings(tokens: list[Token]) -> list[Token]:
    """The tokens behind MariaDB's SET STATEMENT variable = value, ... FOR."""
    if [text.upper() for text, is_name in tokens[:2] if is_name] != ["SET", "STATEMENT"]:
        return tokens
    depth = 0
    for i, (text, is_name) in enumerate(tokens):
        depth += (text == "(") - (text == ")")
        if depth == 0 and is_name and text.upper() == "FOR":
            return tokens[i + 1 :]
    return tokens


def _change(tokens: list[Token], words: list[str], database: str) -> BinlogStatement:
    """CHANGE, unless the table is in the database `mysql`: hosted servers log their heartbeats there as statements."""
    at = 1
    while words[at] in _INTO:
        at += 1
    names, _ = _name_at(tokens, at, database)
    if names and names[0].database == "mysql" and words[0] in ("INSERT", "UPDATE", "DELETE", "REPLACE"):
        return BinlogStatement(StatementKind.OTHER)
    return BinlogStatement(StatementKind.CHANGE, names)


def _ddl(tokens: list[Token], words: list[str], database: str) -> BinlogStatement:
    """CREATE, ALTER or DROP, if it is of tables or of a database; otherwise OTHER."""
    at = 1
    while words[at] in _BEFORE_TABLE and at < len(words) - 1:
        at += 1
    temporary = "TEMPORARY" in words[1 : at + 1]
    kind = StatementKind[words[0]]
    if words[at] in ("INDEX", "UNIQUE", "FULLTEXT", "SPATIAL") or temporary:
        return BinlogStatement(StatementKind.OTHER)
    if words[at] in ("DATABASE", "SCHEMA"):
        name, _ = _name_at(tokens, _after_if(words, at + 1), "")
        return BinlogStatement(kind, tuple(TableName(found.table, "") for found in name))
    if words[at] not in ("TABLE", "TABLES"):
        return BinlogStatement(StatementKind.OTHER)
    at = _after_if(words, at + 1)
    if kind == StatementKind.DROP:
        return BinlogStatement(kind, _names(tokens, at, database))
    names, end = _name_at(tokens, at, database)
    versions = _versions(tokens, end)
    if kind == StatementKind.CREATE:
        return BinlogStatement(kind, names, versions=versions)
    without_rows, others = _without_rows(tokens, end, database)
    renamed = _renamed_to(tokens, end, database)
    return BinlogStatement(kind, names + others, renamed, without_rows=without_rows, versions=versions)


def _after_if(words: list[str], at: int) -> int:
    """The position behind IF EXISTS or IF NOT EXISTS."""
    if words[at] != "IF":
        return at
    return at + (3 if words[at + 1] == "NOT" else 2)


def _name_at(tokens: list[Token], at: int, database: str) -> tuple[tuple[TableName, ...], int]:
    """The name `table` or `database.table` at a position, and the position behind it; no name if there is none."""
    if at >= len(tokens) or not tokens[at][1]:
        return (), at
    if at + 2 < len(tokens) and tokens[at + 1][0] == "." and tokens[at + 2][1]:
        return (TableName(tokens[at][0], tokens[at + 2][0]),), at + 3
    return (TableName(database, tokens[at][0]),), at + 1


def _names(tokens: list[Token], at: int, database: str) -> tuple[TableName, ...]:
    """A list of names with commas."""
    result: list[TableName] = []
    while True:
        names, at = _name_at(tokens, at, database)
        result.extend(names)
        if at >= len(tokens) or tokens[at] != (",", False):
            return tuple(result)
        at += 1


def _rename(tokens: list[Token], database: str) -> BinlogStatement:
    """RENAME TABLE a TO b, c TO d."""
    before: list[TableName] = []
    after: list[TableName] = []
    at = 2
    while at < len(tokens):
        old, at = _name_at(tokens, at, database)
        while at < len(tokens) and tokens[at][0].upper() != "TO":  # WAIT n, NOWAIT of MariaDB
            at += 1
        new, at = _name_at(tokens, at + 1, database)
        before.extend(old)
        after.extend(new)
        if at >= len(tokens) or tokens[at] != (",", False):
            break
        at += 1
    return BinlogStatement(StatementKind.RENAME, tuple(before), tuple(after))


def _renamed_to(tokens: list[Token], at: int, database: str) -> tuple[TableName, ...]:
    """The new name in ALTER TABLE a RENAME [TO | AS | =] b. RENAME COLUMN, INDEX and so on are no new names."""
    for i in _clauses(tokens, at):
        if tokens[i][0].upper() == "RENAME":
            following = tokens[i + 1][0].upper() if i + 1 < len(tokens) else ""
            if following in ("COLUMN", "INDEX", "KEY", "CONSTRAINT"):
                continue
            return _name_at(tokens, i + 2 if following in ("TO", "AS", "=") else i + 1, database)[0]
    return ()


def _clauses(tokens: list[Token], at: int) -> Iterator[int]:
    """The positions of the first words of what an ALTER TABLE does."""
    depth = 0
    for i in range(at, len(tokens)):
        text, is_name = tokens[i]
        depth += (text == "(") - (text == ")")
        if depth == 0 and is_name and (i == at or tokens[i - 1] == (",", False)):
            yield i


def _without_rows(tokens: list[Token], at: int, database: str) -> tuple[str, tuple[TableName, ...]]:
    """The words of an ALTER TABLE that removes or adds rows without rows events, and the other table that it names.

    A column that is called `partition` is quoted, and no name follows it.
    """
    for i in _clauses(tokens, at):
        words = tuple(text.upper() for text, _ in tokens[i : i + 2])
        if words not in _WITHOUT_ROWS:
            continue
        if "TABLESPACE" not in words and not (i + 2 < len(tokens) and tokens[i + 2][1]):
            continue
        for other in range(i + 1, len(tokens)):  # EXCHANGE PARTITION p WITH TABLE t, CONVERT PARTITION p TO TABLE t
            if tokens[other][0].upper() == "TABLE":
                return " ".join(words), _name_at(tokens, other + 1, database)[0]
        return " ".join(words), ()
    return "", ()


def _versions(tokens: list[Token], at: int) -> bool:
    """Whether a table, or a column of it, gets SYSTEM VERSIONING."""
    names = [text.upper() if is_name else "" for text, is_name in tokens[at:]]
    return any(
        names[i : i + 2] == ["SYSTEM", "VERSIONING"] and names[i - 1] in ("ADD", "WITH") for i in range(1, len(names))
    )
