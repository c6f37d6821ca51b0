"""Shell: a session on a PostgreSQL server, by psycopg.

Every error of the driver becomes a PostgresError that says what to do. All sessions have the settings on which the text
form of values depends (`text_columns.SESSION_SETTINGS`), and no time-outs for statements and transactions, since a
snapshot may take hours.

A process of the server that decodes the log waits until the end of a record is written. If the server is killed while
the record is incomplete, that process waits forever, since it does not notice that the server's main process is gone,
and no server starts on the data while it lives. So a session closes its connection when nothing listens at the server's
port any more (`watched`), and the server looks for a closed connection while a statement runs
(`client_connection_check_interval`, PostgreSQL 14).
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from barnabas.spark.connectors.postgres.errors import NoTableError, PostgresError, ServerNotReadyError, SlotInUseError
from barnabas.spark.connectors.postgres.options import PostgresOptions
from barnabas.spark.connectors.postgres.statements import session_settings
from barnabas.spark.connectors.sql.dialects import Statement

CONNECT_TIMEOUT_S: Final = 10
_NO_TIMEOUTS: Final = (
    "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c row_security=off"
)
_CLIENT_CHECK: Final = "SET client_connection_check_interval = '2s'"
_CLIENT_CHECK_SINCE: Final = 140_000
_NO_TRANSACTION_TIMEOUT: Final = "SET transaction_timeout = 0"
_TRANSACTION_TIMEOUT_SINCE: Final = 170_000
_LOOK_SECONDS: Final = 5.0
"""How often a watched statement looks whether the server still listens."""
_OBJECT_IN_USE: Final = "55006"
_LOCK_NOT_AVAILABLE: Final = "55P03"
_NOT_IN_PREREQUISITE_STATE: Final = "55000"
_INSUFFICIENT_PRIVILEGE: Final = "42501"
_UNDEFINED: Final = ("42P01", "3F000")
"""Undefined table, invalid schema name."""
_TOO_MANY_CONNECTIONS: Final = "53300"


class ConnectionLostError(PostgresError):
    """The server cannot be reached, has no connection left, or has ended the connection."""


class LockedError(PostgresError):
    """A lock cannot be had at once."""


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise PostgresError(
            "the driver psycopg is not installed: pip install 'barnabas[postgres]', on the driver and on the workers"
        ) from error
    return psycopg


@contextmanager
def readable(doing: str) -> Iterator[None]:
    """Raise errors of psycopg as PostgresErrors; `doing` is what was tried, such as "reading the slot s"."""
    psycopg = _driver()
    try:
        yield
    except psycopg.Error as error:
        raise _readable(doing, error) from error


def _readable(doing: str, error: Any) -> PostgresError:
    code = getattr(error, "sqlstate", None)
    primary = error.diag.message_primary or str(error).strip().partition("\n")[0]
    text = f"{doing} failed: {primary}" + (f" ({code})" if code else "")
    if code == _OBJECT_IN_USE:
        return SlotInUseError(f"{text}: stop the other reader of the slot, or give this query a slot of its own")
    if code in _UNDEFINED:
        return NoTableError(f"{text}: check the names of the tables, and start the query again")
    if code == _LOCK_NOT_AVAILABLE:
        return LockedError(f"{text}: another session locks the table, try again")
    if code == _INSUFFICIENT_PRIVILEGE:
        return PostgresError(f"{text}: grant the role what it needs, or use another role (database.user)")
    if code == _NOT_IN_PREREQUISITE_STATE:
        return ServerNotReadyError(
            f"{text}: if the slot has lost its changes, start the query over with a new snapshot"
        )
    if code is None or code.startswith(("08", "57P", _TOO_MANY_CONNECTIONS)):
        return ConnectionLostError(f"{text}: check that the server runs and is reachable, then start the query again")
    return PostgresError(f"{text}: correct the cause that the server names, and start the query again")


def _is_listening(host: str, port: int) -> bool:
    """Whether something accepts connections there; `host` is the directory of a local socket if it begins with /."""
    try:
        if host.startswith("/"):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(f"{host}/.s.PGSQL.{port}")
        else:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except OSError:
        return True  # unknown: a lost network ends the connection by itself
    return True


class Session:
    """One connection. It is in autocommit mode; `transaction` groups statements."""

    def __init__(self, options: PostgresOptions, *, replication: bool = False) -> None:
        psycopg = _driver()
        parameters = {
            **options.connection,
            "client_encoding": "UTF8",
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": f"barnabas {options.slot}",
            "options": _NO_TIMEOUTS,
        }
        if replication:
            parameters["replication"] = "database"
        where = f"{options.connection['host']}:{options.connection['port']}/{options.connection['dbname']}"
        with readable(f"connecting to PostgreSQL at {where}"):
            self.connection = psycopg.connect(**parameters, autocommit=True)
        if not replication:
            self.rows(session_settings(), "setting up the session")
            if self.connection.info.server_version >= _TRANSACTION_TIMEOUT_SINCE:
                self.run(_NO_TRANSACTION_TIMEOUT, "setting up the session")
            if self.connection.info.server_version >= _CLIENT_CHECK_SINCE:
                with suppress(PostgresError):  # a server on Windows cannot do this
                    self.run(_CLIENT_CHECK, "setting up the session")

    def rows(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with readable(doing):
            cursor = self.connection.execute(statement.sql, statement.parameters)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    def texts(self, statement: Statement, doing: str) -> list[list[bytes | None]]:
        """The columns of a query's rows, in the text form that values have in changes."""
        with readable(doing):
            result = self.connection.execute(statement.sql, statement.parameters).pgresult
            assert result is not None
            rows = range(result.ntuples)
            return [[result.get_value(row, column) for row in rows] for column in range(result.nfields)]

    def run(self, sql: str, doing: str) -> None:
        """Run a statement without parameters and rows."""
        with readable(doing):
            self.connection.execute(sql)

    @contextmanager
    def transaction(self, doing: str) -> Iterator[None]:
        """Statements in this context are one transaction."""
        with readable(doing), self.connection.transaction():
            yield

    def command(self, sql: str, doing: str) -> tuple[Any, ...]:
        """Run a command of the replication protocol, and return its only row."""
        with readable(doing):
            row: tuple[Any, ...] | None = self.connection.execute(sql).fetchone()
        assert row is not None
        return row

    def pages(self, statement: Statement, size: int, doing: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a query in pages of `size` rows, by a cursor of the server, in binary form."""
        with (
            readable(doing),
            self.connection.transaction(),
            self.connection.cursor(name="barnabas", binary=True) as cursor,
        ):
            cursor.execute(statement.sql, statement.parameters)
            while page := cursor.fetchmany(size):
                yield page

    @contextmanager
    def watched(self, seconds: float = _LOOK_SECONDS) -> Iterator[None]:
        """Statements in this context fail with ConnectionLostError if nothing listens at the server's port any more."""
        done = threading.Event()
        with readable("watching the server"):
            host, port = self.connection.info.host, self.connection.info.port
            shared = socket.socket(fileno=os.dup(self.connection.fileno()))

        def watch() -> None:
            while not done.wait(seconds):
                if not _is_listening(host, port):
                    with suppress(OSError):  # the statement has ended meanwhile, and `shared` is closed
                        shared.shutdown(socket.SHUT_RDWR)
                    return

        threading.Thread(target=watch, name="watch the server", daemon=True).start()
        try:
            yield
        finally:
            done.set()
            shared.close()

    def copy(self, sql: str, piece_bytes: int, doing: str) -> Iterator[bytes]:
        """The rows of a COPY .. TO STDOUT in pieces of about `piece_bytes` and at least one row.

        The rows are taken from libpq itself, since psycopg's own iteration costs more for each row than everything else
        that is done with it. If the iteration is left before its end, the connection is closed.
        """
        pgconn = self.connection.pgconn
        with readable(doing):
            self._expect(pgconn.exec_(sql.encode()), "COPY_OUT")
        is_complete = False
        try:
            while not is_complete:
                with readable(doing):
                    piece, is_complete = self._take_rows(pgconn, piece_bytes)
                if piece:
                    yield piece
        finally:
            if not is_complete:
                self.close()

    def _take_rows(self, pgconn: Any, piece_bytes: int) -> tuple[bytes, bool]:
        """The next rows of a COPY, and whether these are the last ones.

        Each row is copied at once. To keep the rows and join them later takes four times as long: their buffers are
        three objects each, which the garbage collector traverses again and again.
        """
        take = pgconn.get_copy_data
        piece = bytearray()
        while len(piece) < piece_bytes:
            length, row = take(0)  # waits for the row
            if length < 0:
                while (result := pgconn.get_result()) is not None:
                    self._expect(result, "COMMAND_OK")
                return bytes(piece), True
            piece += row
        return bytes(piece), False

    def _expect(self, result: Any, status: str) -> None:
        """Raise the driver's error if the server has answered with another status."""
        driver = _driver()
        if result.status != driver.pq.ExecStatus[status]:
            raise driver.errors.error_from_result(result)

    @property
    def is_broken(self) -> bool:
        """Whether the connection was lost."""
        return bool(self.connection.closed or self.connection.broken)

    def is_alive(self) -> bool:
        """Whether the server answers."""
        try:
            self.run("SELECT 1", "looking for the server")
        except PostgresError:
            return False
        return True

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
