"""The PostgreSQL source against a real server: which tables a query reads, and what identifies their rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.spark.connectors.capture.staging import open_staging
from barnabas.spark.connectors.postgres.errors import SlotError
from barnabas.testing.databases import PostgresServer
from tests.system.connectors.postgres_sources import capture_options, create, opened, session, take_snapshot

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def dropped_slots(postgres: PostgresServer) -> Iterator[None]:
    """Drop the slots that a test leaves: other tests use the server, too, and it has few slots."""
    yield
    with session(postgres) as admin:
        admin.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")


def test_queries_that_share_a_publication_read_their_own_tables(postgres: PostgresServer, tmp_path: Path) -> None:
    admin = create(
        postgres,
        "sharing",
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE items (id int PRIMARY KEY)",
    )
    orders = capture_options(postgres, tmp_path / "o", "sharing", table_include_list="sharing.orders")
    items = capture_options(
        postgres,
        tmp_path / "i",
        "sharing",
        table_include_list="sharing.items",
        slot_name="sharing_items",
        output="records",
        skipped_operations="none",
    )
    with admin, opened(orders) as one, opened(items) as two:
        one.check(None, begun=False)
        start, _ = take_snapshot(one, orders)
        two.check(None, begun=False)  # adds items to the publication
        other_start, _ = take_snapshot(two, items)
        for statement in (
            "INSERT INTO items VALUES (1)",
            "INSERT INTO orders VALUES (1, 'a')",
            "DELETE FROM items",
            "TRUNCATE orders",
        ):
            admin.execute(statement)
        for source, begin, expected in (
            (one, start, ("sharing.orders", b"c")),
            (two, other_start, ("sharing.items", b"cd")),
        ):
            captured = list(source.read(begin, source.find_end(begin, None, None)))
            found = [(part.changes.table.id, bytes(part.changes.op)) for each in captured for part in each.tables]
            assert found == [expected]


def test_columns_that_an_index_only_includes_are_not_in_the_key(postgres: PostgresServer, tmp_path: Path) -> None:
    create(
        postgres,
        "including",
        "CREATE TABLE t (id int, note text, PRIMARY KEY (id) INCLUDE (note))",
        "CREATE TABLE u (id int, note text, PRIMARY KEY (id) INCLUDE (note))",
        "ALTER TABLE u REPLICA IDENTITY FULL",
        "CREATE TABLE v (id int NOT NULL, note text)",
        "CREATE UNIQUE INDEX v_id ON v (id) INCLUDE (note)",
        "ALTER TABLE v REPLICA IDENTITY USING INDEX v_id",
        *(f"INSERT INTO {table} VALUES (1, 'a')" for table in "tuv"),
    ).close()
    options = capture_options(postgres, tmp_path, "including")
    with opened(options) as source, session(postgres) as admin:
        source.check(None, begun=False)
        assert [table.key for table in source.read_tables()] == [(0,)] * 3
        position, _ = take_snapshot(source, options)
        for table in "tuv":
            admin.execute(f"UPDATE including.{table} SET note = 'b'")
        captured = list(source.read(position, source.find_end(position, None, None)))
        changes = [part.changes for one in captured for part in one.tables]
        assert [(one.table.key, bytes(one.op), any(one.key_changed)) for one in changes] == [((0,), b"u", False)] * 3


def test_a_deferrable_primary_key_identifies_no_rows(postgres: PostgresServer, tmp_path: Path) -> None:
    """The server would refuse each UPDATE of the application as soon as the table is published."""
    create(postgres, "deferring", "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE)").close()
    with (
        opened(capture_options(postgres, tmp_path, "deferring")) as source,
        pytest.raises(SlotError, match=r'ALTER TABLE "deferring"\."t" REPLICA IDENTITY FULL'),
    ):
        source.check(None, begun=False)


def test_a_partition_needs_the_replica_identity_of_its_table(postgres: PostgresServer, tmp_path: Path) -> None:
    admin = create(
        postgres,
        "leaves",
        "CREATE TABLE t (id int PRIMARY KEY, big text) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (1000)",
        "ALTER TABLE t1 ALTER big SET STORAGE EXTERNAL",
        "ALTER TABLE t REPLICA IDENTITY FULL",
    )
    options = capture_options(postgres, tmp_path, "leaves")
    with admin, opened(options) as source:
        with pytest.raises(
            SlotError, match=r'ALTER TABLE leaves\.t1 .*ALTER TABLE "leaves"\."t" REPLICA IDENTITY FULL'
        ):
            source.check(None, begun=False)
        admin.execute("ALTER TABLE t1 REPLICA IDENTITY FULL")
        source.check(None, begun=False)
        position, _ = take_snapshot(source, options)
        admin.execute("INSERT INTO t VALUES (1, repeat('x', 5000))")
        admin.execute("UPDATE t SET id = 2")
        end = source.find_end(position, None, None)
        (captured,) = source.read(position, end)
        after = captured.tables[0].changes.after.to_pylist()
        assert [(row["id"], len(row["big"])) for row in after] == [(1, 5000), (2, 5000)]
        # A new partition does not inherit the identity: a query that runs stops.
        admin.execute("CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (1000) TO (2000)")
        with pytest.raises(SlotError, match=r"ALTER TABLE leaves\.t2 REPLICA IDENTITY FULL"):
            list(source.read(position, end))


def test_changes_have_the_key_that_their_table_had(postgres: PostgresServer, tmp_path: Path) -> None:
    """The key of a table with FULL comes from the catalog, which may have changed since."""
    admin = create(
        postgres, "keyed", "CREATE TABLE t (id int PRIMARY KEY, note text)", "ALTER TABLE t REPLICA IDENTITY FULL"
    )
    options = capture_options(postgres, tmp_path, "keyed")
    with admin, opened(options) as source:
        source.check(None, begun=False)
        position, _ = take_snapshot(source, options)
        for statement in (
            "INSERT INTO t VALUES (1, 'a')",
            "ALTER TABLE t RENAME COLUMN id TO code",
            "INSERT INTO t VALUES (2, 'b')",
            "ALTER TABLE t REPLICA IDENTITY DEFAULT",
            "INSERT INTO t VALUES (3, 'c')",
        ):
            admin.execute(statement)
        captured = list(source.read(position, source.find_end(position, None, None)))
        tables = [part.changes.table for one in captured for part in one.tables]
        assert [[table.columns[place].name for place in table.key] for table in tables] == [["id"], ["code"], ["code"]]


def test_a_start_without_a_snapshot_that_died_keeps_the_slot_of_the_user(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    admin = create(postgres, "kept", "CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION kept FOR TABLE t")
    with admin:
        admin.execute("SELECT pg_create_logical_replication_slot('kept', 'pgoutput')")
        admin.execute("INSERT INTO t VALUES (1)")
        options = capture_options(postgres, tmp_path, "kept", snapshot_mode="no_data")
        with opened(options) as source:
            staging = open_staging(options.staging_location)
            staging.begin(source.identity, rows=False)  # and the driver is killed
            source.check(None, begun=staging.was_begun(source.identity))
            writer = staging.begin(source.identity, rows=False)
            position = source.take_snapshot(writer, rows=False, follow=True)
            (captured,) = source.read(position, source.find_end(position, None, None))
            assert captured.tables[0].changes.after.to_pylist() == [{"id": 1}]
