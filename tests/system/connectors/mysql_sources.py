"""Sources of changes of MariaDB and MySQL for tests: random writers, and what a query would read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pymysql

from barnabas.spark.connectors.capture.options import parse_capture_options
from barnabas.spark.connectors.capture.ports import CapturedChanges, Position
from barnabas.spark.connectors.capture.staging import open_staging
from barnabas.spark.connectors.mysql.source import MARIADB, MYSQL, MysqlSource, open_mysql
from barnabas.testing.databases import DatabaseServerError, MariaDbServer, MySqlServer
from tests.progress import wait_until

Rows = dict[Any, dict[str, Any]]


def connect(server: MariaDbServer, database: str = "shop") -> Any:
    return pymysql.connect(
        host="127.0.0.1",
        port=server.port,
        user=server.user,
        password=server.password,
        database=database,
        charset="utf8mb4",
        autocommit=True,
    )


def run(server: MariaDbServer, *statements: str) -> None:
    with connect(server) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def open_source(server: MariaDbServer, folder: Path, table: str, **more: str) -> MysqlSource:
    texts = {
        "stagingLocation": str(folder / "staging"),
        "topic.prefix": "p",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "table.include.list": f"shop.{table}",
        "provide.transaction.metadata": "true",
    } | {name.replace("_", "."): value for name, value in more.items()}
    connector = MYSQL if isinstance(server, MySqlServer) else MARIADB
    options = parse_capture_options(texts, connector.options, connector.refused, connector=connector.name, version="1")
    return open_mysql(options)


def snapshot(source: MysqlSource, folder: Path) -> tuple[Position, list[dict[str, Any]], Any]:
    staging = open_staging(str(folder / "staging"))
    writer = staging.begin(source.identity)
    position = source.take_snapshot(writer, rows=True, follow=True)
    rows: list[dict[str, Any]] = []
    table = None
    for file in writer.manifest(position, 0).files:
        table, batches = staging.read_file(file)
        rows.extend(row for batch in batches for row in batch.to_pylist())
    return position, rows, table


def values(captured: list[CapturedChanges]) -> list[Any]:
    found: list[Any] = []
    for one in captured:
        for part in one.tables:
            changes = part.changes
            sides = [None if side is None else side.to_pylist() for side in (changes.before, changes.after)]
            order = [changes.ordinal.tolist(), changes.total_order.tolist(), changes.table_order.tolist()]
            found.append([bytes(changes.op), sides, order, part.places.to_pylist(), changes.transaction.to_pylist()])
    return found


def fold(rows: Rows, captured: list[CapturedChanges]) -> None:
    for one in captured:
        for part in one.tables:
            changes = part.changes
            assert not changes.unavailable
            names = [changes.table.columns[i].name for i in changes.table.key]
            size = len(changes)
            before = [None] * size if changes.before is None else changes.before.to_pylist()
            after = [None] * size if changes.after is None else changes.after.to_pylist()
            for old, new in zip(before, after, strict=True):
                if old is not None:
                    rows.pop(tuple(old[name] for name in names), None)
                if new is not None:
                    rows[tuple(new[name] for name in names)] = new


def read_all(source: MysqlSource, position: Position) -> tuple[list[CapturedChanges], Position]:
    end = source.find_end(position, None, None)
    return list(source.read(position, end)), end


def write_at_random(server: MariaDbServer, table: str, rng: random.Random, count: int) -> None:
    with connect(server) as connection, connection.cursor() as cursor:
        for _ in range(count):
            connection.begin()
            for _ in range(rng.randint(1, 4)):
                key, other = rng.randint(1, 50), rng.randint(1, 50)
                match rng.randint(0, 3):
                    case 0:
                        cursor.execute(f"INSERT IGNORE INTO {table} VALUES (%s, %s)", (key, rng.random()))
                    case 1:
                        cursor.execute(f"UPDATE {table} SET v = %s WHERE id = %s", (rng.random(), key))
                    case 2:
                        cursor.execute(f"UPDATE IGNORE {table} SET id = %s WHERE id = %s", (other, key))
                    case 3:
                        cursor.execute(f"DELETE FROM {table} WHERE id = %s", (key,))
            (connection.rollback if rng.random() < 0.2 else connection.commit)()


def table_rows(server: MariaDbServer, table: str) -> Rows:
    with connect(server) as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        return {(row["id"],): row for row in cursor.fetchall()}


def has_table(server: MariaDbServer, table: str) -> bool:
    with connect(server, "") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM information_schema.tables WHERE table_name = %s", (table,))
        return bool(cursor.fetchall())


def purge_older(server: MariaDbServer) -> None:
    """Delete all binlogs but the newest one."""
    with connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOG STATUS" if isinstance(server, MySqlServer) else "SHOW MASTER STATUS")
        newest = cursor.fetchall()[0][0]

        def purge() -> bool:
            cursor.execute(f"PURGE BINARY LOGS TO '{newest}'")
            cursor.execute("SHOW BINARY LOGS")
            return [row[0] for row in cursor.fetchall()] == [newest]

        wait_until(purge, "the server needs the older binlogs no more")  # after its next binlog checkpoint


def without_places(found: list[Any]) -> list[Any]:
    return [[*one[:3], one[4]] for one in found]


class InstalledMySql(MySqlServer):
    """The server that `install_mysql.sh` has installed, or that of the system."""

    @classmethod
    def folders(cls) -> list[str]:
        return ["/var/tmp/barnabas-mysql/bin", *super().folders()]


def missing_mysql() -> str:
    """Why there is no MySQL server, for the reason of a skipped test; empty if there is one."""
    try:
        InstalledMySql.find("mysqld")
    except DatabaseServerError as error:
        return f"{error}; or run tests/system/connectors/install_mysql.sh"
    return ""
