"""Two tables of PostgreSQL through topics into every kind of sink, while everything is killed at random, keys change
beside large values that do not, and columns are added, dropped, renamed and widened.

    shop.plain    REPLICA IDENTITY DEFAULT: the server does not send large values that a change leaves alone
    shop.whole    REPLICA IDENTITY FULL

A change of columns has no events, so each one is followed by an update of all rows, in the same transaction, which
writes a renamed value again. This is what a user does who wants the copies to follow.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.json as pj
import pymysql
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.spark.connectors.lake.iceberg import open_catalog
from barnabas.testing.databases import MariaDbServer, PostgresServer
from barnabas.testing.process import BrokerProcess
from tests.system.connectors.driver_process import Driver
from tests.system.connectors.replays import Found, differences, payload, read_topic

Row = dict[str, Any]
TABLES: Final = ("plain", "whole")
KEYS: Final = 40
FAULTS: Final = {"driver": 1, "worker": 2, "broker": 2, "postgres": 2, "mariadb": 2}
"""What is killed, and how often by comparison: a driver takes a minute to start again."""
KINDS: Final = ("insert", "update", "delete", "key", "big", "big and key", "null", "add", "drop", "rename", "widen")
WIDER: Final = {"integer": "bigint", "character varying20": "varchar(60)", "character varying60": "text"}
"""The types of two columns, and what they become. Sinks never change a type, so their tables begin with BIGINT."""
EXTRAS: Final = {"integer": "version", "text DEFAULT 'none'": "", "bytea": "file", "boolean DEFAULT true": ""}
"""Columns that are added, and what the rows get in them beside their default."""


@dataclass
class Source:
    """The database that is captured, and a thread for each table that changes it until `stop` is called."""

    server: PostgresServer
    seed: int
    pause_s: float = 0.2
    done: Counter[str] = field(default_factory=Counter)
    failures: list[Exception] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def create(self) -> None:
        with psycopg.connect(self.server.conninfo, autocommit=True) as session:
            session.execute("CREATE SCHEMA shop")
            for table in TABLES:
                session.execute(
                    f"CREATE TABLE shop.{table} (id integer PRIMARY KEY, version integer NOT NULL, amount integer,"
                    " code varchar(20), big text, file bytea)"
                )
                for name in ("big", "file"):
                    session.execute(f"ALTER TABLE shop.{table} ALTER {name} SET STORAGE EXTERNAL")
            session.execute("ALTER TABLE shop.whole REPLICA IDENTITY FULL")

    def start(self) -> None:
        for number, table in enumerate(TABLES):
            changes = TableChanges(table, random.Random(self.seed * 10 + number), self.done)
            thread = threading.Thread(target=self._run, args=(changes,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        assert not self.failures

    def rows(self, table: str) -> dict[int, Row]:
        with psycopg.connect(self.server.conninfo) as session:
            cursor = session.execute(f"SELECT * FROM shop.{table}")
            names = [one[0] for one in cursor.description or ()]
            return {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}

    def _run(self, changes: TableChanges) -> None:
        while not self._stopped.is_set():
            try:
                with psycopg.connect(self.server.conninfo) as session:
                    changes.read_columns(session)
                    while not self._stopped.is_set():
                        changes.transaction(session)
                        self._stopped.wait(self.pause_s)
            except psycopg.OperationalError:
                self._stopped.wait(0.05)  # the server is down
            except Exception as error:  # noqa: BLE001 - the test fails with it
                self.failures.append(error)
                return


@dataclass
class TableChanges:
    """Random transactions on one table."""

    table: str
    rng: random.Random
    done: Counter[str]
    big: str = "big"
    added: list[str] = field(default_factory=list)
    number: int = 0
    types: dict[str, str] = field(default_factory=dict)

    def transaction(self, session: psycopg.Connection[Any]) -> None:
        try:
            if self.rng.random() < 0.02:
                kinds = [self._change_columns(session)]
            else:
                kinds = [self._change(session) for _ in range(self.rng.choice((1, 1, 2, 6)))]
            if self.rng.random() < 0.1 and len(kinds) > 1:
                session.rollback()
                return
            session.commit()
        except psycopg.errors.UniqueViolation:
            session.rollback()  # the new key is taken
            return
        self.done.update(kinds)

    def read_columns(self, session: psycopg.Connection[Any]) -> None:
        """Read which columns there are: the answer to a commit may have been lost."""
        cursor = session.execute(
            "SELECT column_name, data_type || coalesce(character_maximum_length::text, '')"
            " FROM information_schema.columns WHERE table_schema = 'shop' AND table_name = %s",
            (self.table,),
        )
        self.types = dict(cursor.fetchall())
        session.commit()
        (self.big,) = [name for name in self.types if name.startswith("big")]
        self.added = sorted(name for name in self.types if name.startswith("added"))

    def _change_columns(self, session: psycopg.Connection[Any]) -> str:
        """Change the columns, and all rows."""
        kind = self.rng.choice(("add", "add", "drop", "rename", "widen"))
        alter, touched = f"ALTER TABLE shop.{self.table}", ""
        self.number += 1
        match kind:
            case "widen" if self.types["code"] != "text":
                narrow = next((one for one in ("amount", "code") if self.types[one] in WIDER), "code")
                alter += f" ALTER {narrow} TYPE {WIDER[self.types[narrow]]}"
            case "drop" if self.added:
                alter += f" DROP {self.rng.choice(self.added)}"
            case "rename":
                name = f"big_{self.number}"
                alter += f" RENAME {self.big} TO {name}"
                touched = f", {name} = {name} || ''"
            case _:
                kind = "add"
                extra = self.rng.choice(list(EXTRAS))
                alter += f" ADD added_{self.number} {extra}"
                touched = f", added_{self.number} = {EXTRAS[extra]}" if EXTRAS[extra] else ""
        session.execute(alter)
        session.execute(f"UPDATE shop.{self.table} SET version = version + 1{touched}")
        session.commit()
        self.read_columns(session)
        return kind

    def _change(self, session: psycopg.Connection[Any]) -> str:
        rng, table = self.rng, f"shop.{self.table}"
        key, other = rng.randrange(KEYS), rng.randrange(KEYS)
        amount = rng.randrange(1 << (31 if self.types["amount"] == "integer" else 60))
        code = str(rng.randrange(10**6)) * (1 if self.types["code"] == "character varying20" else 8)
        match rng.randrange(12):
            case 0 | 1 | 2:
                session.execute(
                    f"INSERT INTO {table} (id, version, amount, code, {self.big}, file) VALUES (%s, 0, %s, %s, %s, %s)"
                    " ON CONFLICT (id) DO NOTHING",
                    (key, amount, code, self._large(), rng.randbytes(2500)),
                )
                return "insert"
            case 3 | 4 | 5:
                session.execute(
                    f"UPDATE {table} SET version = version + 1, amount = %s, code = %s WHERE id BETWEEN %s AND %s",
                    (amount, code, key, key + 2),
                )
                return "update"
            case 6:
                session.execute(f"DELETE FROM {table} WHERE id = %s", (key,))
                return "delete"
            case 7 | 8 | 9:
                session.execute(f"UPDATE {table} SET version = version + 1, id = %s WHERE id = %s", (other, key))
                return "key"
            case 10 if rng.random() < 0.3:
                session.execute(f"UPDATE {table} SET {self.big} = NULL WHERE id = %s", (key,))
                return "null"
            case 10:
                session.execute(f"UPDATE {table} SET {self.big} = %s WHERE id = %s", (self._large(), key))
                return "big"
            case _:
                session.execute(
                    f"UPDATE {table} SET id = %s, {self.big} = %s WHERE id = %s", (other, self._large(), key)
                )
                return "big and key"

    def _large(self) -> str:
        return self.rng.randbytes(self.rng.choice((10, 1500, 2500))).hex()


# -- queries -----------------------------------------------------------------------------------------------------------


@dataclass
class Flows:
    """The query that captures the tables, and one for each kind of sink. Every sink has the rows of `shop.plain` and
    `shop.whole` in tables of these names.
    """

    folder: Path
    servers: str
    postgres: PostgresServer
    mariadb: MariaDbServer
    unavailable: str

    @property
    def data(self) -> Path:
        """The sinks that are files."""
        return self.folder / "data"

    def create(self) -> None:
        self.data.mkdir()
        admin = AdminClient({"bootstrap.servers": self.servers})
        topics = [NewTopic(f"pg.shop.{table}", num_partitions=2) for table in TABLES]
        for created in admin.create_topics(topics).values():
            created.result(60)
        columns = "(id INTEGER PRIMARY KEY, amount BIGINT)"
        with psycopg.connect(self.postgres.conninfo, autocommit=True) as session:
            session.execute("CREATE DATABASE copies")
        with psycopg.connect(self._copies(), autocommit=True) as session:
            for table in TABLES:
                session.execute(f"CREATE TABLE {table} {columns}")
        with closing(self._mariadb()) as other, other.cursor() as cursor:
            cursor.execute("CREATE DATABASE copies DEFAULT CHARSET utf8mb4")
            for table in TABLES:
                cursor.execute(f"CREATE TABLE copies.{table} {columns}")
        with closing(sqlite3.connect(self.data / "copies.sqlite")) as file:
            for table in TABLES:
                file.execute(f"CREATE TABLE {table} {columns}")
            file.commit()
        import duckdb

        with duckdb.connect(str(self.data / "copies.duckdb")) as report:
            for table in TABLES:
                report.execute(f"CREATE TABLE {table} {columns}")
        from deltalake import DeltaTable, Schema

        lake = pa.schema([pa.field("id", pa.int32()), pa.field("amount", pa.int64())])
        catalog = self._catalog()
        catalog.create_namespace("copies")
        for table in TABLES:
            DeltaTable.create(str(self.data / "delta" / table), Schema.from_arrow(lake))
            catalog.create_table(f"copies.{table}", lake)

    def queries(self) -> list[dict[str, Any]]:
        capture = {
            "format": "barnabas.postgres",
            "stagingLocation": str(self.folder / "staging"),
            "topic.prefix": "pg",
            "schema.include.list": "shop",
            "unavailable.value.handling.mode": self.unavailable,
            "maxBytesPerTrigger": "16m",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.postgres.port),
            "database.user": "postgres",
            "database.dbname": "postgres",
            "slot.name": "shop",
            "publication.name": "shop",
            "slot.retry.delay.ms": "200",
            "slot.max.retries": "100",
            "connection.attempts": "200",
            "connection.backoff.ms": "500",
        }
        topics = {"format": "barnabas", "kafka.bootstrap.servers": self.servers, "includeHeaders": "true"}
        read = topics | {"subscribe": ",".join(f"pg.shop.{table}" for table in TABLES), "startingOffsets": "earliest"}
        records = ["topic", "partition", "offset", "CAST(key AS STRING) AS k", "CAST(value AS STRING) AS v"]
        found: list[dict[str, Any]] = [
            {"name": "capture", "read": capture, "write": topics, "workers die": True},
            {
                "name": "files",
                "read": read,
                "select": records,
                "write": {"format": "barnabas.files", "file.format": "json", "path": str(self.data / "files")},
            },
        ]
        postgres = f"jdbc:postgresql://127.0.0.1:{self.postgres.port}/copies"
        mariadb = f"jdbc:mariadb://127.0.0.1:{self.mariadb.port}/copies"
        login = {"connection.attempts": "200", "connection.backoff.ms": "500"}
        sinks: dict[str, dict[str, str]] = {
            "postgres": {"connection.url": postgres, "connection.user": "postgres", **login},
            "mariadb": {
                "connection.url": mariadb,
                "connection.user": self.mariadb.user,
                "connection.password": self.mariadb.password,
                **login,
            },
            "sqlite": {"connection.url": f"jdbc:sqlite:{self.data / 'copies.sqlite'}"},
            "duckdb": {"connection.url": f"jdbc:duckdb:{self.data / 'copies.duckdb'}"},
            "delta": {"path": f"{self.data}/delta/${{topic}}"},
            "iceberg": {"table": "copies.${topic}", "catalog.warehouse": str(self.data / "iceberg")},
        }
        for name, own in sinks.items():
            write = {"format": f"barnabas.{name}", **_UPSERTS, **own}
            found.append({"name": name, "read": read, "write": write})
        return found

    def rows(self, sink: str, table: str, columns: Sequence[str]) -> dict[int, Row]:
        """The rows of a sink by their key, with these columns."""
        names = ", ".join(columns)
        tuples: list[tuple[Any, ...]]
        match sink:
            case "postgres":
                with psycopg.connect(self._copies()) as session:
                    tuples = session.execute(f"SELECT {names} FROM {table}").fetchall()
            case "mariadb":
                with closing(self._mariadb()) as other, other.cursor() as cursor:
                    cursor.execute(f"SELECT {names} FROM copies.{table}")
                    tuples = list(cursor.fetchall())
            case "sqlite":
                with closing(sqlite3.connect(self.data / "copies.sqlite")) as file:
                    tuples = file.execute(f"SELECT {names} FROM {table}").fetchall()
            case "duckdb":
                import duckdb

                with duckdb.connect(str(self.data / "copies.duckdb"), read_only=True) as report:
                    tuples = report.execute(f"SELECT {names} FROM {table}").fetchall()
            case _:
                from deltalake import DeltaTable

                opened: Any = (
                    DeltaTable(str(self.data / "delta" / table)).to_pyarrow_table()
                    if sink == "delta"
                    else self._catalog().load_table(f"copies.{table}").scan().to_arrow()
                )
                tuples = [tuple(row.values()) for row in opened.select(list(columns)).to_pylist()]
        return {row[0]: dict(zip(columns, row, strict=True)) for row in tuples}

    def lines(self) -> list[tuple[str, int, int, str, str | None]]:
        """The records in the files: topic, partition, offset, key, value."""
        files = (self.data / "files").glob("*.json")
        schema = pa.schema({"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()})
        schema = schema.append(pa.field("k", pa.string())).append(pa.field("v", pa.string()))
        parsing = pj.ParseOptions(explicit_schema=schema, newlines_in_values=False)
        reading = pj.ReadOptions(block_size=64 << 20)
        rows = [row for file in files for row in pj.read_json(file, reading, parsing).to_pylist()]
        return sorted((tuple(row[name] for name in schema.names) for row in rows), key=lambda line: line[:3])

    def _copies(self) -> str:
        return self.postgres.conninfo.replace("dbname=postgres", "dbname=copies")

    def _mariadb(self) -> Any:
        login = {"user": self.mariadb.user, "password": self.mariadb.password, "charset": "utf8mb4"}
        return pymysql.connect(host="127.0.0.1", port=self.mariadb.port, autocommit=True, **login)

    def _catalog(self) -> Any:
        from barnabas.spark.connectors.lake.options import LakeKind, parse_lake_options

        options = {"table": "copies.t", "catalog.warehouse": str(self.data / "iceberg")}
        return open_catalog(parse_lake_options(LakeKind.ICEBERG, options).catalog)


_UPSERTS: Final = {
    "insert.mode": "upsert",
    "pk.mode": "record_key",
    "delete.enabled": "true",
    "auto.create": "true",
    "auto.evolve": "true",
    "key.converter": "JsonConverter",
    "value.converter": "JsonConverter",
    "transforms": "unwrap,name",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.name.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.name.regex": r".*\.(\w+)",
    "transforms.name.replacement": "$1",
}
SINKS: Final = ("postgres", "mariadb", "sqlite", "duckdb", "delta", "iceberg")


# -- checks ------------------------------------------------------------------------------------------------------------


def check(flows: Flows, source: Source) -> None:
    """Compare every sink with the source."""
    for table in TABLES:
        wanted = source.rows(table)
        assert wanted
        columns = list(next(iter(wanted.values())))
        records = read_topic(flows.servers, f"pg.shop.{table}")
        shown = {
            key: {name: b64encode(one).decode() if isinstance(one, bytes) else one for name, one in row.items()}
            for key, row in wanted.items()
        }
        differs = {"topic": differences(folded(records), shown)}
        differs |= {sink: differences(flows.rows(sink, table, columns), wanted) for sink in SINKS}
        assert not any(differs.values()), (table, {sink: found for sink, found in differs.items() if found})
        lines = [line[1:] for line in flows.lines() if line[0] == f"pg.shop.{table}"]
        assert lines == [(one.partition, one.offset, one.key, one.value) for one in records]


def folded(records: Sequence[Found]) -> dict[int, Row]:
    """The rows that the events of a topic give, with bytes as base64."""
    rows: dict[int, Row] = {}
    for record in records:
        key = payload(record.key)["id"]
        event = None if record.value is None else payload(record.value)
        if event is None or event["op"] == "d":
            rows.pop(key, None)
            continue
        missing = json.loads(record.headers.get("__barnabas.unavailable", "[]"))
        known = rows.get(key, {})
        rows[key] = {name: known[name] if name in missing else value for name, value in event["after"].items()}
    return rows


# -- faults ------------------------------------------------------------------------------------------------------------


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, new = [], [pid]
    while new:
        new = [child for one in new for child in parents.get(one, ())]
        found += new
    return found


def kill_worker(driver: Driver, rng: random.Random) -> str:
    """Kill one of Spark's Python processes: a worker, their daemon, or one that plans or commits a query."""
    workers = {}
    for pid in descendants(driver.pid):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"python" in command[0]:
            workers[pid] = command[2].decode() if len(command) > 2 else "?"
    if not workers:
        return "no worker"
    pid = rng.choice(sorted(workers))
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return "a worker that has ended"
    return workers[pid]


def run(folder: Path, seed: int, kills: int) -> None:
    rng = random.Random(seed)
    began = time.monotonic()
    with (
        BrokerProcess(folder / "broker", settings=["transaction.two.phase.commit.enable=true"]) as broker,
        PostgresServer() as postgres,
        MariaDbServer() as mariadb,
    ):
        source = Source(postgres, seed)
        source.create()
        flows = Flows(folder, broker.bootstrap_servers, postgres, mariadb, rng.choice(("null", "reselect")))
        flows.create()
        driver = Driver(folder, flows.queries(), master="local[3,4]")
        try:
            source.start()
            driver.start("continuous")
            driver.wait_for_batches(1, source.failures)
            for number in range(kills):
                time.sleep(rng.random() * 2)  # the moment of the kill is at random
                (drawn,) = rng.choices(list(FAULTS), list(FAULTS.values()))
                fault = list(FAULTS)[number] if number < len(FAULTS) else drawn
                what = fault
                match fault:
                    case "driver":
                        driver.kill()
                        driver.start("continuous")
                    case "worker":
                        what = f"worker ({kill_worker(driver, rng)})"
                    case _:
                        server = {"broker": broker, "postgres": postgres, "mariadb": mariadb}[fault]
                        server.kill()
                        time.sleep(rng.random() * 2)  # how long it is away is at random
                        server.start()
                driver.wait_for_batches(1, source.failures)
                print(f"{time.monotonic() - began:6.0f} s  {number + 1:3}  {what}", flush=True)
            source.stop()
            driver.finish()
        finally:
            driver.kill()
        check(flows, source)
    for kind in KINDS:
        assert source.done[kind] or kills < 10, f"the writers have made no change of the kind {kind}"
    print(f"{time.monotonic() - began:6.0f} s  equal: {dict(source.done)}, mode {flows.unavailable}", flush=True)
