"""The sources of MariaDB and MySQL against real servers: types, random writers, kills, DDL, privileges, failover."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.spark.connectors.capture.ports import Position
from barnabas.spark.connectors.mysql.errors import BinlogPurgedError, ServerSetupError
from barnabas.testing.databases import MariaDbServer, MySqlServer
from tests.progress import wait_until
from tests.system.connectors.binlog_servers import FLAVOURS, Flavour, Pair, replicated
from tests.system.connectors.mysql_sources import (
    Rows,
    connect,
    fold,
    has_table,
    missing_mysql,
    open_source,
    purge_older,
    read_all,
    run,
    snapshot,
    table_rows,
    values,
    without_places,
    write_at_random,
)

pytestmark = pytest.mark.system
needs_mysql = pytest.mark.skipif(bool(missing_mysql()), reason=missing_mysql())


@pytest.fixture(scope="module", params=["MariaDB", pytest.param("MySQL", marks=needs_mysql)])
def flavour(request: pytest.FixtureRequest) -> Flavour:
    return FLAVOURS[request.param]


@pytest.fixture(scope="module")
def server(flavour: Flavour) -> Iterator[MariaDbServer]:
    with flavour.start([]) as started:
        yield started


def check_types(flavour: Flavour, server: MariaDbServer, folder: Path) -> None:
    """A row of a snapshot equals the same row as a change, with a column of each type."""
    run(server, "DROP TABLE IF EXISTS types", flavour.types, "SET GLOBAL max_allowed_packet = 67108864")
    source = open_source(server, folder, "types")
    source.check(None, begun=False)
    position, rows, _ = snapshot(source, folder)
    assert rows == []
    nulls = ", ".join(["NULL"] * 29)
    run(server, f"INSERT INTO types VALUES (1, {flavour.values})", f"INSERT INTO types VALUES (2, {nulls})")
    run(server, "UPDATE types SET y = JSON_SET(y, '$.a[0]', 7) WHERE id = 1")
    captured, _ = read_all(source, position)
    changed: Rows = {}
    fold(changed, captured)
    _, rows, table = snapshot(source, folder)
    assert {row["id"]: row for row in rows} == {key[0]: row for key, row in changed.items()}
    assert captured[0].tables[0].changes.table == table
    assert str(changed[1,]["g"]) == "-12345678901234567890.0123456789"
    assert (changed[1,]["q"], changed[1,]["r"], changed[1,]["w"]) == ("hé😀", "é€", "it's")
    assert len(changed[1,]["ab"]) == 20_000_000
    # MariaDB counts the YEAR before it as one of the columns that may be unsigned.
    assert (changed[1,]["d"], changed[1,]["ac"]) == (18446744073709551615, -1)
    source.close()


def test_a_row_of_a_snapshot_equals_the_same_row_as_a_change(
    flavour: Flavour, server: MariaDbServer, tmp_path: Path
) -> None:
    check_types(flavour, server, tmp_path)


@needs_mysql
def test_transactions_that_mysql_has_compressed_have_the_same_rows(tmp_path: Path) -> None:
    mysql = FLAVOURS["MySQL"]
    with mysql.start(["binlog-transaction-compression=ON"]) as server:
        check_types(mysql, server, tmp_path)


KEYS = {
    "unique_order": "a INT, b INT NOT NULL, c INT NOT NULL, UNIQUE z (c), UNIQUE y (b), UNIQUE x (a)",
    "unique_prefix": "a INT NOT NULL, b VARCHAR(50) NOT NULL, c INT, UNIQUE p (b(9)), UNIQUE q (a, c), UNIQUE r (b, a)",
    "unique_only_null": "a INT, b VARCHAR(20) NOT NULL, UNIQUE p (a), UNIQUE q (b(5))",
    "unique_descending": "a INT NOT NULL, b INT NOT NULL, UNIQUE p (b DESC, a)",
    "unique_virtual": "a INT NOT NULL, g INT AS (a + 1) VIRTUAL, UNIQUE p (g), UNIQUE q (a)",
    "no_key": "a INT NOT NULL, b INT NOT NULL, KEY k (a)",
}
ONE_SERVERS_KEYS = {
    "MariaDB": {"unique_hash": "a INT NOT NULL, b TEXT NOT NULL, UNIQUE p (b), UNIQUE q (a)"},
    "MySQL": {
        "unique_function": "a INT NOT NULL, b INT NOT NULL, UNIQUE p ((a + 1)), UNIQUE q (b)",
        "unique_generated": "a INT NOT NULL, g INT AS (a + 1) VIRTUAL NOT NULL, UNIQUE p (g), UNIQUE q (a)",
        "unique_stored": "a INT NOT NULL, g INT AS (a + 1) STORED NOT NULL, UNIQUE p (g), UNIQUE q (a)",
    },
}


def test_a_table_without_a_primary_key_has_the_same_key_in_a_snapshot_and_in_changes(
    flavour: Flavour, server: MariaDbServer, tmp_path: Path
) -> None:
    tables = KEYS | ONE_SERVERS_KEYS["MySQL" if isinstance(server, MySqlServer) else "MariaDB"]
    run(server, *(f"CREATE TABLE {name} ({columns})" for name, columns in tables.items()))
    source = open_source(server, tmp_path, "(unique_.*|no_key)")
    source.check(None, begun=False)
    position, _, _ = snapshot(source, tmp_path)
    run(
        server,
        *(
            f"INSERT INTO {name} ({'a, b' if ' b ' in tables[name] else 'a'}) VALUES "
            f"({'1, 1' if ' b ' in tables[name] else '1'})"
            for name in tables
            if name != "unique_order"
        ),
    )
    run(server, "INSERT INTO unique_order VALUES (1, 1, 1)")
    captured, _ = read_all(source, position)
    changed = {part.changes.table.table: part.changes.table for one in captured for part in one.tables}
    assert changed == {table.table: table for table in source.read_tables()}
    keys = {name: [table.columns[i].name for i in table.key] for name, table in changed.items()}
    assert keys == {
        "unique_order": ["c"],
        "unique_prefix": ["b", "a"],
        "unique_only_null": [],
        "unique_descending": ["b", "a"],
        "unique_virtual": ["a"],
        "no_key": [],
        **({"unique_hash": ["a"]} if "unique_hash" in tables else {}),
        **(
            {"unique_function": ["b"], "unique_generated": ["a"], "unique_stored": ["g"]}
            if "unique_stored" in tables
            else {}
        ),
    }
    source.close()


def test_a_column_that_is_excluded_may_have_cells_and_types_that_are_not_read(
    flavour: Flavour, server: MariaDbServer, tmp_path: Path
) -> None:
    unread = "b VARCHAR(300) CHARACTER SET geostd8, c ENUM('a') CHARACTER SET geostd8"
    if not isinstance(server, MySqlServer):
        unread += ", d VARCHAR(254) COMPRESSED, e VARCHAR(255) COMPRESSED, f TEXT COMPRESSED, g UUID"
    run(server, f"CREATE TABLE unread (id INT PRIMARY KEY, {unread}, z VARCHAR(9))")
    source = open_source(server, tmp_path, "unread", column_exclude_list=r"shop\.unread\.[b-g]")
    source.check(None, begun=False)
    position, _, _ = snapshot(source, tmp_path)
    texts = "'b', 'a'" + (", 'd', 'e', 'f', UUID()" if "UUID" in unread else "")
    nothing = ", ".join(["NULL"] * (6 if "UUID" in unread else 2))
    run(server, f"INSERT INTO unread VALUES (1, {texts}, 'z')", f"INSERT INTO unread VALUES (2, {nothing}, 'y')")
    captured, _ = read_all(source, position)
    folded: Rows = {}
    fold(folded, captured)
    _, rows, _ = snapshot(source, tmp_path)
    assert rows == list(folded.values()) == [{"id": 1, "z": "z"}, {"id": 2, "z": "y"}]
    source.close()


CHARACTER_SETS = ("euckr", "ujis", "eucjpms", "sjis", "cp932", "latin2", "greek", "hebrew", "cp866", "koi8u")


@pytest.mark.parametrize("charset", CHARACTER_SETS)
def test_texts_are_decoded_as_the_server_converts_them(
    flavour: Flavour, server: MariaDbServer, tmp_path: Path, charset: str
) -> None:
    """Every character of the set that the server converts, in one snapshot and one transaction."""
    run(
        server,
        f"CREATE TABLE {charset} (id INT AUTO_INCREMENT PRIMARY KEY, r VARBINARY(3),"
        f" t VARCHAR(3) CHARACTER SET {charset})",
    )
    source = open_source(server, tmp_path, charset)
    source.check(None, begun=False)
    position, _, _ = snapshot(source, tmp_path)
    codes = [bytes([first]) for first in range(256)]
    if charset in ("euckr", "ujis", "eucjpms", "sjis", "cp932"):
        codes += [bytes([lead, trail]) for lead in range(0x81, 0xFF) for trail in range(0x40, 0xFF)]
    if charset in ("ujis", "eucjpms"):
        codes += [bytes([0x8F, lead, trail]) for lead in range(0xA1, 0xFF) for trail in range(0xA1, 0xFF)]
    values = ", ".join(f"(0x{code.hex()}, 0x{code.hex()})" for code in codes)
    with connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(f"CREATE TABLE {charset}_all LIKE {charset}")
        cursor.execute(f"INSERT IGNORE INTO {charset}_all (r, t) VALUES {values}")
        # `?` stands for a character that Unicode lacks, U+FFFD for one that the server lacks.
        cursor.execute(
            f"INSERT INTO {charset} SELECT * FROM {charset}_all WHERE r = CAST(t AS BINARY)"
            " AND CONVERT(t USING utf8mb4) NOT LIKE '%?%' AND CONVERT(t USING utf8mb4) <> _utf8mb4 0xEFBFBD"
        )
    captured, _ = read_all(source, position)
    changed: Rows = {}
    fold(changed, captured)
    _, rows, _ = snapshot(source, tmp_path)
    assert len(rows) > 200
    assert [row for row in rows if changed[row["id"],] != row] == []
    source.close()


@pytest.mark.parametrize("setting", ["binlog-do-db=other", "binlog-ignore-db=shop"])
def test_a_filter_of_the_binlog_that_leaves_out_a_captured_database_is_refused(
    flavour: Flavour, tmp_path: Path, setting: str
) -> None:
    with flavour.start([setting]) as server:
        run(server, "CREATE DATABASE other", "CREATE TABLE filtered (id INT PRIMARY KEY)")
        run(server, "CREATE TABLE other.filtered (id INT PRIMARY KEY)")
        source = open_source(server, tmp_path, "filtered")
        with pytest.raises(ServerSetupError, match=f"{setting.split('=')[0].replace('-', '_')} keeps the changes of"):
            source.check(None, begun=False)
        source.close()
        source = open_source(server, tmp_path, "", table_include_list="other.filtered")
        source.check(None, begun=False)
        source.close()


def test_a_replica_that_does_not_log_what_it_replicates_is_refused(
    flavour: Flavour, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = [one for one in flavour.replica_settings if "slave-updates" not in one]
    with flavour.start([]) as first, flavour.start([*settings, "log-slave-updates=OFF"]) as second:
        run(second, "CREATE TABLE before_it (id INT PRIMARY KEY)")
        source = open_source(second, tmp_path, "before_it")
        source.check(None, begun=False)
        source.close()
        run(second, "DROP TABLE before_it", *flavour.follow(first))
        run(
            first,
            "CREATE USER reader@'%' IDENTIFIED BY 'reader'",
            f"GRANT SELECT, REPLICATION SLAVE, {flavour.monitor} ON *.* TO reader@'%'",
            "CREATE TABLE replicated (id INT PRIMARY KEY)",
        )
        wait_until(lambda: has_table(second, "replicated"), "the table is replicated")
        for user in ({}, {"database_user": "reader", "database_password": "reader"}):
            source = open_source(second, tmp_path, "replicated", **user)
            with pytest.raises(ServerSetupError, match=r"is a replica with log_\w+_updates=OFF"):
                source.check(None, begun=False)
            source.close()
        run(second, flavour.stop_replica)  # it may be promoted
        source = open_source(second, tmp_path, "replicated")
        source.check(None, begun=False)
        source.close()
        assert [one for one in caplog.messages if "the server may be a replica" in one]


def test_foreign_keys_whose_changes_are_not_in_the_binlog_are_warned_of(
    flavour: Flavour, server: MariaDbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a user who has no privilege on the tables but SELECT. MySQL 9.7 writes these changes."""
    run(
        server,
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, q INT, CONSTRAINT cascading FOREIGN KEY (p) REFERENCES parent"
        " (id) ON DELETE CASCADE, CONSTRAINT harmless FOREIGN KEY (q) REFERENCES parent (id))",
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO child VALUES (1, 1, 2)",
        "CREATE USER reader@'%' IDENTIFIED BY 'reader'",
        f"GRANT REPLICATION SLAVE, {flavour.monitor} ON *.* TO reader@'%'",
        "GRANT SELECT ON shop.* TO reader@'%'",
    )
    source = open_source(server, tmp_path, "child", database_user="reader", database_password="reader")
    source.check(None, begun=False)
    warnings = [record.getMessage() for record in caplog.records if "foreign key" in record.getMessage()]
    position, _, _ = snapshot(source, tmp_path)
    run(server, "DELETE FROM parent WHERE id = 1")
    captured, _ = read_all(source, position)
    changes = sum(len(part.changes) for one in captured for part in one.tables)
    if isinstance(server, MySqlServer):
        assert (warnings, changes) == ([], 1)
    else:
        assert ["cascading of shop.child has ON DELETE CASCADE" in warning for warning in warnings] == [True]
        assert changes == 0
    source.close()


def check_changes(server: MariaDbServer, folder: Path) -> Position:
    """Changes fold to the table, across a kill -9 of the server, and a range reads the same twice. Returns the end."""
    run(server, "CREATE TABLE folded (id INT PRIMARY KEY, v DOUBLE)")
    rng = random.Random(7)
    write_at_random(server, "folded", rng, 30)
    source = open_source(server, folder, "folded")
    source.check(None, begun=False)
    position, rows, _ = snapshot(source, folder)
    folded: Rows = {(row["id"],): row for row in rows}
    start = position
    for round_number in range(4):
        write_at_random(server, "folded", rng, 50)
        run(server, "FLUSH BINARY LOGS")
        if round_number == 1:
            server.kill()
            server.start()
        while (end := source.find_end(position, 4000, None)) != position:
            captured = list(source.read(position, end))
            assert values(captured) == values(list(source.read(position, end)))
            fold(folded, captured)
            position = end
        assert folded == table_rows(server, "folded")
    whole = list(source.read(start, position))
    places = [place for one in whole for part in one.tables for place in part.places.to_pylist()]
    assert places == sorted(places)
    source.check(position, begun=False)
    source.close()
    return position


def test_changes_fold_to_the_table_and_a_range_reads_the_same_twice(server: MariaDbServer, tmp_path: Path) -> None:
    assert check_changes(server, tmp_path)["gtids"]


@needs_mysql
def test_changes_of_a_mysql_server_without_gtids_fold_to_the_table(tmp_path: Path) -> None:
    with FLAVOURS["MySQL"].start(["gtid-mode=OFF", "enforce-gtid-consistency=OFF"]) as server:
        assert not check_changes(server, tmp_path)["gtids"]


def test_a_changed_table_has_its_columns_of_the_moment(server: MariaDbServer, tmp_path: Path) -> None:
    run(server, "CREATE TABLE altered (id INT PRIMARY KEY, a INT)")
    source = open_source(server, tmp_path, "altered", skipped_operations="none")
    source.check(None, begun=False)
    position, _, _ = snapshot(source, tmp_path)
    run(
        server,
        "INSERT INTO altered VALUES (1, 2)",
        "ALTER TABLE altered ADD COLUMN b VARCHAR(5) DEFAULT 'x', RENAME COLUMN a TO c",
        "UPDATE altered SET b = 'y'",
        "TRUNCATE TABLE altered",
        "INSERT INTO altered VALUES (3, 4, 'z')",
    )
    captured, _ = read_all(source, position)
    parts = sorted((part.changes for one in captured for part in one.tables), key=lambda changes: changes.ordinal[0])
    assert b"".join(bytes(changes.op) for changes in parts) == b"cutc"
    assert [row for changes in parts if changes.after for row in changes.after.to_pylist() if row] == [
        {"id": 1, "a": 2},
        {"id": 1, "c": 2, "b": "y"},
        {"id": 3, "c": 4, "b": "z"},
    ]
    source.close()


def test_a_drop_is_warned_of_only_if_the_table_is_captured(
    server: MariaDbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(server, "CREATE TABLE dropped (id INT PRIMARY KEY)", "CREATE TABLE other (id INT)")
    source = open_source(server, tmp_path, "dropped")
    source.check(None, begun=False)
    position, _, _ = snapshot(source, tmp_path)
    run(server, "DROP TABLE other", "DROP TABLE dropped")
    read_all(source, position)
    drops = [record.getMessage() for record in caplog.records if "DROP" in record.getMessage()]
    assert drops == ["DROP of shop.dropped has no events: the rows of the topic stay"]
    source.close()


def test_an_alter_of_partitions_is_warned_of_only_if_the_table_is_captured(
    server: MariaDbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = "(id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (9), PARTITION p1 VALUES LESS"
    run(server, *(f"CREATE TABLE {name} {parts} THAN (99))" for name in ("parted", "apart")))
    run(server, "CREATE TABLE whole (id INT PRIMARY KEY)", "INSERT INTO parted VALUES (1), (10)")
    source = open_source(server, tmp_path, "parted")
    source.check(None, begun=False)
    position, _, _ = snapshot(source, tmp_path)
    run(
        server,
        "ALTER TABLE apart DROP PARTITION p0",
        "ALTER TABLE parted EXCHANGE PARTITION p0 WITH TABLE whole",
        "ALTER TABLE parted TRUNCATE PARTITION p1",
    )
    captured, _ = read_all(source, position)
    assert captured == []
    found = [record.getMessage() for record in caplog.records if "PARTITION" in record.getMessage()]
    assert [message.partition(" has no events")[0] for message in found] == [
        "ALTER TABLE ... EXCHANGE PARTITION of shop.parted",
        "ALTER TABLE ... TRUNCATE PARTITION of shop.parted",
    ]
    source.close()


def test_a_position_whose_binlog_is_purged_is_refused(server: MariaDbServer, tmp_path: Path) -> None:
    run(server, "CREATE TABLE purged (id INT PRIMARY KEY)")
    source = open_source(server, tmp_path, "purged")
    position, _, _ = snapshot(source, tmp_path)
    run(server, "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    purge_older(server)
    with pytest.raises(BinlogPurgedError, match="failOnDataLoss=false"):
        source.check(position, begun=False)
    source.close()


def test_a_user_without_privileges_is_refused_with_the_grants_to_run(
    flavour: Flavour, server: MariaDbServer, tmp_path: Path
) -> None:
    run(
        server,
        "CREATE TABLE granted (id INT PRIMARY KEY)",
        "CREATE USER weak@'%' IDENTIFIED BY 'weak'",
        "GRANT SELECT ON shop.* TO weak@'%'",
    )
    source = open_source(server, tmp_path, "granted", database_user="weak", database_password="weak")
    wanted = rf"GRANT REPLICATION SLAVE ON \*\.\*[\s\S]*GRANT {flavour.monitor} ON \*\.\*"
    with pytest.raises(ServerSetupError, match=wanted):
        source.check(None, begun=False)
    source.close()
    run(server, f"GRANT REPLICATION SLAVE, {flavour.monitor} ON *.* TO weak@'%'")
    source = open_source(server, tmp_path, "granted", database_user="weak", database_password="weak")
    source.check(None, begun=False)
    position, _, _ = snapshot(source, tmp_path)
    run(server, "INSERT INTO granted VALUES (1)")
    captured, end = read_all(source, position)
    assert sum(len(part.changes) for one in captured for part in one.tables) == 1
    source.check(end, begun=False)
    source.close()


@pytest.fixture
def pair(flavour: Flavour) -> Iterator[Pair]:
    with replicated(flavour) as made:
        yield made


def test_a_query_continues_on_a_replica_where_it_was(pair: Pair, tmp_path: Path) -> None:
    first, second = pair.first, pair.second
    run(first, "CREATE TABLE folded (id INT PRIMARY KEY, v DOUBLE)")
    rng = random.Random(5)
    write_at_random(first, "folded", rng, 20)
    source = open_source(first, tmp_path, "folded")
    source.check(None, begun=False)
    position, rows, _ = snapshot(source, tmp_path)
    folded: Rows = {(row["id"],): row for row in rows}
    write_at_random(first, "folded", rng, 30)
    captured, position = read_all(source, position)
    fold(folded, captured)
    places = [place for one in captured for part in one.tables for place in part.places.to_pylist()]
    write_at_random(first, "folded", rng, 30)
    planned = source.find_end(position, None, None)
    wanted = values(list(source.read(position, planned)))
    source.close()
    pair.wait()
    first.kill()
    run(second, pair.flavour.stop_replica)
    write_at_random(second, "folded", rng, 30)

    source = open_source(second, tmp_path, "folded")
    source.check(position, begun=False)
    again = list(source.read(position, planned))  # the micro-batch that was planned before the failover
    assert without_places(values(again)) == without_places(wanted)
    fold(folded, again)
    captured, end = read_all(source, planned)
    fold(folded, captured)
    assert folded == table_rows(second, "folded")
    places += [place for one in (*again, *captured) for part in one.tables for place in part.places.to_pylist()]
    assert places == sorted(places)
    assert end["failovers"] == 1
    source.check(end, begun=False)
    source.close()
