"""MariaDB and MySQL for the tests that run against both: the statements in which they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from barnabas.testing.databases import MariaDbServer
from tests.system.connectors.mysql_sources import InstalledMySql, connect, run

_COLUMNS: Final = """
  id INT PRIMARY KEY, a TINYINT, b SMALLINT UNSIGNED, c MEDIUMINT, d BIGINT UNSIGNED, e FLOAT, f DOUBLE,
  g DECIMAL(30,10), h DECIMAL(50,5), i BIT(1), j BIT(12), k YEAR, l DATE, m TIME(3), n DATETIME(6), o TIMESTAMP(2) NULL,
  p CHAR(10), q VARCHAR(300), r VARCHAR(20) CHARACTER SET latin1, s BINARY(6), t VARBINARY(20), u TEXT, v BLOB,
  w ENUM('x','it''s','y'), x SET('p','q','r'), ab LONGTEXT, ac BIGINT, y JSON, z POINT"""
_VALUES: Final = (
    "-128, 65535, -8388608, 18446744073709551615, 1.1, -2.5e-300, -12345678901234567890.0123456789,"
    " 123456789012345678901234567890123456789012345.12345, 1, 0xabc, 2024, '2024-02-29', '-838:59:58.500',"
    " '9999-12-31 23:59:59.999999', '2001-02-03 04:05:06.78', 'ab', 'hé😀', 'é€', 'a', 0x00ff, REPEAT('t', 1000), 0x00,"
    " 'it''s', 'p,r', REPEAT('x', 20000000), -1"
)


@dataclass(frozen=True, slots=True)
class Flavour:
    """A kind of server, and its own words."""

    start: Callable[[list[str]], MariaDbServer]
    """A server with these settings, for a `with` statement."""
    types: str
    """Creates the table `types` with a column of each type: a key, and 29 columns that may be null."""
    values: str
    """A value of each of these 29 columns."""
    monitor: str
    """The privilege to ask for the position of the binlogs."""
    replica_settings: list[str]
    follow: Callable[[MariaDbServer], list[str]]
    """The statements that make an empty server a replica of this one."""
    stop_replica: str
    executed: str
    """Selects the GTIDs of the server."""
    wait: str
    """Waits for `%s`, GTIDs of another server, and selects 0 if they came within a minute."""


def _follow_mariadb(source: MariaDbServer) -> list[str]:
    return [
        "RESET MASTER",
        "SET GLOBAL gtid_slave_pos = ''",
        f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {source.port}, master_user = '{source.user}',"
        f" master_password = '{source.password}', master_use_gtid = slave_pos",
        "START SLAVE",
    ]


def _follow_mysql(source: MariaDbServer) -> list[str]:
    return [
        "RESET BINARY LOGS AND GTIDS",
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {source.port},"
        f" SOURCE_USER = '{source.user}', SOURCE_PASSWORD = '{source.password}', SOURCE_AUTO_POSITION = 1,"
        " GET_SOURCE_PUBLIC_KEY = 1",
        "START REPLICA",
    ]


FLAVOURS: Final = {
    "MariaDB": Flavour(
        start=MariaDbServer,
        types=f"CREATE TABLE types ({_COLUMNS}, aa INET6) DEFAULT CHARSET utf8mb4",
        values=f"{_VALUES.replace('-838:59:58', '-838:59:59')}, '{{\"a\": [1, 2]}}', POINT(1, 2), '::1'",
        monitor="BINLOG MONITOR",
        replica_settings=["server-id=2", "log-slave-updates=ON", "log-bin=other"],
        follow=_follow_mariadb,
        stop_replica="STOP SLAVE",
        executed="SELECT @@gtid_binlog_pos",
        wait="SELECT MASTER_GTID_WAIT(%s, 60)",
    ),
    "MySQL": Flavour(
        start=InstalledMySql,
        types=f"CREATE TABLE types ({_COLUMNS}, aa VECTOR(3)) DEFAULT CHARSET utf8mb4",
        values=f'{_VALUES}, \'{{"a": [1, 2.5, null, "é"], "b": {{"c": 18446744073709551615}}}}\','
        " ST_GeomFromText('POINT(1 2)'), TO_VECTOR('[1,2,3]')",
        monitor="REPLICATION CLIENT",
        replica_settings=["server-id=2", "log-bin=other"],
        follow=_follow_mysql,
        stop_replica="STOP REPLICA",
        executed="SELECT @@gtid_executed",
        wait="SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 60)",
    ),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A server, and a replica of it."""

    flavour: Flavour
    first: MariaDbServer
    second: MariaDbServer

    def wait(self) -> None:
        """Returns when the replica has the transactions of the server."""
        with connect(self.first) as connection, connection.cursor() as cursor:
            cursor.execute(self.flavour.executed)
            wanted = cursor.fetchall()[0][0]
        with connect(self.second, "") as connection, connection.cursor() as cursor:
            cursor.execute(self.flavour.wait, (wanted,))
            assert cursor.fetchall() == ((0,),)


@contextmanager
def replicated(flavour: Flavour) -> Iterator[Pair]:
    """A server and its replica, which end with the block."""
    with flavour.start([]) as first, flavour.start(flavour.replica_settings) as second:
        run(second, *flavour.follow(first))
        yield Pair(flavour, first, second)
