"""The PostgreSQL source against a real server, without Spark: what it reads is what the tables have."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec import structs

from barnabas.spark.connectors.capture.ports import CapturedChanges
from barnabas.spark.connectors.capture.records_output import RecordsOutput
from barnabas.spark.connectors.postgres.errors import PostgresError, SlotError
from barnabas.spark.connectors.postgres.position import from_position, to_position
from barnabas.spark.connectors.postgres.session import Session
from barnabas.testing.databases import PostgresServer
from tests.progress import wait_until
from tests.system.connectors.postgres_sources import (
    Rows,
    Writers,
    as_values,
    capture_options,
    create,
    fold,
    opened,
    session,
    take_snapshot,
)

pytestmark = pytest.mark.system

COLUMNS = "id int PRIMARY KEY, code int, big text, ratio float8"


def table_rows(connection: psycopg.Connection[Any], table: str) -> Rows:
    cursor = connection.execute(f"SELECT * FROM {table}")
    names = [column.name for column in cursor.description or ()]
    return {(row[names.index("id")],): dict(zip(names, row, strict=True)) for row in cursor.fetchall()}


def only(rows: Rows, names: set[str]) -> Rows:
    """The rows with the columns of today; a row that was written before a column was added has null there."""
    return {key: {name: row.get(name) for name in names} for key, row in rows.items()}


def run_writers(server: PostgresServer, folder: Path, seconds: float, kills: int, seed: int) -> None:
    """Writers, a reader that dies and reads ranges again, DDL, and kill -9 of the server; the fold is the table."""
    name = f"writers{seed}"
    table = f"{name}.t"
    with create(server, name, f"CREATE TABLE t ({COLUMNS})", "ALTER TABLE t ALTER big SET STORAGE EXTERNAL") as admin:
        admin.execute("INSERT INTO t SELECT g, g, repeat('x', 5000), g FROM generate_series(1, 300) g")
    writers = Writers(server, table, seed)
    writers.start(3)
    rng = random.Random(seed)
    options = capture_options(server, folder, name, snapshot_max_threads="2")
    try:
        with opened(options) as source:
            wait_until(lambda: writers.commits > 20, "the writers write", progress=lambda: writers.commits)
            source.check(None, begun=False)
            position, tables = take_snapshot(source, options)
        rows: Rows = {(row["id"],): row for row in tables[table]}
        deadline = time.monotonic() + seconds
        kill_times = sorted(time.monotonic() + rng.random() * seconds for _ in range(kills))
        added = rounds = 0
        source = None
        while True:
            stopping = time.monotonic() > deadline and not kill_times and added >= 2
            if stopping:
                writers.stop()
            if kill_times and time.monotonic() > kill_times[0]:
                kill_times.pop(0)
                server.kill()
                server.start()
            if rounds % 7 == 6:
                with session(server) as admin, admin.transaction():
                    admin.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
                    admin.execute(f"ALTER TABLE {table} ADD COLUMN new{added} int DEFAULT NULL")
                    if added % 2:
                        admin.execute(f"ALTER TABLE {table} DROP COLUMN new{added - 1}")
                    admin.execute(f"UPDATE {table} SET new{added} = id WHERE id % 3 = 0")
                added += 1
            rounds += 1
            with opened(options) as source:  # a driver that has died: all it knows is its position
                source.check(position, begun=False)
                source.confirm(position)
                limit = rng.choice((None, 20_000, 1_000_000))
                end = source.find_end(position, limit, None)
                captured = list(source.read(position, end))
            with opened(options) as source:
                assert as_values(list(source.read(position, end))) == as_values(captured)
            fold(rows, captured, table)
            position = end
            if stopping and limit is None:
                break
        with session(server) as admin:
            # What was committed after the last end, between the choice of the end and the stop of the writers
            with opened(options) as source:
                end = to_position(structs.replace(from_position(position), lsn=_flushed(admin)))
                fold(rows, list(source.read(position, end)), table)
            expected = table_rows(admin, table)
        assert only(rows, set(next(iter(expected.values())))) == expected
        assert writers.commits > 50
    finally:
        writers.stop()


def _flushed(admin: psycopg.Connection[Any]) -> int:
    ((lsn,),) = admin.execute("SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint").fetchall()
    return int(lsn)


def test_the_changes_of_concurrent_writers_fold_to_the_table(tmp_path: Path) -> None:
    with PostgresServer() as server:
        run_writers(server, tmp_path, seconds=3, kills=1, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_the_changes_fold_to_the_table_under_many_kills(tmp_path: Path, seed: int) -> None:
    with PostgresServer() as server:
        run_writers(server, tmp_path, seconds=40, kills=8, seed=seed)


def test_the_sequence_of_events_grows_with_the_commits_over_several_reads(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """A change of a key is logged before it waits for the transaction that deletes the row with that key, so that its
    own position is smaller than that of the earlier commit.
    """
    with create(postgres, "sequences", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)") as one:
        options = capture_options(postgres, tmp_path, "sequences")
        found: list[tuple[int, int]] = []
        with opened(options) as source, session(postgres) as other:
            source.check(None, begun=False)
            position, _ = take_snapshot(source, options)
            output = RecordsOutput(options)
            for number in range(2):
                one.execute("BEGIN")
                one.execute(f"UPDATE t SET id = {number + 10} WHERE id = 1")
                waiting = threading.Thread(
                    target=other.execute, args=(f"UPDATE sequences.t SET id = {number + 10} WHERE id = 2",)
                )
                waiting.start()
                wait_until(lambda: _waits_for_lock(postgres), "the other transaction waits")
                one.execute(f"DELETE FROM t WHERE id = {number + 10}")
                one.execute("COMMIT")
                waiting.join()
                one.execute(f"DELETE FROM t WHERE id = {number + 10}")
                one.execute("INSERT INTO t VALUES (1), (2)")
                end = source.find_end(position, None, None)
                for captured in source.read(position, end):
                    for batch in output.records(captured):
                        for text in batch.column("value").to_pylist():
                            if text is not None:
                                event = json.loads(text)
                                before, lsn = json.loads(event.get("payload", event)["source"]["sequence"])
                                found.append((int(before), int(lsn)))
                position = end
    positions = [lsn for _, lsn in found]
    assert len(found) == 16  # a change of a key is two
    assert positions != sorted(positions)
    assert found == sorted(found)


def _waits_for_lock(server: PostgresServer) -> bool:
    with session(server) as admin:
        return bool(admin.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall())


TYPES = {
    "bool": "true",
    "int2": "'-32768'",
    "int4": "2147483647",
    "int8": "'-9223372036854775808'",
    "float4": "1.1754944e-38",
    "float8": "'NaN'",
    "numeric(10,3)": "'-1234567.891'",
    "numeric": "'Infinity'",
    "numeric(50,2)": "123456789012345678901234567890123456789012345678.12",
    "money": "'-1234.56'",
    "text": "E'a\\tb\\n\"c\", \\\\ ü'",
    "varchar(10)": "''",
    "char(5)": "'ab'",
    "name": "'n'",
    '"char"': "'c'",
    "bytea": r"'\x00ff61'",
    "date": "'0001-01-01'",
    "time(3)": "'23:59:59.999'",
    "timetz": "'12:00:00+02'",
    "timestamp": "'9999-12-31 23:59:59.999999'",
    "timestamptz": "'2024-03-31 03:30:00.000001+02'",
    "interval": "'1 year 2 days -03:04:05.6'",
    "uuid": "'f81d4fae-7dec-11d0-a765-00a0c91e6bf6'",
    "json": """'{"a": [1, "x"]}'""",
    "jsonb": """'{"b": null}'""",
    "xml": "'<a>b</a>'",
    "inet": "'192.168.0.1/24'",
    "cidr": "'10.0.0.0/8'",
    "macaddr": "'08:00:2b:01:02:03'",
    "bit(3)": "B'101'",
    "varbit": "B'0'",
    "point": "'(1,2)'",
    "int4range": "'[1,5)'",
    "tstzrange": "'[2024-01-01 00:00+00,)'",
    "tsvector": "'a:1 b:2'",
    "pg_lsn": "'16/B374D848'",
    "oid": "4294967295",
    "int4[]": "'{1,NULL,3}'",
    "text[]": """'{"a,b","NULL",NULL,"",\\\\}'""",
    "timestamp[]": "'{2024-01-01 00:00:00}'",
    "numeric(5,2)[]": "'{1.25}'",
    "mood": "'happy'",
    "mood[]": "'{sad,happy}'",
    "pair": """'(1,"a b")'""",
    "positive": "5",
}


def test_rows_of_the_snapshot_and_changes_have_the_same_values_in_every_type(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    values = ", ".join(f"{text}::{kind}" for kind, text in TYPES.items())
    name = "alltypes"
    types = [
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE DOMAIN positive AS int CHECK (value > 0)",
    ]
    admin = create(postgres, name, *types, f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    admin.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    admin.execute(f"INSERT INTO t VALUES (1, {values})")
    admin.execute("INSERT INTO t VALUES (2)")  # nulls
    options = capture_options(postgres, tmp_path, name)
    with opened(options) as source, admin:
        source.check(None, begun=False)
        position, tables = take_snapshot(source, options)
        admin.execute(f"INSERT INTO t VALUES (3, {values})")
        admin.execute("UPDATE t SET id = 4 WHERE id = 2")
        admin.execute("DELETE FROM t WHERE id = 1")
        end = source.find_end(position, None, None)
        (captured,) = source.read(position, end)
    (change,) = captured.tables
    full, empty = tables["alltypes.t"]
    assert change.changes.after.to_pylist() == [_same({**full, "id": 3}), {**empty, "id": 4}, None]
    assert change.changes.before.to_pylist() == [None, empty, _same(full)]
    assert bytes(change.changes.op) == b"cud"
    assert change.changes.table.key == (0,)


class _NotANumber(float):
    """A NaN that is equal to another one, for comparisons of rows."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and other != other

    __hash__ = float.__hash__


def _same(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _NotANumber(value) if isinstance(value, float) and value != value else value
        for name, value in row.items()
    }


def changes_of(server: PostgresServer, folder: Path, name: str, *statements: str, **more: str) -> list[CapturedChanges]:
    """What a query reads that began before the statements."""
    options = capture_options(server, folder, name, **more)
    with opened(options) as source, session(server) as admin:
        admin.execute(f"SET search_path = {name}")
        source.check(None, begun=False)
        position, _ = take_snapshot(source, options)
        for statement in statements:
            admin.execute(statement)
        return list(source.read(position, source.find_end(position, None, None)))


def test_partitions_are_read_as_one_table_and_generated_columns_are_left_out(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    create(
        postgres,
        "parts",
        "CREATE TABLE t (id int, day date, twice int GENERATED ALWAYS AS (id * 2) STORED, PRIMARY KEY (id, day))"
        " PARTITION BY RANGE (day)",
        "CREATE TABLE t24 PARTITION OF t FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')",
        "INSERT INTO t VALUES (1, '2024-02-03')",
    ).close()
    captured = changes_of(postgres, tmp_path, "parts", "INSERT INTO t VALUES (2, '2024-05-06')")
    ((table,),) = (one.tables for one in captured)
    assert (table.changes.table.id, [row["id"] for row in table.changes.after.to_pylist()]) == ("parts.t", [2])
    assert [column.name for column in table.changes.table.columns] == ["id", "day"]


def test_a_table_that_is_added_later_is_published_without_its_older_rows(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    admin = create(postgres, "later", "CREATE TABLE a (id int PRIMARY KEY)")
    options = capture_options(postgres, tmp_path, "later")
    with opened(options) as source:
        source.check(None, begun=False)
        position, _ = take_snapshot(source, options)
    admin.execute("CREATE TABLE b (id int PRIMARY KEY)")
    admin.execute("INSERT INTO b VALUES (1)")
    with opened(options) as source, admin:
        source.check(position, begun=False)
        admin.execute("INSERT INTO b VALUES (2)")
        captured = list(source.read(position, source.find_end(position, None, None)))
    rows = [row for one in captured for table in one.tables for row in table.changes.after.to_pylist()]
    assert rows == [{"id": 2}]


def test_tables_that_are_rewritten_during_the_snapshot_keep_their_rows(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    names = ("a", "b", "c")
    admin = create(postgres, "rewritten", *(f"CREATE TABLE {name} ({COLUMNS})" for name in names))
    for name in names:
        admin.execute(f"INSERT INTO {name} SELECT g, g FROM generate_series(1, 5000) g")
    stopped = threading.Event()
    rewrites: list[int] = []

    def rewrite() -> None:
        with session(postgres) as other:
            while not stopped.is_set():
                kind = ("bigint", "int")[len(rewrites) % 2]
                for name in reversed(names):
                    other.execute(f"ALTER TABLE rewritten.{name} ALTER code TYPE {kind}")
                rewrites.append(1)
                stopped.wait(0.1)

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        wait_until(lambda: len(rewrites) > 1, "tables are rewritten", progress=lambda: len(rewrites))
        for number in range(5):
            options = capture_options(
                postgres, tmp_path / str(number), "rewritten", slot_name=f"r{number}", snapshot_max_threads="2"
            )
            with opened(options) as source:
                source.check(None, begun=False)
                _, tables = take_snapshot(source, options)
            assert {name: len(rows) for name, rows in tables.items()} == {f"rewritten.{n}": 5000 for n in names}
    finally:
        stopped.set()
        thread.join()
        with admin:
            for number in range(5):
                admin.execute(f"SELECT pg_drop_replication_slot('r{number}')")


def test_a_table_that_is_rewritten_after_the_export_begins_the_snapshot_again(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(postgres, "exported", f"CREATE TABLE t ({COLUMNS})", "INSERT INTO t VALUES (1), (2)").close()
    command, calls = Session.command, []

    def command_then_rewrite(self: Session, sql: str, doing: str) -> tuple[Any, ...]:
        answer = command(self, sql, doing)
        if not calls:
            with session(postgres) as other:
                other.execute("ALTER TABLE exported.t ALTER code TYPE bigint")
        calls.append(sql)
        return answer

    monkeypatch.setattr(Session, "command", command_then_rewrite)
    options = capture_options(postgres, tmp_path, "exported")
    with opened(options) as source:
        source.check(None, begun=False)
        _, tables = take_snapshot(source, options)
    assert [row["id"] for row in tables["exported.t"]] == [1, 2]
    assert len(calls) == 2


# -- the slot


def test_a_start_that_died_during_the_snapshot_is_begun_again(postgres: PostgresServer, tmp_path: Path) -> None:
    create(postgres, "again", f"CREATE TABLE t ({COLUMNS})", "INSERT INTO t VALUES (1)").close()
    options = capture_options(postgres, tmp_path, "again")
    with opened(options) as source:
        source.check(None, begun=False)
        take_snapshot(source, options)
    with opened(options) as source, pytest.raises(SlotError, match="the query has no checkpoint"):
        source.check(None, begun=False)
    with opened(options) as source:
        source.check(None, begun=True)
        _, tables = take_snapshot(source, options)
    assert [row["id"] for row in tables["again.t"]] == [1]


def test_a_truncate_is_an_event_in_its_place_if_it_is_not_skipped(postgres: PostgresServer, tmp_path: Path) -> None:
    admin = create(postgres, "emptied", f"CREATE TABLE t ({COLUMNS})", f"CREATE TABLE u ({COLUMNS})")
    options = capture_options(postgres, tmp_path, "emptied", output="records", skipped_operations="none")
    with opened(options) as source, admin:
        source.check(None, begun=False)
        position, _ = take_snapshot(source, options)
        with admin.transaction():
            admin.execute("INSERT INTO t VALUES (1)")
            admin.execute("TRUNCATE t, u")
            admin.execute("INSERT INTO u VALUES (2)")
        captured = list(source.read(position, source.find_end(position, None, None)))
    parts = [part for one in captured for part in one.tables]
    found = sorted((part.changes.ordinal[0], part.changes.table.id, bytes(part.changes.op)) for part in parts)
    assert found == [(0, "emptied.t", b"c"), (1, "emptied.t", b"t"), (2, "emptied.u", b"t"), (3, "emptied.u", b"c")]
    assert sorted(part.changes.total_order[0] for part in parts) == [1, 2, 3, 4]
    records = RecordsOutput(options)
    values = [value for one in captured for batch in records.records(one) for value in batch["value"].to_pylist()]
    assert [json.loads(value)["payload"]["op"] for value in values] == ["c", "t", "t", "c"]


def test_a_slot_that_was_created_again_is_noticed_before_and_after_the_plan(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    admin = create(postgres, "gap", f"CREATE TABLE t ({COLUMNS})")
    options = capture_options(postgres, tmp_path, "gap")
    with opened(options) as source, admin:
        source.check(None, begun=False)
        position, _ = take_snapshot(source, options)
        admin.execute("INSERT INTO t VALUES (1)")
        end = source.find_end(position, None, None)
        admin.execute("SELECT pg_drop_replication_slot('gap')")
        with pytest.raises(PostgresError, match="gap"):
            list(source.read(position, end))
        admin.execute("SELECT pg_create_logical_replication_slot('gap', 'pgoutput')")
        with pytest.raises(SlotError, match="after the query's position"):
            list(source.read(position, end))
        with pytest.raises(SlotError, match="the changes between them are gone"):
            source.confirm(position)


def test_a_slot_that_the_server_invalidated_is_named_with_what_to_do(tmp_path: Path) -> None:
    settings = ["max_slot_wal_keep_size=1MB", "min_wal_size=32MB", "max_wal_size=32MB"]
    with PostgresServer(settings) as server:
        admin = create(server, "lost", f"CREATE TABLE t ({COLUMNS})", "CREATE TABLE other (a text)")
        options = capture_options(server, tmp_path, "lost", table_include_list=r"lost\.t")
        with opened(options) as source, admin:
            source.check(None, begun=False)
            position, _ = take_snapshot(source, options)
            for _ in range(3):
                admin.execute("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 30000)")
                admin.execute("SELECT pg_switch_wal()")
                admin.execute("CHECKPOINT")
            with pytest.raises(SlotError, match=r"has lost its changes.*max_slot_wal_keep_size"):
                source.find_end(position, None, None)
        with opened(options) as source, pytest.raises(SlotError, match="pg_drop_replication_slot"):
            source.check(position, begun=False)


def test_an_idle_source_lets_the_server_remove_its_log(postgres: PostgresServer, tmp_path: Path) -> None:
    admin = create(postgres, "idle", f"CREATE TABLE t ({COLUMNS})", "CREATE TABLE other (a text)")
    options = capture_options(postgres, tmp_path, "idle", table_include_list=r"idle\.t")
    with opened(options) as source, admin:
        source.check(None, begun=False)
        position, _ = take_snapshot(source, options)
        assert source.find_end(position, None, None) == position or not _read_rows(source, position)
        admin.execute("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 40000)")
        end = source.find_end(position, None, None)
        assert from_position(end).lsn - from_position(position).lsn > 16 << 20
        assert next(source.read(position, end)).tables == ()
        source.confirm(end)
        ((confirmed,),) = admin.execute(
            "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots WHERE slot_name = 'idle'"
        ).fetchall()
        assert confirmed == from_position(end).lsn


def test_positions_near_each_other_are_confirmed_together(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = create(postgres, "near", f"CREATE TABLE t ({COLUMNS})")
    options = capture_options(postgres, tmp_path, "near", table_include_list=r"near\.t")

    def confirmed() -> int:
        row = admin.execute(
            "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots WHERE slot_name = 'near'"
        ).fetchone()
        assert row is not None
        return int(row[0])

    with opened(options) as source, admin:
        source.check(None, begun=False)
        start, _ = take_snapshot(source, options)
        monkeypatch.setattr("barnabas.spark.connectors.postgres.source.CONFIRM_SECONDS", 1e9)
        source.confirm(start)
        positions = [start]
        for number in range(3):
            admin.execute(f"INSERT INTO t (id) VALUES ({number})")
            positions.append(source.find_end(positions[-1], None, None))
            source.confirm(positions[-1])
            assert confirmed() == from_position(start).lsn
            assert _read_rows(source, positions[-2]) == 1  # without the changes that are not confirmed
        monkeypatch.setattr("barnabas.spark.connectors.postgres.source.CONFIRM_SECONDS", 0)
        source.confirm(positions[-1])
        assert confirmed() == from_position(positions[-1]).lsn


def _read_rows(source: Any, position: Any) -> int:
    return sum(
        len(table.changes)
        for one in source.read(position, source.find_end(position, None, None))
        for table in one.tables
    )


# -- refusals


def test_a_role_without_privileges_is_told_each_statement(postgres: PostgresServer, tmp_path: Path) -> None:
    admin = create(postgres, "poor", f"CREATE TABLE t ({COLUMNS})", "CREATE ROLE poor LOGIN")
    options = capture_options(postgres, tmp_path, "poor", database_user="poor")
    refusals = [
        ('ALTER ROLE "poor" REPLICATION', None),
        ("GRANT SELECT", "GRANT USAGE ON SCHEMA poor TO poor; GRANT SELECT ON poor.t TO poor"),
        ("CREATE PUBLICATION", 'CREATE PUBLICATION "poor" FOR TABLE poor.t'),
    ]
    with admin:
        for message, repair in refusals:
            with opened(options) as source, pytest.raises(SlotError, match=message) as refused:
                source.check(None, begun=False)
            for statement in (repair,) if repair else refused.value.sql:
                admin.execute(statement)
        with opened(options) as source:
            source.check(None, begun=False)
            take_snapshot(source, options)


def test_a_table_without_an_identity_is_refused_before_it_is_published(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    admin = create(postgres, "anonymous", "CREATE TABLE t (a int)")
    with admin, opened(capture_options(postgres, tmp_path, "anonymous")) as source:
        with pytest.raises(SlotError, match=r'ALTER TABLE "anonymous"\."t" REPLICA IDENTITY FULL'):
            source.check(None, begun=False)
        assert admin.execute("SELECT count(*) FROM pg_publication WHERE pubname = 'anonymous'").fetchall() == [(0,)]


def test_a_server_without_logical_decoding_is_refused(tmp_path: Path) -> None:
    with PostgresServer(["wal_level=replica"]) as server:
        create(server, "replica", f"CREATE TABLE t ({COLUMNS})").close()
        with (
            opened(capture_options(server, tmp_path, "replica")) as source,
            pytest.raises(SlotError, match="ALTER SYSTEM SET wal_level = 'logical'"),
        ):
            source.check(None, begun=False)


def test_a_pattern_without_tables_and_a_server_that_is_down_are_named(postgres: PostgresServer, tmp_path: Path) -> None:
    create(postgres, "nothing").close()
    options = capture_options(postgres, tmp_path, "nothing", table_include_list=r"nothing\.orders")
    with opened(options) as source, pytest.raises(SlotError, match="matches no table"):
        source.check(None, begun=False)
    down = capture_options(postgres, tmp_path, "nothing", database_port="1")
    with opened(down) as source, pytest.raises(PostgresError, match="check that the server runs"):
        source.check(None, begun=False)


def inserted(source: Any, start: Any, table: str) -> list[int]:
    """The numbers of the rows that were inserted from a position on."""
    end = source.find_end(start, None, None)
    found = [
        row for one in source.read(start, end) for change in one.tables for row in change.changes.after.to_pylist()
    ]
    return [row["id"] for row in found if row is not None]


def test_a_captured_table_that_was_replaced_is_noticed(postgres: PostgresServer, tmp_path: Path) -> None:
    name = "replaced"
    admin = create(postgres, name, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    options = capture_options(postgres, tmp_path, name)
    with opened(options) as source:
        source.check(None, begun=False)
        position, _ = take_snapshot(source, options)
        assert position["timeline"] == 1 and list(position["tables"]) == ["replaced.t"]
        admin.execute("DROP TABLE t")
        admin.execute("CREATE TABLE t (id int PRIMARY KEY)")
        admin.execute("INSERT INTO t SELECT generate_series(1, 100)")
        with pytest.raises(SlotError, match=r"the table replaced.t was replaced: .* failOnDataLoss=false"):
            source.find_end(position, None, None)
    with opened(options) as source, pytest.raises(SlotError, match="was replaced"):
        source.check(position, begun=False)
    with opened(capture_options(postgres, tmp_path, name, failOnDataLoss="false")) as source:
        source.check(position, begun=False)
        admin.execute("INSERT INTO t VALUES (101)")
        assert inserted(source, position, "replaced.t") == [101]
        end = source.find_end(position, None, None)
    with opened(options) as source:
        source.check(end, begun=False)  # the position belongs to the new table now
    admin.execute("SELECT pg_drop_replication_slot('replaced')")
    admin.close()


@pytest.mark.slow
def test_a_server_on_another_timeline_is_noticed(tmp_path: Path) -> None:
    """The server is stopped and copied; the copy becomes the server again after more changes were read."""
    with PostgresServer() as server:
        admin = create(server, "lines", "CREATE TABLE t (id int PRIMARY KEY)")
        options = capture_options(server, tmp_path, "lines")
        with opened(options) as source:
            source.check(None, begun=False)
            first, _ = take_snapshot(source, options)
        admin.close()
        server.stop()
        data = server.data_dir
        subprocess.run(["cp", "-a", str(data), str(tmp_path / "copy")], check=True)
        (data / "recovery.signal").touch()
        with (data / "postgresql.auto.conf").open("a") as file:
            file.write("restore_command = '/bin/false'\n")
        server.start()
        with session(server) as admin, opened(options) as source:
            source.check(first, begun=False)  # the log left the timeline 1 behind the position
            admin.execute("INSERT INTO lines.t SELECT generate_series(1, 1000)")
            assert len(inserted(source, first, "lines.t")) == 1000
            second = source.find_end(first, None, None)
        assert second["timeline"] == 2
        server.stop()
        shutil.rmtree(data)
        subprocess.run(["cp", "-a", str(tmp_path / "copy"), str(data)], check=True)
        server.start()
        with session(server) as admin:
            admin.execute("INSERT INTO lines.t SELECT generate_series(1, 10000)")
        with opened(options) as source, pytest.raises(SlotError, match="belongs to the timeline 2"):
            source.check(second, begun=False)
