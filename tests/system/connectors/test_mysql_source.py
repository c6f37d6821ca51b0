"""The source of MySQL against a real server: all types, random writers, kills, lost binlogs, failover, privileges."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from barnabas.spark.connectors.mysql.errors import (
    BinlogPurgedError,
    PositionError,
    ServerSetupError,
    UnsupportedBinlogError,
)
from barnabas.spark.connectors.mysql.positions import GtidSet
from barnabas.testing.databases import MySqlServer
from tests.system.connectors.mysql_sources import (
    InstalledMySql,
    Rows,
    connect,
    fold,
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

pytestmark = [pytest.mark.system, pytest.mark.skipif(bool(missing_mysql()), reason=missing_mysql())]


@pytest.fixture
def server(mysql: MySqlServer) -> MySqlServer:
    return mysql


TYPES = """
CREATE TABLE types (
  id INT PRIMARY KEY, a TINYINT, b SMALLINT UNSIGNED, c MEDIUMINT, d BIGINT UNSIGNED, e FLOAT, f DOUBLE,
  g DECIMAL(30,10), h DECIMAL(50,5), i BIT(1), j BIT(12), k YEAR, l DATE, m TIME(3), n DATETIME(6), o TIMESTAMP(2) NULL,
  p CHAR(10), q VARCHAR(300), r VARCHAR(20) CHARACTER SET latin1, s BINARY(6), t VARBINARY(20), u TEXT, v BLOB,
  w ENUM('x','it''s','y'), x SET('p','q','r'), y JSON, z POINT, aa VECTOR(3), ab LONGTEXT, ac BIGINT
) DEFAULT CHARSET utf8mb4
"""
VALUES = (
    "-128, 65535, -8388608, 18446744073709551615, 1.1, -2.5e-300, -12345678901234567890.0123456789,"
    " 123456789012345678901234567890123456789012345.12345, 1, 0xabc, 2024, '2024-02-29', '-838:59:58.500',"
    " '9999-12-31 23:59:59.999999', '2001-02-03 04:05:06.78', 'ab', 'hé😀', 'é€', 'a', 0x00ff, REPEAT('t', 1000), 0x00,"
    " 'it''s', 'p,r', '{\"a\": [1, 2.5, null, \"é\"], \"b\": {\"c\": 18446744073709551615}}',"
    " ST_GeomFromText('POINT(1 2)'), TO_VECTOR('[1,2,3]'), REPEAT('x', 20000000), -1"
)


@pytest.mark.parametrize("compression", ["OFF", "ON"])
def test_a_row_of_a_snapshot_equals_the_same_row_as_a_change(
    server: MySqlServer, tmp_path: Path, compression: str
) -> None:
    run(server, "DROP TABLE IF EXISTS types", TYPES, f"SET PERSIST binlog_transaction_compression = {compression}")
    source = open_source(server, tmp_path, "types")
    source.check(None, begun=False)
    position, rows, _ = snapshot(source, tmp_path)
    assert rows == []
    nulls = ", ".join(["NULL"] * 29)
    run(server, f"INSERT INTO types VALUES (1, {VALUES})", f"INSERT INTO types VALUES (2, {nulls})")
    run(server, "UPDATE types SET y = JSON_SET(y, '$.a[0]', 7) WHERE id = 1")
    captured, _ = read_all(source, position)
    changed: Rows = {}
    fold(changed, captured)
    _, rows, table = snapshot(source, tmp_path)
    assert {row["id"]: row for row in rows} == {key[0]: row for key, row in changed.items()}
    assert captured[0].tables[0].changes.table == table
    assert str(changed[1,]["g"]) == "-12345678901234567890.0123456789"
    assert (changed[1,]["q"], changed[1,]["r"], changed[1,]["w"]) == ("hé😀", "é€", "it's")
    assert len(changed[1,]["ab"]) == 20_000_000
    assert (changed[1,]["d"], changed[1,]["ac"]) == (18446744073709551615, -1)
    source.close()


@pytest.mark.parametrize("gtids", [True, False], ids=["gtids", "files"])
def test_changes_fold_to_the_table_and_a_range_reads_the_same_twice(tmp_path: Path, gtids: bool) -> None:
    settings = [] if gtids else ["gtid-mode=OFF", "enforce-gtid-consistency=OFF"]
    with InstalledMySql(settings) as server:
        run(server, "CREATE TABLE folded (id INT PRIMARY KEY, v DOUBLE)")
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
        assert bool(position["gtids"]) is gtids
        source.check(position, begun=False)
        source.close()


@pytest.mark.parametrize(("threads", "pause"), [(4, 0.0), (2, 0.02)], ids=["busy", "calm"])
def test_positions_have_the_gtids_up_to_their_place_while_others_commit(
    tmp_path: Path, threads: int, pause: float
) -> None:
    """A GTID too many is a transaction that a failover skips, one too few is one that it repeats."""
    with InstalledMySql() as server:
        run(server, "CREATE TABLE busy (id INT AUTO_INCREMENT PRIMARY KEY, writer INT)")
        source = open_source(server, tmp_path, "busy")
        source.check(None, begun=False)
        stop = Event()

        def write(writer: int) -> int:
            commits = 0
            with connect(server) as connection, connection.cursor() as cursor:
                while not stop.is_set():
                    cursor.execute(f"INSERT INTO busy (writer) VALUES ({writer})")
                    commits += 1
                    stop.wait(pause)
            return commits

        with ThreadPoolExecutor(threads) as pool:
            writers = [pool.submit(write, writer) for writer in range(threads)]
            try:
                position, rows, _ = snapshot(source, tmp_path)
                read, seen = GtidSet.parse(position["gtids"]), len(rows)
                for _ in range(40):
                    end = source.find_end(position, None, None)
                    for one in source.read(position, end):
                        for part in one.tables:
                            seen += len(part.changes)
                            for gtid in part.changes.transaction.to_pylist():
                                uuid, _, number = gtid.rpartition(":")
                                read = read.with_gtid(uuid, int(number))
                    assert GtidSet.parse(end["gtids"]) == read
                    position = end
            finally:
                stop.set()
            commits = sum(writer.result() for writer in writers)
        captured, _ = read_all(source, position)
        seen += sum(len(part.changes) for one in captured for part in one.tables)
        assert seen == commits
        source.close()


def test_a_changed_table_has_its_columns_of_the_moment(server: MySqlServer, tmp_path: Path) -> None:
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


def test_a_user_without_privileges_is_refused_with_the_grants_to_run(server: MySqlServer, tmp_path: Path) -> None:
    run(
        server,
        "CREATE TABLE granted (id INT PRIMARY KEY)",
        "CREATE USER weak@'%' IDENTIFIED BY 'weak'",
        "GRANT SELECT ON shop.* TO weak@'%'",
    )
    source = open_source(server, tmp_path, "granted", database_user="weak", database_password="weak")
    with pytest.raises(
        ServerSetupError, match=r"GRANT REPLICATION SLAVE ON \*\.\*[\s\S]*GRANT REPLICATION CLIENT ON \*\.\*"
    ):
        source.check(None, begun=False)
    source.close()
    run(server, "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO weak@'%'")
    source = open_source(server, tmp_path, "granted", database_user="weak", database_password="weak")
    source.check(None, begun=False)
    position, _, _ = snapshot(source, tmp_path)
    run(server, "INSERT INTO granted VALUES (1)")
    captured, end = read_all(source, position)
    assert sum(len(part.changes) for one in captured for part in one.tables) == 1
    source.check(end, begun=False)
    source.close()


def test_a_tagged_gtid_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with InstalledMySql() as server:
        run(server, "CREATE TABLE tagged (id INT PRIMARY KEY)")
        source = open_source(server, tmp_path, "tagged")
        source.check(None, begun=False)
        position, _, _ = snapshot(source, tmp_path)
        end = source.find_end(position, None, None)
        run(server, "SET gtid_next = 'AUTOMATIC:blue'", "INSERT INTO tagged VALUES (1)")
        with pytest.raises((PositionError, UnsupportedBinlogError), match="tagged GTID"):
            source.find_end(end, None, None)
        source.close()


def test_binlogs_that_are_lost_are_noticed(tmp_path: Path) -> None:
    with InstalledMySql() as server:
        run(server, "CREATE TABLE lost (id INT PRIMARY KEY)")
        source = open_source(server, tmp_path, "lost")
        source.check(None, begun=False)
        position, _, _ = snapshot(source, tmp_path)
        run(server, *(f"INSERT INTO lost VALUES ({key})" for key in range(20)))
        _, position = read_all(source, position)
        run(server, "RESET BINARY LOGS AND GTIDS")
        with pytest.raises(PositionError, match="RESET MASTER was run"):
            source.find_end(position, None, None)
        with pytest.raises(PositionError, match="RESET MASTER was run"):
            source.check(position, begun=False)
        large = ", ".join(f"({key})" for key in range(1000, 4000))
        run(server, f"INSERT INTO lost VALUES {large}")  # behind the position, with fewer transactions
        with pytest.raises(PositionError, match="RESET MASTER was run"):
            source.find_end(position, None, None)
        run(server, *(f"INSERT INTO lost VALUES ({key})" for key in range(100, 140)))
        with pytest.raises(PositionError, match="RESET MASTER was run"):
            source.check(position, begun=False)
        source.close()


def test_a_position_whose_binlog_is_purged_is_refused(server: MySqlServer, tmp_path: Path) -> None:
    run(server, "CREATE TABLE purged (id INT PRIMARY KEY)")
    source = open_source(server, tmp_path, "purged")
    position, _, _ = snapshot(source, tmp_path)
    run(server, "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    purge_older(server)
    with pytest.raises(BinlogPurgedError, match="Take a new snapshot"):
        source.check(position, begun=False)
    source.close()


@pytest.fixture
def pair() -> Iterator[tuple[MySqlServer, MySqlServer]]:
    """A server, and a replica of it."""
    with InstalledMySql() as first, InstalledMySql(["server-id=2", "log-bin=other"]) as second:
        run(
            second,
            "RESET BINARY LOGS AND GTIDS",
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {first.port},"
            f" SOURCE_USER = '{first.user}', SOURCE_PASSWORD = '{first.password}', SOURCE_AUTO_POSITION = 1,"
            " GET_SOURCE_PUBLIC_KEY = 1",
            "START REPLICA",
        )
        yield first, second


def wait_for_replica(first: MySqlServer, second: MySqlServer) -> None:
    with connect(first) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@gtid_executed")
        wanted = cursor.fetchall()[0][0]
    with connect(second, "") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 60)", (wanted,))
        assert cursor.fetchall() == ((0,),)


def test_a_query_continues_on_a_replica_where_it_was(pair: tuple[MySqlServer, MySqlServer], tmp_path: Path) -> None:
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
    write_at_random(first, "folded", rng, 30)
    planned = source.find_end(position, None, None)
    wanted = values(list(source.read(position, planned)))
    source.close()
    wait_for_replica(first, second)
    first.kill()
    run(second, "STOP REPLICA")
    write_at_random(second, "folded", rng, 30)

    source = open_source(second, tmp_path, "folded")
    source.check(position, begun=False)
    again = list(source.read(position, planned))  # the micro-batch that was planned before the failover
    assert without_places(values(again)) == without_places(wanted)
    fold(folded, again)
    captured, end = read_all(source, planned)
    fold(folded, captured)
    assert folded == table_rows(second, "folded")
    assert end["failovers"] == 1
    source.check(end, begun=False)
    source.close()
