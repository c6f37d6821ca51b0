"""Shell: asks a server for its setup and its captured tables, for `server.py`, `unlogged.py` and `columns.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.spark.connectors.mysql.changes import CapturedTables
from barnabas.spark.connectors.mysql.columns import COLUMNS_QUERY, SnapshotTable, quote_name, snapshot_table
from barnabas.spark.connectors.mysql.errors import MysqlSourceError, ServerConnectionError
from barnabas.spark.connectors.mysql.keys import PRIMARY_KEYS_QUERY, promoted_key
from barnabas.spark.connectors.mysql.server import VARIABLES, ServerPlan, judge, server_version, status_statement
from barnabas.spark.connectors.mysql.session import MysqlSession
from barnabas.spark.connectors.mysql.unlogged import (
    SYSTEM_VERSIONED,
    BinlogScope,
    cascade_warnings,
    logs_replicated,
    versioned_error,
    writes_cascades,
)

_THREADS: Final = (10, 11)
"""The places of Replica_IO_Running and Replica_SQL_Running in SHOW REPLICA STATUS: Yes, No, or Connecting."""
_THREADS_OF_MARIADB: Final = (12, 13)
"""The places of Slave_IO_Running and Slave_SQL_Running in SHOW ALL SLAVES STATUS."""


def read_variables(session: MysqlSession) -> dict[str, str]:
    """Those of VARIABLES that the server knows."""
    found = dict(session.rows("SHOW GLOBAL VARIABLES", "reading the variables"))
    return {name: found[name] for name in VARIABLES if name in found}


def read_plan(session: MysqlSession, tables: Iterable[SnapshotTable]) -> ServerPlan:
    """The plan for a server. Raises ServerSetupError if the server or the user is not set up."""
    variables = read_variables(session)
    grants = [row[0] for row in session.rows("SHOW GRANTS", "reading the privileges")]
    databases = sorted({one.table.database for one in tables})
    return judge(variables, grants, databases, scope=_read_scope(session, variables))


def _read_scope(session: MysqlSession, variables: Mapping[str, str]) -> BinlogScope:
    mariadb, version = server_version(variables)
    statement = status_statement(version, mariadb=mariadb)
    found = _rows_if_allowed(session, statement, "reading the filters of the binlog")  # `judge` names the privilege
    filters = found[0][2:4] if found else ("", "")
    do_databases, ignored = (tuple(name for name in str(names or "").split(",") if name) for names in filters)
    is_replica = False if logs_replicated(variables) else _is_replica(session, version, mariadb=mariadb)
    return BinlogScope(is_replica, do_databases, ignored)


def _is_replica(session: MysqlSession, version: tuple[int, ...], *, mariadb: bool) -> bool | None:
    """Whether a server replicates from another one. None if the user may not ask, or if replication is stopped: the
    server may have been promoted.
    """
    statement = "SHOW REPLICA STATUS" if version >= (8, 0, 22) else "SHOW SLAVE STATUS"
    found = _rows_if_allowed(session, "SHOW ALL SLAVES STATUS" if mariadb else statement, "reading the replication")
    if found is not None:
        threads = _THREADS_OF_MARIADB if mariadb else _THREADS
        return any(row[place] != "No" for row in found for place in threads) or (None if found else False)
    running = session.rows("SHOW GLOBAL STATUS LIKE 'Slaves_running'", "reading the replication")
    return True if any(int(row[1]) for row in running) else None


def _rows_if_allowed(session: MysqlSession, statement: str, doing: str) -> list[tuple[Any, ...]] | None:
    """The rows of a statement; None if the server refuses it."""
    try:
        return session.rows(statement, doing)
    except ServerConnectionError:
        raise
    except MysqlSourceError:
        return None


def read_tables(session: MysqlSession, captured: CapturedTables) -> list[SnapshotTable]:
    """The captured tables, with the keys that changes have.

    Raises ServerSetupError if a captured table is WITH SYSTEM VERSIONING.
    """
    tables: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for row in session.rows(COLUMNS_QUERY, "reading the tables"):
        if captured.has(row[0], row[1]):
            tables.setdefault((row[0], row[1]), []).append(row)
    versioned = [name for name, rows in tables.items() if rows[0][13] == SYSTEM_VERSIONED]
    if versioned:
        raise versioned_error(versioned)
    keys: dict[tuple[str, str], list[str]] = {}
    for database, table, column in session.rows(PRIMARY_KEYS_QUERY, "reading the primary keys"):
        keys.setdefault((database, table), []).append(column)
    return [
        snapshot_table(name, rows, keys[name] if name in keys else _read_promoted_key(session, name, rows))
        for name, rows in tables.items()
    ]


def _read_promoted_key(
    session: MysqlSession, name: tuple[str, str], rows: Iterable[tuple[Any, ...]]
) -> tuple[str, ...]:
    described = list(rows)
    virtual = {row[2] for row in described if "VIRTUAL" in str(row[12]).upper()}
    indexes = session.rows(f"SHOW KEYS FROM {_quoted(name)}", f"reading the keys of {'.'.join(name)}")
    return promoted_key(indexes, virtual, str(described[0][11]))


def read_cascade_warnings(session: MysqlSession, tables: Iterable[SnapshotTable]) -> list[str]:
    """A warning for each foreign key that changes a captured table without events.

    `information_schema.referential_constraints` of MariaDB is empty for a user who has no privilege but SELECT.
    """
    if writes_cascades(read_variables(session)):
        return []
    warnings = []
    for one in tables:
        if one.transactional:
            name = (one.table.database, one.table.name)
            [row] = session.rows(f"SHOW CREATE TABLE {_quoted(name)}", f"reading the keys of {'.'.join(name)}")
            warnings += cascade_warnings(*name, str(row[1]))
    return warnings


def _quoted(name: tuple[str, str]) -> str:
    return ".".join(quote_name(part) for part in name)
