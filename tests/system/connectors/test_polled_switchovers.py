"""Polled tables and queries whose server became another one: a promoted standby, a restored copy, another server.

No row is passed over: the query reads on where it was, or stops with an error that names both.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from barnabas.spark.connectors.capture.ports import Position
from barnabas.spark.connectors.polling.mysql import open_mysql_polling, parse_mysql_polling
from barnabas.spark.connectors.polling.postgres import open_postgres_polling, parse_postgres_polling
from barnabas.spark.connectors.polling.source import PollingSource
from barnabas.spark.errors import DataLossError
from barnabas.testing.databases import DatabaseServer, MariaDbServer, PostgresServer
from tests.progress import wait_until
from tests.system.connectors.mysql_sources import InstalledMySql, missing_mysql, run
from tests.system.connectors.postgres_sources import session

pytestmark = pytest.mark.system

CREATE = "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(20))"
QUERY = {"query": "SELECT * FROM orders WHERE id > 0"}
TABLE = {"table.whitelist": "orders"}
GOES_ON = {"failOnDataLoss": "false"}


class StandbyServer(PostgresServer):
    """A standby of a server, from which it was copied."""

    READY = b"database system is ready to accept"

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__()
        self._primary = primary

    def creation(self) -> list[str]:
        where = ["--host=127.0.0.1", f"--port={self._primary.port}", "--username=postgres", f"--pgdata={self.data_dir}"]
        return [self.find("pg_basebackup"), *where, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]


def texts(server: DatabaseServer, folder: Path, **more: str) -> dict[str, str]:
    found = {
        "connection.user": "postgres",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "stagingLocation": str(folder / "staging"),
        "poll.interval.ms": "0",
        "timestamp.delay.interval.ms": "0",
        "output": "rows",
    }
    if isinstance(server, MariaDbServer):
        kind = "mysql" if isinstance(server, InstalledMySql) else "mariadb"
        found |= {"connection.url": f"jdbc:{kind}://127.0.0.1:{server.port}/shop"}
        found |= {"connection.user": server.user, "connection.password": server.password}
    else:
        found |= {"connection.url": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"}
    return found | more


@contextmanager
def polling(given: dict[str, str]) -> Iterator[PollingSource]:
    is_postgres = given["connection.url"].startswith("jdbc:postgresql")
    source = (
        open_postgres_polling(parse_postgres_polling(given))
        if is_postgres
        else open_mysql_polling(parse_mysql_polling(given))
    )
    with closing(source):
        yield source


def read(given: dict[str, str], position: Position | None, count: int) -> tuple[list[tuple[int, str]], Position]:
    """The next rows of a query that is started, at least so many, and its position behind them."""
    rows: list[tuple[int, str]] = []
    with polling(given) as source:
        position = source.take_snapshot(None, rows=True, follow=True) if position is None else position  # type: ignore[arg-type]
        while len(rows) < count:  # numbers of PostgreSQL are final only when all transactions have ended
            end = source.find_end(position, 1 << 20, None)
            for one in source.read(position, end):
                rows += [(row["id"], row["note"]) for row in one.tables[0].changes.after.to_pylist()]
            position = end
    return rows, position


def insert(first: int, last: int, note: str) -> str:
    """Rows with these numbers."""
    return "INSERT INTO orders VALUES " + ", ".join(f"({n}, '{note}{n}')" for n in range(first, last + 1))


def numbers(rows: list[tuple[int, str]]) -> list[int]:
    return [number for number, _ in rows]


def restored(server: DatabaseServer, folder: Path, later: Callable[[], None]) -> None:
    """Copy the stopped server's directory, run `later` on the server, and put the copy in its place."""
    server.stop()
    subprocess.run(["cp", "-a", str(server.data_dir), str(folder / "copy")], check=True)
    server.start()
    later()
    server.stop()
    shutil.rmtree(server.data_dir)
    subprocess.run(["cp", "-a", str(folder / "copy"), str(server.data_dir)], check=True)
    shutil.rmtree(folder / "copy")
    server.start()


def test_a_promoted_standby_of_postgres_is_read_on_and_an_older_copy_of_it_is_not(tmp_path: Path) -> None:
    with PostgresServer() as primary, StandbyServer(primary) as standby:
        with session(primary) as admin:
            admin.execute(CREATE)
            admin.execute(insert(1, 100, "old"))
            rows, table = read(texts(primary, tmp_path / "t", **TABLE), None, 100)
            assert numbers(rows) == list(range(1, 101))
            _, query = read(texts(primary, tmp_path / "q", **QUERY), None, 100)
            ((sent,),) = admin.execute("SELECT pg_current_wal_flush_lsn()").fetchall()
        with session(standby) as admin:
            wait_until(
                lambda: admin.execute("SELECT pg_last_wal_replay_lsn() >= %s", (sent,)).fetchall() == [(True,)],
                "the standby has all changes",
            )
            primary.kill()
            admin.execute("SELECT pg_promote()")
            admin.execute("UPDATE orders SET note = 'changed' WHERE id = 100")
            admin.execute(insert(101, 102, "new"))
        rows, table = read(texts(standby, tmp_path / "t", **TABLE), table, 2)
        assert numbers(rows) == [101, 102]
        rows, query = read(texts(standby, tmp_path / "q", **QUERY), query, 2)
        assert numbers(rows) == [101, 102]

        standby.kill()
        standby.start()  # a crash is nothing else
        with session(standby) as admin:
            admin.execute("UPDATE orders SET note = 'changed' WHERE id = 102")
            admin.execute(insert(103, 103, "new"))
        rows, table = read(texts(standby, tmp_path / "t", **TABLE), table, 1)
        assert numbers(rows) == [103]

        later: list[Position] = []

        def go_on() -> None:
            with session(standby) as admin:
                admin.execute("SELECT pg_switch_wal()")
                admin.execute(insert(104, 150, "lost"))
                for name, given, position in (("t", TABLE, table), ("q", QUERY, query)):
                    later.append(read(texts(standby, tmp_path / name, **given), position, 47)[1])

        restored(standby, tmp_path, go_on)
        with session(standby) as admin:
            admin.execute(insert(104, 160, "other"))
        for name, given, position in zip("tq", (TABLE, QUERY), later, strict=True):
            options = texts(standby, tmp_path / name, **given)
            with pytest.raises(
                DataLossError, match=r"an older copy\. The query has read up to \w+/\w+ of the server's"
            ):
                read(options, position, 1)
            rows, _ = read(options | GOES_ON, position, 160)
            assert rows[103:] == [(n, f"other{n}") for n in range(104, 161)]


def test_another_server_of_postgres_and_a_truncated_partition_are_noticed(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    by_query = {"query": "SELECT * FROM moved.orders"}
    by_table = {"schema.pattern": "moved", **TABLE}
    partition = "CREATE TABLE moved.orders_{0} PARTITION OF moved.orders FOR VALUES FROM ({0}) TO ({1})"
    with session(postgres) as admin, psycopg.connect(postgres.conninfo) as connection:
        admin.execute("CREATE SCHEMA moved")
        admin.execute("CREATE TABLE moved.orders (id INT PRIMARY KEY, note VARCHAR(20)) PARTITION BY RANGE (id)")
        admin.execute(partition.format(0, 200))
        connection.execute("SET search_path = moved")
        connection.execute(insert(1, 100, "old"))
        connection.commit()
        _, position = read(texts(postgres, tmp_path / "t", **by_table), None, 100)
        admin.execute(partition.format(200, 300))
        connection.execute(insert(101, 201, "old"))
        connection.commit()
        rows, position = read(texts(postgres, tmp_path / "t", **by_table), position, 101)
        assert numbers(rows) == list(range(101, 202))
        _, query = read(texts(postgres, tmp_path / "q", **by_query), None, 201)
        connection.execute("TRUNCATE orders")
        connection.execute(insert(1, 250, "new"))
        connection.commit()
        with pytest.raises(DataLossError, match=r"orders was replaced: the position belongs to the one with file of o"):
            read(texts(postgres, tmp_path / "t", **by_table), position, 1)
    with PostgresServer() as other, session(other) as admin:
        admin.execute("CREATE SCHEMA moved")
        admin.execute(CREATE.replace("orders", "moved.orders"))
        admin.execute(insert(1, 250, "new").replace("orders", "moved.orders"))
        with pytest.raises(DataLossError, match=r"was replaced: the position belongs to the one with system \d+"):
            read(texts(other, tmp_path / "q", **by_query), query, 1)


OLDER = r"an older copy\. Its database had counted \d+ changes"
COPIED = {(kind, name): OLDER for kind in (MariaDbServer, InstalledMySql) for name in "tq"}
COPIED[MariaDbServer, "t"] = r"was replaced: the position belongs to the one with created"
"""How a copy is noticed: MariaDB has the time of the table's file, which a copy changes."""


@pytest.mark.parametrize(
    "kind", [MariaDbServer, pytest.param(InstalledMySql, marks=pytest.mark.slow)], ids=["mariadb", "mysql"]
)
def test_older_copies_and_other_servers_of_mariadb_and_mysql_are_noticed(
    kind: type[MariaDbServer], tmp_path: Path
) -> None:
    if kind is InstalledMySql and (missing := missing_mysql()):
        pytest.skip(missing)
    with kind() as server:
        run(server, CREATE, insert(1, 100, "old"))
        _, table = read(texts(server, tmp_path / "t", **TABLE), None, 100)
        _, query = read(texts(server, tmp_path / "q", **QUERY), None, 100)
        run(server, "UPDATE orders SET note = 'changed' WHERE id = 100", insert(101, 101, "new"))
        server.kill()
        server.start()  # a crash is nothing else
        rows, table = read(texts(server, tmp_path / "t", **TABLE), table, 1)
        assert numbers(rows) == [101]
        rows, query = read(texts(server, tmp_path / "q", **QUERY), query, 1)
        assert numbers(rows) == [101]

        later: list[Position] = []

        def go_on() -> None:
            run(server, "CREATE TABLE big (v LONGTEXT)", "INSERT INTO big VALUES (REPEAT('x', 1000000))")
            run(server, insert(102, 150, "lost"))
            for name, given, position in (("t", TABLE, table), ("q", QUERY, query)):
                later.append(read(texts(server, tmp_path / name, **given), position, 49)[1])

        restored(server, tmp_path, go_on)
        run(server, insert(102, 160, "other"))
        for name, given, position in zip("tq", (TABLE, QUERY), later, strict=True):
            options = texts(server, tmp_path / name, **given)
            with pytest.raises(DataLossError, match=COPIED[kind, name]):
                read(options, position, 1)
            rows, _ = read(options | GOES_ON, position, 160)
            assert rows[101:] == [(n, f"other{n}") for n in range(102, 161)]

        partitions = (
            "PARTITION BY RANGE (id) (PARTITION p_1 VALUES LESS THAN (200), PARTITION p_2 VALUES LESS THAN (300))"
        )
        run(server, "DROP TABLE orders", f"{CREATE} {partitions}", insert(1, 201, "old"))
        _, table = read(texts(server, tmp_path / "p", **TABLE), None, 201)
        run(server, "TRUNCATE TABLE orders", insert(1, 250, "new"))
        with pytest.raises(
            DataLossError, match=r"orders was replaced: the position belongs to the one with .*number#p#p_1"
        ):
            read(texts(server, tmp_path / "p", **TABLE), table, 1)

    with kind() as other:
        run(other, CREATE, insert(1, 170, "new"))
        for name, given, position in zip("tq", (TABLE, QUERY), later, strict=True):
            with pytest.raises(DataLossError, match=r"was replaced"):
                read(texts(other, tmp_path / name, **given), position, 1)
