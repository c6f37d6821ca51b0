"""The source of MariaDB, where it differs from MySQL's: binlogs lost during a query, replicas that have diverged."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from barnabas.spark.connectors.mysql.errors import BinlogPurgedError, PositionError, ServerSetupError
from barnabas.testing.databases import MariaDbServer
from tests.progress import wait_until
from tests.system.connectors.binlog_servers import FLAVOURS, replicated
from tests.system.connectors.mysql_sources import open_source, purge_older, read_all, run, snapshot

pytestmark = pytest.mark.system


def test_binlogs_that_are_lost_while_the_query_runs_are_noticed(tmp_path: Path) -> None:
    with MariaDbServer() as server:
        run(server, "CREATE TABLE lost (id INT PRIMARY KEY)")
        source = open_source(server, tmp_path, "lost")
        source.check(None, begun=False)
        position, _, _ = snapshot(source, tmp_path)
        run(server, "INSERT INTO lost VALUES (1)")
        _, position = read_all(source, position)
        wait_until(lambda: time.time() >= position["begun"] + 1, "a file that is begun now has another time")
        run(server, "RESET MASTER")
        with pytest.raises(PositionError, match="RESET MASTER was run"):
            source.find_end(position, None, None)
        run(server, *(f"INSERT INTO lost VALUES ({key})" for key in range(100, 120)))
        with pytest.raises(PositionError, match="RESET MASTER was run"):
            source.check(position, begun=False)
        with pytest.raises(PositionError, match=r"the binlog .* was replaced: .* begun at .*RESET MASTER was run"):
            source.find_end(position, None, None)  # the file has grown beyond the position
        with pytest.raises(PositionError, match="RESET MASTER was run"):
            read_all(source, position)
        position, _, _ = snapshot(source, tmp_path / "again")
        run(server, "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
        purge_older(server)
        with pytest.raises(BinlogPurgedError, match="failOnDataLoss=false"):
            source.find_end(position, None, None)
        source.close()


def test_a_replica_that_lacks_transactions_or_has_others_is_refused(tmp_path: Path) -> None:
    with replicated(FLAVOURS["MariaDB"]) as pair:
        first, second = pair.first, pair.second
        run(first, "CREATE TABLE behind (id INT PRIMARY KEY)")
        pair.wait()
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


def test_tables_with_system_versioning_are_refused_by_name(tmp_path: Path) -> None:
    with MariaDbServer() as server:
        run(server, "CREATE TABLE plain (id INT PRIMARY KEY)")
        run(server, "CREATE TABLE versioned (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
        source = open_source(server, tmp_path, ".*")
        with pytest.raises(ServerSetupError, match=r"shop\.versioned[\s\S]*table\.exclude\.list"):
            source.check(None, begun=False)
        source.close()
        source = open_source(server, tmp_path, "plain")
        source.check(None, begun=False)
        position, _, _ = snapshot(source, tmp_path)
        run(server, "INSERT INTO versioned VALUES (1)", "INSERT INTO plain VALUES (1)")
        captured, position = read_all(source, position)
        assert [part.changes.table.table for one in captured for part in one.tables] == ["plain"]
        run(server, "SET STATEMENT max_statement_time = 100 FOR ALTER TABLE plain ADD SYSTEM VERSIONING")
        run(server, "DELETE FROM plain")
        with pytest.raises(ServerSetupError, match=r"ALTER TABLE `shop`\.`plain` DROP SYSTEM VERSIONING"):
            read_all(source, position)
        source.close()
