"""What the tests of the PostgreSQL source share: options, reading as a query does, folding changes, random writers."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from barnabas.spark.connectors.capture.options import CaptureOptions, parse_capture_options
from barnabas.spark.connectors.capture.ports import CapturedChanges, Position
from barnabas.spark.connectors.capture.staging import open_staging
from barnabas.spark.connectors.postgres.source import CONNECTOR, PostgresSource, open_postgres
from barnabas.testing.databases import PostgresServer

Key = tuple[Any, ...]
Rows = dict[Key, dict[str, Any]]


def session(server: PostgresServer) -> psycopg.Connection[Any]:
    return psycopg.connect(server.conninfo, autocommit=True)


def create(server: PostgresServer, name: str, *statements: str) -> psycopg.Connection[Any]:
    """A schema of the test's own, and a session in it."""
    connection = session(server)
    connection.execute(f"CREATE SCHEMA {name}")
    connection.execute(f"SET search_path = {name}, public")
    for statement in statements:
        connection.execute(statement)
    return connection


def capture_texts(server: PostgresServer, folder: Path, name: str, **more: str) -> dict[str, str]:
    """The options of a query on tables of the schema `name`, which has a slot and a publication of this name."""
    options = {
        "stagingLocation": str(folder / "staging"),
        "topic.prefix": name,
        "output": "rows",
        "connection.backoff.ms": "500",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.dbname": "postgres",
        "schema.include.list": name,
        "slot.name": name,
        "publication.name": name,
        "slot.retry.delay.ms": "200",
        "slot.max.retries": "100",
    }
    return options | {key.replace("_", "."): value for key, value in more.items()}


def capture_options(server: PostgresServer, folder: Path, name: str, **more: str) -> CaptureOptions:
    return parse_capture_options(
        capture_texts(server, folder, name, **more),
        CONNECTOR.options,
        CONNECTOR.refused,
        connector="postgresql",
        version="1",
    )


@contextmanager
def opened(options: CaptureOptions) -> Iterator[PostgresSource]:
    source = open_postgres(options)
    try:
        yield source
    finally:
        source.close()


def take_snapshot(source: PostgresSource, options: CaptureOptions) -> tuple[Position, dict[str, list[dict[str, Any]]]]:
    """Stage a snapshot, and read it: the position, and the rows of each table."""
    staging = open_staging(options.staging_location)
    writer = staging.begin(source.identity)
    position = source.take_snapshot(writer, rows=True, follow=True)
    tables: dict[str, list[dict[str, Any]]] = {}
    for file in writer.manifest(position, 0).files:
        _, batches = staging.read_file(file)
        tables.setdefault(file.table, []).extend(row for batch in batches for row in batch.to_pylist())
    return position, tables


def as_values(captured: list[CapturedChanges]) -> list[Any]:
    """All that a read gave, as values that can be compared; equal values have equal bytes, too."""
    found: list[Any] = []
    for one in captured:
        for table in one.tables:
            changes = table.changes
            sides = [None if side is None else side.to_pylist() for side in (changes.before, changes.after)]
            order = [changes.total_order.tolist(), changes.table_order.tolist(), changes.positions.lsn.tolist()]
            places = table.places.to_pylist()
            found.append([changes.table.id, bytes(changes.op), sides, places, order, changes.transaction.to_pylist()])
    return found


def fold(rows: Rows, captured: list[CapturedChanges], table: str) -> None:
    """Apply the changes of a table to rows by key. A value that was not sent stays as it is."""
    for one in captured:
        for part in one.tables:
            changes = part.changes
            if changes.table.id != table:
                continue
            names = [column.name for column in changes.table.columns]
            key = [names[place] for place in changes.table.key]
            size = len(changes)
            before = [None] * size if changes.before is None else changes.before.to_pylist()
            after = [None] * size if changes.after is None else changes.after.to_pylist()
            for row, (old, new) in enumerate(zip(before, after, strict=True)):
                known = None
                if old is not None:
                    known = rows.pop(tuple(old[name] for name in key), None)
                if new is not None:
                    new_key = tuple(new[name] for name in key)
                    known = known or rows.get(new_key) or {}
                    for place, mask in changes.unavailable.items():
                        if mask[row]:
                            new[names[place]] = known[names[place]]
                    rows[new_key] = new


@dataclass
class Writers:
    """Threads that change a table at random, until `stop` is called; they survive restarts of the server."""

    server: PostgresServer
    table: str
    seed: int
    keys: int = 300
    commits: int = 0
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

    def _run(self, rng: random.Random) -> None:
        while not self._stopped.is_set():
            try:
                with psycopg.connect(self.server.conninfo) as session:
                    while not self._stopped.is_set():
                        self._transaction(session, rng)
            except psycopg.OperationalError:
                self._stopped.wait(0.05)  # the server is down, or a deadlock was broken

    def _transaction(self, session: psycopg.Connection[Any], rng: random.Random) -> None:
        try:
            for _ in range(rng.choice((1, 1, 3, 20))):
                self._change(session, rng)
            if rng.random() < 0.1:
                session.rollback()
            else:
                session.commit()
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected, psycopg.errors.UndefinedColumn):
            session.rollback()
            return
        with self._lock:
            self.commits += 1

    def _change(self, session: psycopg.Connection[Any], rng: random.Random) -> None:
        key, other = rng.randrange(self.keys), rng.randrange(self.keys)
        match rng.randrange(10):
            case 0 | 1 | 2:
                large = "".join(rng.choices("abcdefghij", k=rng.choice((10, 9000))))
                values = (key, rng.randrange(1000), large, rng.random())
                session.execute(f"INSERT INTO {self.table} (id, code, big, ratio) VALUES (%s, %s, %s, %s)"
                                " ON CONFLICT (id) DO UPDATE SET big = excluded.big", values)  # fmt: skip
            case 3 | 4 | 5 | 6:
                session.execute(f"UPDATE {self.table} SET code = code + 1 WHERE id = %s", (key,))
            case 7:
                with session.transaction(force_rollback=rng.random() < 0.5):  # a savepoint
                    session.execute(f"DELETE FROM {self.table} WHERE id = %s", (key,))
            case 8:
                session.execute(f"UPDATE {self.table} SET id = %s WHERE id = %s", (other, key))
            case _:
                session.execute(f"UPDATE {self.table} SET big = NULL WHERE id = %s", (key,))
