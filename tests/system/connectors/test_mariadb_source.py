"""The source of MariaDB against a real server: all types, random writers, kills, purged binlogs, missing privileges."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.spark.connectors.mysql.errors import BinlogPurgedError, PositionError, ServerSetupError
from barnabas.testing.databases import MariaDbServer
from tests.system.connectors.mysql_sources import (
    Rows,
    connect,
    fold,
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


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDbServer]:
    with MariaDbServer() as started:
        yield started


TYPES = """
CREATE OR REPLACE TABLE types (
  id INT PRIMARY KEY, a TINYINT, b SMALLINT UNSIGNED, c MEDIUMINT, d BIGINT UNSIGNED, e FLOAT, f DOUBLE,
  g DECIMAL(30,10), h DECIMAL(50,5), i BIT(1), j BIT(12), k YEAR, l DATE, m TIME(3), n DATETIME(6), o TIMESTAMP(2) NULL,
  p CHAR(10), q VARCHAR(300), r VARCHAR(20) CHARACTER SET latin1, s BINARY(6), t VARBINARY(20), u TEXT, v BLOB,
  w ENUM('x','it''s','y'), x SET('p','q','r'), y JSON, z POINT, aa INET6, ab LONGTEXT, ac BIGINT
) DEFAULT CHARSET utf8mb4
"""
VALUES = (
    "-128, 65535, -8388608, 18446744073709551615, 1.1, -2.5e-300, -12345678901234567890.0123456789,"
    " 123456789012345678901234567890123456789012345.12345, 1, 0xabc, 2024, '2024-02-29', '-838:59:59.500',"
    " '9999-12-31 23:59:59.999999', '2001-02-03 04:05:06.78', 'ab', 'hé😀', 'é€', 'a', 0x00ff, REPEAT('t', 1000), 0x00,"
    " 'it''s', 'p,r', '{\"a\": [1, 2]}', POINT(1, 2), '::1', REPEAT('x', 20000000),"
    " -1"
)


def test_a_row_of_a_snapshot_equals_the_same_row_as_a_change(server: MariaDbServer, tmp_path: Path) -> None:
    run(server, TYPES, "SET GLOBAL max_allowed_packet = 67108864")
    source = open_source(server, tmp_path, "types")
    source.check(None, begun=False)
    position, rows, _ = snapshot(source, tmp_path)
    assert rows == []
    nulls = ", ".join(["NULL"] * 29)
    run(server, f"INSERT INTO types VALUES (1, {VALUES})", f"INSERT INTO types VALUES (2, {nulls})")
    run(server, "SET SESSION sql_mode = ''")
    captured, _ = read_all(source, position)
    changed: Rows = {}
    fold(changed, captured)
    _, rows, table = snapshot(source, tmp_path)
    assert {row["id"]: row for row in rows} == {key[0]: row for key, row in changed.items()}
    assert captured[0].tables[0].changes.table == table
    assert str(changed[1,]["g"]) == "-12345678901234567890.0123456789"
    assert (changed[1,]["q"], changed[1,]["r"], changed[1,]["w"]) == ("hé😀", "é€", "it's")
    assert len(changed[1,]["ab"]) == 20_000_000
    assert changed[1,]["ac"] == -1  # the YEAR before it has a bit in the list of unsigned columns, too
    source.close()


def test_changes_fold_to_the_table_and_a_range_reads_the_same_twice(server: MariaDbServer, tmp_path: Path) -> None:
    run(server, "CREATE OR REPLACE TABLE folded (id INT PRIMARY KEY, v DOUBLE)")
    rng = random.Random(7)
    write_at_random(server, "folded", rng, 30)
    source = open_source(server, tmp_path, "folded")
    source.check(None, begun=False)
    position, rows, _ = snapshot(source, tmp_path)
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
    source.close()


def test_a_changed_table_has_its_columns_of_the_moment(server: MariaDbServer, tmp_path: Path) -> None:
    run(server, "CREATE OR REPLACE TABLE altered (id INT PRIMARY KEY, a INT)")
    source = open_source(server, tmp_path, "altered")
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
    sides = [part.changes.after.to_pylist() for one in captured for part in one.tables]
    assert [row for side in sides for row in side] == [
        {"id": 1, "a": 2},
        {"id": 1, "c": 2, "b": "y"},
        {"id": 3, "c": 4, "b": "z"},
    ]
    source.close()


def test_a_drop_is_warned_of_only_if_the_table_is_captured(
    server: MariaDbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(server, "CREATE OR REPLACE TABLE dropped (id INT PRIMARY KEY)", "CREATE OR REPLACE TABLE other (id INT)")
    source = open_source(server, tmp_path, "dropped")
    source.check(None, begun=False)
    position, _, _ = snapshot(source, tmp_path)
    run(server, "DROP TABLE other", "DROP TABLE dropped")
    read_all(source, position)
    drops = [record.getMessage() for record in caplog.records if "DROP" in record.getMessage()]
    assert drops == ["DROP of shop.dropped has no events: the rows of the topic stay"]
    source.close()


def test_a_position_whose_binlog_is_purged_is_refused(server: MariaDbServer, tmp_path: Path) -> None:
    run(server, "CREATE OR REPLACE TABLE purged (id INT PRIMARY KEY)")
    source = open_source(server, tmp_path, "purged")
    position, _, _ = snapshot(source, tmp_path)
    run(server, "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    purge_older(server)
    with pytest.raises(BinlogPurgedError, match="Take a new snapshot"):
        source.check(position, begun=False)
    source.close()


def test_a_user_without_privileges_is_refused_with_the_grants_to_run(server: MariaDbServer, tmp_path: Path) -> None:
    run(
        server,
        "CREATE TABLE IF NOT EXISTS granted (id INT PRIMARY KEY)",
        "CREATE OR REPLACE USER weak@'%' IDENTIFIED BY 'weak'",
        "GRANT SELECT ON shop.* TO weak@'%'",
    )
    source = open_source(server, tmp_path, "granted", database_user="weak", database_password="weak")
    with pytest.raises(ServerSetupError, match=r"GRANT REPLICATION SLAVE ON \*\.\*[\s\S]*GRANT BINLOG MONITOR"):
        source.check(None, begun=False)
    source.close()


def test_a_truncate_is_an_event_if_it_is_not_skipped(server: MariaDbServer, tmp_path: Path) -> None:
    run(server, "CREATE OR REPLACE TABLE emptied (id INT PRIMARY KEY)")
    source = open_source(server, tmp_path, "emptied", skipped_operations="none")
    source.check(None, begun=False)
    position, _, _ = snapshot(source, tmp_path)
    run(server, "INSERT INTO emptied VALUES (1)", "TRUNCATE TABLE emptied", "INSERT INTO emptied VALUES (2)")
    captured, _ = read_all(source, position)
    parts = sorted((part.changes for one in captured for part in one.tables), key=lambda changes: changes.ordinal[0])
    assert b"".join(bytes(changes.op) for changes in parts) == b"ctc"
    source.close()


def test_binlogs_that_are_lost_while_the_query_runs_are_noticed(tmp_path: Path) -> None:
    with MariaDbServer() as server:
        run(server, "CREATE TABLE lost (id INT PRIMARY KEY)")
        source = open_source(server, tmp_path, "lost")
        source.check(None, begun=False)
        position, _, _ = snapshot(source, tmp_path)
        run(server, "INSERT INTO lost VALUES (1)")
        _, position = read_all(source, position)
        run(server, "RESET MASTER")
        with pytest.raises(PositionError, match="RESET MASTER was run"):
            source.find_end(position, None, None)
        run(server, *(f"INSERT INTO lost VALUES ({key})" for key in range(100, 120)))
        with pytest.raises(PositionError, match="RESET MASTER was run"):
            source.check(position, begun=False)
        run(server, "FLUSH BINARY LOGS")
        position = source.find_end(position, None, None)
        run(server, "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
        purge_older(server)
        with pytest.raises(BinlogPurgedError, match="Take a new snapshot"):
            source.find_end(position, None, None)
        source.close()


@pytest.fixture
def pair() -> Iterator[tuple[MariaDbServer, MariaDbServer]]:
    """A server, and a replica of it."""
    with MariaDbServer() as first, MariaDbServer(["server-id=2", "log-slave-updates=ON", "log-bin=other"]) as second:
        run(
            second,
            "RESET MASTER",
            "SET GLOBAL gtid_slave_pos = ''",
            f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {first.port}, master_user = 'barnabas',"
            " master_password = 'barnabas', master_use_gtid = slave_pos",
            "START SLAVE",
        )
        yield first, second


def wait_for_replica(first: MariaDbServer, second: MariaDbServer) -> None:
    with connect(first) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@gtid_binlog_pos")
        wanted = cursor.fetchall()[0][0]
    with connect(second) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT MASTER_GTID_WAIT(%s, 60)", (wanted,))
        assert cursor.fetchall() == ((0,),)


def test_a_query_continues_on_a_replica_where_it_was(pair: tuple[MariaDbServer, MariaDbServer], tmp_path: Path) -> None:
    first, second = pair
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
    wait_for_replica(first, second)
    first.kill()
    run(second, "STOP SLAVE")
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


def test_a_replica_that_lacks_transactions_or_has_others_is_refused(
    pair: tuple[MariaDbServer, MariaDbServer], tmp_path: Path
) -> None:
    first, second = pair
    run(first, "CREATE TABLE behind (id INT PRIMARY KEY)")
    wait_for_replica(first, second)
    run(second, "STOP SLAVE")
    source = open_source(first, tmp_path, "behind")
    source.check(None, begun=False)
    position, _, _ = snapshot(source, tmp_path)
    run(first, "INSERT INTO behind VALUES (1)")
    _, position = read_all(source, position)
    source.close()
    source = open_source(second, tmp_path, "behind")
    with pytest.raises(PositionError, match=r"does not have: up to 0-1-.*a replica that lags behind"):
        source.check(position, begun=False)
    run(second, "INSERT INTO behind VALUES (2)")
    with pytest.raises(PositionError, match="have diverged"):
        source.check(position, begun=False)
    source.close()
