"""The source of MySQL, where it differs from MariaDB's: GTIDs under writers, tagged GTIDs, lost binlogs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from barnabas.spark.connectors.mysql.errors import PositionError, UnsupportedBinlogError
from barnabas.spark.connectors.mysql.positions import GtidSet
from tests.system.connectors.mysql_sources import (
    InstalledMySql,
    connect,
    missing_mysql,
    open_source,
    read_all,
    run,
    snapshot,
)

pytestmark = [pytest.mark.system, pytest.mark.skipif(bool(missing_mysql()), reason=missing_mysql())]


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
