"""Two databases with the same two tables, for the tests of change capture: `shop.kinds` with columns of all types, and
`shop.marks`; and threads that change them at random.

Every change of a row adds one to its column `version`, and an insert sets it to zero. So the changes of a row form a
chain, in which a change that is missing, repeated or out of order is seen.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pymysql

from barnabas.testing.databases import DatabaseServer, MariaDbServer, PostgresServer
from tests.system.connectors.typed_columns import MARIADB, POSTGRES, TypedColumn, text, whole

Row = dict[str, Any]
LARGE_BYTES = 8 << 20
COPIES = {
    "kinds": {"version": "integer", "small": "integer", "note": "text"},
    "marks": {"version": "integer", "kind": "integer", "mark": "text"},
}
"""The tables that are copied from one database to the other, with the columns that both have; `note` is often large."""
MARKS = {"kind": TypedColumn("INTEGER", whole(0, 99)), "mark": TypedColumn("varchar(100)", text)}


class Shop:
    """One database. `name` is the prefix of its topics."""

    name = ""
    columns: ClassVar[dict[str, TypedColumn]] = {}
    insert_ends = ("INSERT INTO", "")
    """The beginning and the end of an INSERT that leaves out a row whose key exists."""
    update = "UPDATE"
    """The beginning of an UPDATE of a key, which may be taken."""

    def __init__(self, server: DatabaseServer) -> None:
        self.server = server
        self.tables = {"shop.kinds": self.columns, "shop.marks": MARKS}

    def connect(self) -> Any:
        raise NotImplementedError

    def create(self, rows: int) -> None:
        """Create the tables, with rows whose keys begin at 0."""
        rng = random.Random(0)
        session = self.connect()
        cursor = session.cursor()
        self.prepare(cursor)
        for table, columns in self.tables.items():
            parts = ["id INTEGER PRIMARY KEY", "version INTEGER NOT NULL"]
            parts += [f"{name} {column.type}" for name, column in columns.items()]
            cursor.execute(f"CREATE TABLE {table} ({', '.join(parts)}) {self.table_options}")
            for key in range(rows):
                self.insert(cursor, table, key, {name: column.make(rng) for name, column in columns.items()})
        session.commit()
        session.close()

    table_options = ""

    def prepare(self, cursor: Any) -> None:
        """Create what the tables need."""

    def insert(self, cursor: Any, table: str, key: int, values: Row) -> None:
        names = ", ".join(("id", "version", *values))
        marks = ", ".join(["%s"] * (len(values) + 2))
        begin, end = self.insert_ends
        cursor.execute(f"{begin} {table} ({names}) VALUES ({marks}) {end}", (key, 0, *values.values()))

    def add_column(self, cursor: Any, name: str) -> None:
        """Add a column to `shop.kinds`, if another thread has not done that."""
        cursor.execute(f"ALTER TABLE shop.kinds ADD COLUMN IF NOT EXISTS {name} INTEGER")

    def options(self, folder: Path) -> dict[str, str]:
        """The options of a query that captures both tables as events, whose values show what `TypedColumn`s say."""
        return {
            "stagingLocation": str(folder / f"{self.name}-staging"),
            "topic.prefix": self.name,
            "maxBytesPerTrigger": "16m",
            "table.include.list": r"shop\.kinds,shop\.marks",
            "decimal.handling.mode": "string",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
        }

    def create_copies(self) -> None:
        """Create the tables that are written with changes of the other database: `copies.kinds` and `copies.marks`."""
        session = self.connect()
        cursor = session.cursor()
        cursor.execute(f"CREATE {self.namespace}")
        for table, columns in COPIES.items():
            parts = ["id INTEGER PRIMARY KEY", *(f"{name} {self.copy_types[kind]}" for name, kind in columns.items())]
            cursor.execute(f"CREATE TABLE copies.{table} ({', '.join(parts)}) {self.table_options}")
        session.commit()
        session.close()

    namespace = ""
    copy_types: ClassVar[dict[str, str]] = {}

    def sink_options(self) -> dict[str, str]:
        """The options of a query that writes topics of the other database, the columns of COPIES, into `copies`."""
        return {
            "insert.mode": "upsert",
            "pk.mode": "record_key",
            "delete.enabled": "true",
            "fields.include": ",".join(sorted({name for columns in COPIES.values() for name in columns})),
            "key.converter": "JsonConverter",
            "value.converter": "JsonConverter",
            "transforms": "unwrap,name",
            "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.name.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.name.regex": r".*\.(\w+)",
            "transforms.name.replacement": "$1",
            "connection.attempts": "100",
            "connection.backoff.ms": "500",
        }

    def values(self, table: str, columns: Sequence[str]) -> dict[int, Row]:
        """Columns of a table by key, as they are."""
        session = self.connect()
        cursor = session.cursor()
        cursor.execute(f"SELECT id, {', '.join(columns)} FROM {table}")
        found = {key: dict(zip(columns, row, strict=True)) for key, *row in cursor.fetchall()}
        session.close()
        return found

    def topic(self, table: str) -> str:
        return f"{self.name}.{table}"

    def rows(self, table: str) -> dict[int, Row]:
        """The rows by key, with the values that events should show."""
        session = self.connect()
        cursor = session.cursor()
        cursor.execute(f"SELECT * FROM {table} WHERE id < 0")
        columns = self.tables[table]
        names = [one[0] for one in cursor.description]
        selects = [columns[name].select.format(name) if name in columns else name for name in names]
        cursor.execute(f"SELECT {', '.join(selects)} FROM {table}")
        found = {}
        for values in cursor.fetchall():
            row = dict(zip(names, values, strict=True))
            for name, column in columns.items():
                if row[name] is not None:
                    row[name] = column.shown(row[name])
            found[row["id"]] = row
        session.close()
        return found


class PostgresShop(Shop):
    name = "pg"
    columns = POSTGRES
    namespace = "SCHEMA copies"
    copy_types: ClassVar[dict[str, str]] = {"integer": "integer", "text": "text"}
    insert_ends = ("INSERT INTO", "ON CONFLICT (id) DO NOTHING")

    def connect(self) -> Any:
        assert isinstance(self.server, PostgresServer)
        return psycopg.connect(self.server.conninfo, options="-c timezone=UTC")

    def prepare(self, cursor: Any) -> None:
        cursor.execute("CREATE SCHEMA shop")
        cursor.execute("CREATE TYPE shop.mood AS ENUM ('sad', 'it''s ok')")

    def options(self, folder: Path) -> dict[str, str]:
        return super().options(folder) | {
            "format": "barnabas.postgres",
            "unavailable.value.handling.mode": "null",  # rows are often gone after their keys have changed
            "connection.attempts": "200",
            "connection.backoff.ms": "500",
            "database.user": "postgres",
            "database.dbname": "postgres",
            "slot.name": "shop",
            "publication.name": "shop",
            "slot.retry.delay.ms": "200",
            "slot.max.retries": "100",
        }

    def sink_options(self) -> dict[str, str]:
        url = f"jdbc:postgresql://127.0.0.1:{self.server.port}/postgres?currentSchema=copies"
        return super().sink_options() | {
            "format": "barnabas.postgres",
            "connection.url": url,
            "connection.user": "postgres",
        }


class MariaDbShop(Shop):
    name = "my"
    columns = MARIADB
    namespace = "DATABASE copies DEFAULT CHARSET utf8mb4"
    copy_types: ClassVar[dict[str, str]] = {"integer": "INTEGER", "text": "LONGTEXT"}
    insert_ends = ("INSERT IGNORE INTO", "")
    update = "UPDATE IGNORE"
    table_options = "DEFAULT CHARSET utf8mb4"

    def connect(self) -> Any:
        assert isinstance(self.server, MariaDbServer)
        return pymysql.connect(
            host="127.0.0.1",
            port=self.server.port,
            user=self.server.user,
            password=self.server.password,
            charset="utf8mb4",
            init_command="SET time_zone = '+00:00'",
        )

    def prepare(self, cursor: Any) -> None:
        cursor.execute("SET GLOBAL max_allowed_packet = 67108864")

    def options(self, folder: Path) -> dict[str, str]:
        assert isinstance(self.server, MariaDbServer)
        return super().options(folder) | {
            "format": "barnabas.mariadb",
            "database.user": self.server.user,
            "database.password": self.server.password,
        }

    def sink_options(self) -> dict[str, str]:
        assert isinstance(self.server, MariaDbServer)
        return super().sink_options() | {
            "format": "barnabas.mariadb",
            "connection.url": f"jdbc:mariadb://127.0.0.1:{self.server.port}/copies",
            "connection.user": self.server.user,
            "connection.password": self.server.password,
        }


class MySqlShop(MariaDbShop):
    def add_column(self, cursor: Any, name: str) -> None:
        try:
            cursor.execute(f"ALTER TABLE shop.kinds ADD COLUMN {name} INTEGER")
        except pymysql.OperationalError as error:
            if error.args[0] != pymysql.constants.ER.DUP_FIELDNAME:
                raise

    def options(self, folder: Path) -> dict[str, str]:
        return super().options(folder) | {"format": "barnabas.mysql"}

    def sink_options(self) -> dict[str, str]:
        return super().sink_options() | {
            "format": "barnabas.mysql",
            "connection.url": f"jdbc:mysql://127.0.0.1:{self.server.port}/copies",
        }


@dataclass
class ShopWriters:
    """Threads that change the tables of a shop at random until `stop` is called; they survive the server's death."""

    shop: Shop
    seed: int
    keys: int
    large: int
    """How many rows with large values are written."""
    failures: list[Exception] = field(default_factory=list)
    """What has ended a thread."""
    done: Counter[str] = field(default_factory=Counter)
    """Committed changes by their kind."""
    extras: list[str] = field(default_factory=list)
    """Columns that were added."""
    _threads: list[threading.Thread] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, threads: int) -> None:
        for number in range(threads):
            thread = threading.Thread(target=self._run, args=(random.Random(self.seed * 100 + number),), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        assert not self.failures

    def _run(self, rng: random.Random) -> None:
        while not self._stopped.is_set():
            session = None
            try:
                session = self.shop.connect()
                while not self._stopped.is_set():
                    self._transaction(session, rng)
                    self._stopped.wait(0.03)
            except (psycopg.OperationalError, psycopg.IntegrityError, pymysql.OperationalError, pymysql.InterfaceError):
                self._stopped.wait(0.05)  # the server is down, a deadlock was broken, or the new key is taken
            except Exception as error:  # noqa: BLE001 - the test fails with it
                self.failures.append(error)
                return
            finally:
                if session is not None:
                    session.close()

    def _transaction(self, session: Any, rng: random.Random) -> None:
        changes: Counter[str] = Counter()
        cursor = session.cursor()
        if self._wants_column():
            name = f"extra_{len(self.extras)}"
            self.shop.add_column(cursor, name)
            session.commit()
            self.extras.append(name)
            changes["ddl"] += 1
        elif self._wants_large():
            self._change_large(session, cursor, rng)
            changes["large"] += 1
        else:
            for _ in range(rng.choice((1, 1, 3, 12))):
                changes[self._change(cursor, rng)] += 1
            if rng.random() < 0.1:
                session.rollback()
                return
            session.commit()
        with self._lock:
            self.done += changes

    def _wants_column(self) -> bool:
        with self._lock:
            return self.done["update"] > 20 * (1 + self.done["ddl"]) and self.done["ddl"] < 9

    def _wants_large(self) -> bool:
        with self._lock:
            wanted = self.large > 0 and self.done["update"] > 30 * self.done["large"]
            self.large -= wanted
            return wanted

    def _values(self, rng: random.Random, columns: dict[str, TypedColumn], share: float) -> Row:
        """New values for some of the columns."""
        chosen: Row = {}
        for name, column in columns.items():
            if rng.random() < share:
                chosen[name] = None if rng.random() < 0.2 else column.make(rng)
        if columns is self.shop.columns and self.extras:
            chosen[rng.choice(self.extras)] = rng.randrange(1000)
        return chosen

    def _change(self, cursor: Any, rng: random.Random) -> str:
        table = rng.choice(("shop.kinds", "shop.kinds", "shop.marks"))
        columns = self.shop.tables[table]
        key, other = rng.randrange(self.keys), rng.randrange(self.keys)
        match rng.randrange(10):
            case 0 | 1:
                self.shop.insert(cursor, table, key, self._values(rng, columns, 0.9))
                return "insert"
            case 2 | 3 | 4:
                self._update(cursor, table, self._values(rng, columns, 0.3), f"id = {key}")
                return "update"
            case 5:
                self._update(cursor, table, self._values(rng, columns, 0.1), f"id BETWEEN {key} AND {key + 4}")
                return "updates"
            case 6:
                cursor.execute(f"DELETE FROM {table} WHERE id = {key}")
                return "delete"
            case 7:
                cursor.execute(f"{self.shop.update} {table} SET id = {other}, version = version + 1 WHERE id = {key}"
                               f" AND id <> {other}")  # fmt: skip
                return "key"
            case 8:
                cursor.execute("SAVEPOINT s")
                self._update(cursor, table, self._values(rng, columns, 0.1), f"id = {key}")
                if rng.random() < 0.5:
                    cursor.execute("ROLLBACK TO SAVEPOINT s")
                return "savepoint"
            case _:
                large = {"note": rng.randbytes(1_500).hex(), "file": rng.randbytes(3_000)}
                self._update(cursor, "shop.kinds", large, f"id = {key}")
                return "toast"

    def _update(self, cursor: Any, table: str, values: Row, where: str) -> None:
        sets = "".join(f", {name} = %s" for name in values)
        cursor.execute(f"UPDATE {table} SET version = version + 1{sets} WHERE {where}", tuple(values.values()))

    def _change_large(self, session: Any, cursor: Any, rng: random.Random) -> None:
        """A row with a large text or large bytes: inserted, changed elsewhere, moved to another key, often deleted."""
        key = self.keys + 10 + 2 * rng.randrange(3)
        block = rng.randbytes(LARGE_BYTES // 64)
        large = {"file": block * 64} if rng.random() < 0.5 else {"note": block.hex()[: LARGE_BYTES // 64] * 64}
        cursor.execute(f"DELETE FROM shop.kinds WHERE id IN ({key}, {key + 1})")
        self.shop.insert(cursor, "shop.kinds", key, large)
        session.commit()
        self._update(cursor, "shop.kinds", {"small": 5}, f"id = {key}")
        session.commit()
        cursor.execute(f"UPDATE shop.kinds SET id = {key + 1}, version = version + 1 WHERE id = {key}")
        session.commit()
        if rng.random() < 0.5:
            cursor.execute(f"DELETE FROM shop.kinds WHERE id = {key + 1}")
            session.commit()
