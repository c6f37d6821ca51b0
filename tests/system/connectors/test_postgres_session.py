"""Sessions on a PostgreSQL server that is killed while one of its processes decodes the log."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import psycopg
import pytest

from barnabas.spark.connectors.postgres.options import parse_postgres_options
from barnabas.spark.connectors.postgres.session import ConnectionLostError, Session
from barnabas.spark.connectors.sql.dialects import Statement
from barnabas.testing.databases import PostgresServer
from tests.progress import wait_until
from tests.system.connectors.postgres_sources import capture_options

pytestmark = pytest.mark.system


def open_session(server: PostgresServer, folder: Path) -> Session:
    return Session(parse_postgres_options(capture_options(server, folder, "session")))


def test_a_statement_ends_when_the_server_is_gone_and_its_process_lives(tmp_path: Path) -> None:
    """A process that waits for the rest of a record lives on like this one, and keeps the connection open."""
    with PostgresServer() as server:
        session = open_session(server, tmp_path)
        backend = session.connection.info.backend_pid
        os.kill(backend, signal.SIGSTOP)
        try:
            server.kill()
            with pytest.raises(ConnectionLostError, match="check that the server runs"), session.watched(0.2):
                session.rows(Statement("SELECT 1"), "waiting")
        finally:
            os.kill(backend, signal.SIGCONT)
        assert session.is_broken
        server.start()  # the process ends, because its client has gone


def test_a_watched_statement_on_a_living_server_may_take_long(postgres: PostgresServer, tmp_path: Path) -> None:
    session = open_session(postgres, tmp_path)
    with session.watched(0.05):
        assert session.rows(Statement("SELECT pg_sleep(0.5), 7"), "sleeping")[0][1] == 7
    session.close()


def test_a_process_of_the_server_ends_during_a_statement_when_its_client_is_gone(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    session = open_session(postgres, tmp_path)
    pid = session.connection.info.backend_pid
    session.connection.pgconn.send_query(b"SELECT pg_sleep(3600)")
    with psycopg.connect(postgres.conninfo, autocommit=True) as admin:

        def is_running() -> bool:
            return bool(admin.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall())

        wait_until(is_running, "the statement runs")
        with socket.socket(fileno=os.dup(session.connection.fileno())) as shared:
            shared.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: not is_running(), "the process ends")
    session.close()
