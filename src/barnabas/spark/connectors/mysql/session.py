"""Shell: a connection to a server through PyMySQL, and the two streams that PyMySQL does not read in columns.

`events` reads a binlog dump, and `cells` the rows of a SELECT. Both read packets from PyMySQL's buffered file. A dump
ends at the end of the binlog, since it asks with the server id 0 and BINLOG_DUMP_NON_BLOCK, as mysqlbinlog does: such a
reader is no replica, so it needs no server id of its own, and it asks for no semi-synchronous acknowledgements.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from barnabas.spark.connectors.mysql.binlog.decoder import EVENT_BYTES_MAX
from barnabas.spark.connectors.mysql.errors import (
    BinlogLimitError,
    MysqlSourceError,
    PositionError,
    ServerConnectionError,
)
from barnabas.spark.connectors.mysql.options import MysqlOptions
from barnabas.spark.connectors.mysql.positions import BinlogPosition
from barnabas.spark.connectors.mysql.server import dump_error
from barnabas.spark.connectors.mysql.text_rows import (
    END,
    ERROR,
    LONG,
    MALFORMED,
    MORE,
    ScannedRows,
    scan,
    scan_long_row,
    take_long_row,
)

_COM_BINLOG_DUMP: Final = 0x12
_NON_BLOCK: Final = 1
_LONGEST_PAYLOAD: Final = (1 << 24) - 1
_READ_TIMEOUT_S: Final = 600
_CHUNK_BYTES: Final = 1 << 20
_ROWS_MAX: Final = 8192

_SETTINGS: Final = (
    "SET SESSION time_zone = '+00:00', SESSION net_write_timeout = 3600, SESSION sql_mode = ''",
    "SET NAMES utf8mb4",
)


def _driver() -> Any:
    try:
        import pymysql
    except ImportError as error:
        raise MysqlSourceError(
            "the driver PyMySQL is not installed: pip install 'barnabas[mysql]', on the driver and on the workers"
        ) from error
    return pymysql


@contextmanager
def readable(doing: str) -> Iterator[None]:
    """Raise errors of PyMySQL as MysqlSourceErrors; `doing` is what was tried, such as "reading the grants"."""
    pymysql = _driver()
    try:
        yield
    except pymysql.err.MySQLError as error:
        code = error.args[0] if error.args else 0
        text = f"{doing} failed: {error.args[1] if len(error.args) > 1 else error} ({code})"
        if code in (2003, 2006, 2013, 1053) or isinstance(error, pymysql.err.InterfaceError):
            raise ServerConnectionError(
                f"{text}: check that the server runs and is reachable, then start the query again"
            ) from error
        if code in (1044, 1045, 1142, 1143, 1227):
            raise MysqlSourceError(
                f"{text}: grant the user what it needs, or use another user (database.user)"
            ) from error
        raise MysqlSourceError(f"{text}: correct the cause that the server names, and start the query again") from error


class MysqlSession:
    """One connection in autocommit mode."""

    def __init__(self, options: MysqlOptions) -> None:
        pymysql = _driver()
        self._user = options.user
        arguments: dict[str, Any] = {}
        if options.ssl_mode.startswith("disable"):
            arguments["ssl_disabled"] = True
        elif options.ssl_mode == "required":
            arguments["ssl"] = {"check_hostname": False, "verify_mode": False}
        elif options.ssl_ca is not None:
            verify = options.ssl_mode.startswith("verify")
            arguments["ssl"] = {
                "ca": options.ssl_ca,
                "check_hostname": options.ssl_mode == "verify_identity",
                "verify_mode": verify,
            }
        with readable(f"connecting to {options.host}:{options.port} as {options.user}"):
            self._connection = pymysql.connect(
                host=options.host,
                port=options.port,
                user=options.user,
                password=options.password,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=max(1, options.connect_timeout_ms // 1000),
                read_timeout=_READ_TIMEOUT_S,
                **arguments,
            )
        for statement in _SETTINGS:
            self.run(statement)

    @property
    def connection(self) -> Any:
        """The connection of the driver."""
        return self._connection

    def rows(self, sql: str, doing: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with readable(doing), self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def run(self, sql: str) -> None:
        """Run a statement."""
        with readable(f"running {sql}"), self._connection.cursor() as cursor:
            cursor.execute(sql)

    def is_alive(self) -> bool:
        """Whether the server answers."""
        try:
            self.run("SELECT 1")
        except MysqlSourceError:
            return False
        return True

    def close(self) -> None:
        """Close the connection; repeated calls do nothing."""
        if self._connection.open:
            self._connection._force_close()

    def events(self, position: BinlogPosition) -> Iterator[bytes]:
        """The events from a position to the end of the binlog, each as bytes. The session is used up.

        Raises MysqlSourceError if the server ends the dump with an error, BinlogLimitError before an event of more than
        EVENT_BYTES_MAX is read, and ServerConnectionError if the connection is lost.
        """
        if position.position >= 1 << 32:
            raise PositionError(
                f"{position.file}:{position.position}: a dump cannot begin behind 4 GiB of a file: run FLUSH BINARY "
                "LOGS, and start the query over with a new snapshot"
            )
        request = struct.pack("<IHI", position.position, _NON_BLOCK, 0) + position.file.encode()
        with readable("reading the binlog"):
            self._connection._execute_command(_COM_BINLOG_DUMP, request)
        while True:
            with readable("reading the binlog"):
                packet = self._packet(position)
            if packet[:1] == b"\xff":
                code = int.from_bytes(packet[1:3], "little")
                raise dump_error(code, packet[9:].decode("utf-8", "replace"), position)
            if packet[:1] == b"\xfe" and len(packet) < 9:
                return
            yield packet[1:]

    def _packet(self, position: BinlogPosition) -> bytes:
        parts = []
        limit = EVENT_BYTES_MAX + 1
        while True:
            size = int.from_bytes(self._connection._read_bytes(4)[:3], "little")
            limit -= size
            if limit < 0:
                raise BinlogLimitError(
                    f"an event after {position.file}:{position.position} has more than {EVENT_BYTES_MAX} bytes: set "
                    "binlog_row_event_max_size to its default of 8192, keep single rows and statements below the "
                    "limit, and start the query over with a new checkpoint, an empty stagingLocation and a new snapshot"
                )
            parts.append(self._connection._read_bytes(size))
            if size < _LONGEST_PAYLOAD:
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def cells(self, sql: str, columns: int, doing: str) -> Iterator[ScannedRows]:
        """The rows of a SELECT as cells, in pieces of at most some thousand rows."""
        with readable(doing):
            self._connection.query(sql, unbuffered=True)
        buffer = bytearray()
        try:
            while True:
                found = scan(bytes(buffer), 0, columns, _ROWS_MAX)
                if found.count:
                    yield found
                del buffer[: found.end]
                if found.reason == END:
                    return
                if found.reason == LONG:
                    while (payload := take_long_row(buffer)) is None:
                        buffer += self._more(doing)
                    yield scan_long_row(payload, columns)
                elif found.reason == ERROR:
                    code = int.from_bytes(buffer[5:7], "little")
                    raise MysqlSourceError(
                        f"{doing} failed: {buffer[13:200].decode('utf-8', 'replace')} ({code}): start the query again"
                    )
                elif found.reason == MALFORMED:
                    raise MysqlSourceError(f"{doing} failed: the server's answer is not a row: start the query again")
                elif found.reason == MORE and found.count < _ROWS_MAX:
                    buffer += self._more(doing)
        finally:
            self._connection._result.unbuffered_active = False
            self._connection._result = None

    def _more(self, doing: str) -> bytes:
        file = self._connection._rfile
        try:
            data: bytes = file.read1(_CHUNK_BYTES) if file is not None else b""
        except OSError as error:
            raise ServerConnectionError(
                f"{doing} failed: the connection was lost ({error}): start the query again"
            ) from error
        if not data:
            raise ServerConnectionError(f"{doing} failed: the server closed the connection: start the query again")
        return data
