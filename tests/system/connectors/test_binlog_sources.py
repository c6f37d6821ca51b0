"""The sources of MariaDB and MySQL against real servers: types, random writers, kills, DDL, privileges, failover."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.spark.connectors.capture.ports import Position
from barnabas.spark.connectors.mysql.errors import BinlogPurgedError, ServerSetupError
from barnabas.testing.databases import MariaDbServer
from tests.system.connectors.binlog_servers import FLAVOURS, Flavour, Pair, replicated
from tests.system.connectors.mysql_sources import (
    Rows,
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


def test_a_position_whose_binlog_is_purged_is_refused(server: MariaDbServer, tmp_path: Path) -> None:
    run(server, "CREATE TABLE purged (id INT PRIMARY KEY)")
    source = open_source(server, tmp_path, "purged")
    position, _, _ = snapshot(source, tmp_path)
    run(server, "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    purge_older(server)
    with pytest.raises(BinlogPurgedError, match="Take a new snapshot"):
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
