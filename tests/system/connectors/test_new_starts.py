"""Queries whose position is lost, on real servers: with failOnDataLoss=false, they go on with a new snapshot."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from barnabas.spark.connectors.capture.errors import LostPositionError
from barnabas.spark.connectors.capture.ports import Connector
from barnabas.spark.connectors.mysql.source import MARIADB, MYSQL
from barnabas.spark.connectors.postgres.errors import SlotError
from barnabas.spark.connectors.postgres.source import CONNECTOR as POSTGRES
from barnabas.testing.databases import MariaDbServer, PostgresServer
from tests.system.connectors.mysql_sources import InstalledMySql, missing_mysql, run
from tests.system.connectors.pathways import capturing
from tests.system.connectors.postgres_sources import capture_texts, create, session

pytestmark = pytest.mark.system

GOES_ON = {"failOnDataLoss": "false"}


def seen(batch: Any) -> list[tuple[int, str]]:
    """The key and the operation of each row."""
    return [(row["id"], row["__op"]) for row in batch.to_pylist()]


def places(batch: Any) -> list[str]:
    return [row["__position"] for row in batch.to_pylist()]


def test_a_query_on_postgres_starts_anew_after_its_slot_or_its_server_was_replaced(
    postgres: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = "anew"
    texts = capture_texts(postgres, tmp_path, name)
    with create(postgres, name, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)") as admin:
        admin.execute("SELECT pg_switch_wal()")  # so that the other server's log is at an earlier place
        with capturing(texts, POSTGRES) as capture:
            assert seen(capture.batch()) == [(1, "r")]
            admin.execute("INSERT INTO t VALUES (2)")
            before = capture.batch()
            assert seen(before) == [(2, "c")]
        admin.execute("SELECT pg_drop_replication_slot(%s)", (name,))
        admin.execute("DELETE FROM t WHERE id = 1")
        with capturing(texts, POSTGRES, capture.offset) as stopped, pytest.raises(LostPositionError, match="slot anew"):
            stopped.batch()
        with capturing(texts | GOES_ON, POSTGRES, capture.offset) as capture:
            snapshot = capture.batch()
            assert seen(snapshot) == [(2, "r")]
            admin.execute("INSERT INTO t VALUES (3)")
            after = capture.batch()
            assert seen(after) == [(3, "c")]
            assert max(places(before)) < min(places(snapshot)) < min(places(after))
            admin.execute("SELECT pg_drop_replication_slot(%s)", (name,))  # while the query runs
            assert seen(capture.batch()) == [(2, "r"), (3, "r")]
            assert "the slot anew does not exist any more" in caplog.text
    with PostgresServer() as other:
        create(other, name, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (7)").close()
        texts |= {"database.port": str(other.port)}
        with (
            capturing(texts, POSTGRES, capture.offset) as stopped,
            pytest.raises(LostPositionError, match=r"another server \(system identifier \d+, not \d+\)"),
        ):
            stopped.batch()
        with session(other) as admin:
            admin.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
            with (
                capturing(texts | GOES_ON, POSTGRES, capture.offset) as stopped,
                pytest.raises(SlotError, match="the slot anew exists"),  # it may be that of another program
            ):
                stopped.batch()
            admin.execute("SELECT pg_drop_replication_slot(%s)", (name,))
        with capturing(texts | GOES_ON, POSTGRES, capture.offset) as capture, session(other) as admin:
            moved = capture.batch()
            assert seen(moved) == [(7, "r")]
            admin.execute("INSERT INTO anew.t VALUES (8)")
            later = capture.batch()
            assert seen(later) == [(8, "c")]
            assert max(places(after)) < min(places(moved)) < min(places(later))
    with session(postgres) as admin:
        admin.execute("SELECT pg_drop_replication_slot(%s)", (name,))


@pytest.mark.parametrize("connector", [MARIADB, MYSQL], ids=["mariadb", "mysql"])
def test_a_query_on_binlogs_starts_anew_after_they_or_their_server_were_replaced(
    connector: Connector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if connector is MYSQL and (missing := missing_mysql()):
        pytest.skip(missing)
    caplog.set_level(logging.WARNING)
    kind = MariaDbServer if connector is MARIADB else InstalledMySql
    reset = "RESET MASTER" if connector is MARIADB else "RESET BINARY LOGS AND GTIDS"
    with kind() as server:
        texts = {
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": server.user,
            "database.password": server.password,
            "table.include.list": "shop.anew",
            "topic.prefix": "anew",
            "output": "rows",
            "stagingLocation": str(tmp_path / "staging"),
        }
        run(server, "CREATE TABLE anew (id INT PRIMARY KEY)", "INSERT INTO anew VALUES (1)")
        with capturing(texts, connector) as capture:
            assert seen(capture.batch()) == [(1, "r")]
            run(server, *(f"INSERT INTO anew VALUES ({key})" for key in range(2, 12)))
            before = capture.batch()
            assert before.num_rows == 10
            run(server, reset, "DELETE FROM anew WHERE id > 2")
            with pytest.raises(LostPositionError, match=r"RESET MASTER was run.*failOnDataLoss=false"):
                capture.batch()
        with capturing(texts | GOES_ON, connector, capture.offset) as capture:
            snapshot = capture.batch()
            assert seen(snapshot) == [(1, "r"), (2, "r")]
            run(server, "INSERT INTO anew VALUES (3)")
            after = capture.batch()
            assert seen(after) == [(3, "c")]
            assert max(places(before)) < min(places(snapshot)) < min(places(after))
    settings = ["server-id=2", "gtid-domain-id=7"] if connector is MARIADB else ["server-id=2"]
    with kind(settings) as other:
        run(other, "CREATE TABLE anew (id INT PRIMARY KEY)", "INSERT INTO anew VALUES (7)")
        texts |= {"database.port": str(other.port)}
        with (
            capturing(texts, connector, capture.offset) as stopped,
            pytest.raises(LostPositionError, match=r"belongs to the server .* and this is the server .* none of their"),
        ):
            stopped.batch()
        with capturing(texts | GOES_ON, connector, capture.offset) as capture:
            moved = capture.batch()
            assert seen(moved) == [(7, "r")]
            run(other, "INSERT INTO anew VALUES (8)")
            later = capture.batch()
            assert seen(later) == [(8, "c")]
            assert max(places(after)) < min(places(moved)) < min(places(later))
    assert caplog.text.count("The query starts anew, since failOnDataLoss=false") == 2
