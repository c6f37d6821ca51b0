"""The database servers of `barnabas.testing.databases` start, keep what is committed when killed, and leave nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psycopg
import pymysql
import pytest

from barnabas.testing.databases import DatabaseServerError, MariaDbServer, PostgresServer
from tests.system.connectors.mysql_sources import InstalledMySql, missing_mysql

pytestmark = pytest.mark.system


def test_a_killed_postgresql_keeps_what_is_committed() -> None:
    with PostgresServer() as server:
        with psycopg.connect(server.conninfo, autocommit=True) as session:
            session.execute("CREATE TABLE t (a int)")
            session.execute("INSERT INTO t VALUES (7)")
            assert session.execute("SHOW wal_level").fetchall() == [("logical",)]
        server.kill()
        server.start()
        with psycopg.connect(server.conninfo) as session:
            assert session.execute("SELECT a FROM t").fetchall() == [(7,)]
        folder = server.folder
    assert not folder.exists()


@pytest.mark.parametrize(
    "kind",
    [
        MariaDbServer,
        pytest.param(
            InstalledMySql, marks=pytest.mark.skipif(bool(missing_mysql()), reason=missing_mysql()), id="MySqlServer"
        ),
    ],
)
def test_a_killed_mariadb_or_mysql_keeps_what_is_committed(kind: type[MariaDbServer]) -> None:
    with kind() as server:
        with contextlib.closing(_session(server)) as session, session.cursor() as cursor:
            cursor.execute("CREATE TABLE t (a int)")
            cursor.execute("INSERT INTO t VALUES (7)")
            session.commit()
            cursor.execute("SELECT @@binlog_format, @@binlog_row_metadata")
            assert cursor.fetchall() == (("ROW", "FULL"),)
        server.kill()
        server.start()
        with contextlib.closing(_session(server)) as session, session.cursor() as cursor:
            cursor.execute("SELECT a FROM t")
            assert cursor.fetchall() == ((7,),)
        folder = server.folder
    assert not folder.exists()


def test_a_setting_that_the_server_refuses_is_shown_with_the_log() -> None:
    server = PostgresServer(["wal_level=nonsense"])
    with pytest.raises(DatabaseServerError, match="wal_level"), server:
        raise AssertionError("the server started")
    assert not server.folder.exists()


def test_a_server_that_is_not_installed_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(MariaDbServer, "folders", classmethod(lambda _: [str(tmp_path)]))
    with pytest.raises(DatabaseServerError, match="apt-get install mariadb-server-core"):
        MariaDbServer().__enter__()


def _session(server: MariaDbServer) -> pymysql.connections.Connection:  # type: ignore[type-arg]
    return pymysql.connect(
        host="127.0.0.1", port=server.port, user=server.user, password=server.password, database=server.database
    )
