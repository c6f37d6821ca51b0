"""Table: the options of `format("barnabas.mysql")` and `"barnabas.mariadb"` beside those of all capture sources.

The names are Debezium's. To add an option, add a row and read it in `parse_mysql_options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.reprs import repr_without
from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.option_rows import ConnectorOption, patterns, port_number
from barnabas.spark.errors import OptionError

_SSL_MODES: Final = ("disabled", "disable", "preferred", "required", "verify_ca", "verify_identity")


def ssl_mode(name: str, text: str) -> str:
    """Debezium's database.ssl.mode."""
    if text.strip().lower() not in _SSL_MODES:
        raise OptionError(f"{name} must be one of {', '.join(_SSL_MODES)}, got {text!r}")
    return text.strip().lower()


MYSQL_OPTIONS: Final = (
    ConnectorOption("database.hostname", "host of the server"),
    ConnectorOption("database.port", "port of the server", port_number, 3306),
    ConnectorOption("database.user", "user with SELECT, REPLICATION SLAVE and REPLICATION CLIENT"),
    ConnectorOption("database.password", "password of the user", default=""),
    ConnectorOption("database.include.list", "regular expressions of the databases to read", patterns, ()),
    ConnectorOption("database.exclude.list", "regular expressions of databases to leave out", patterns, ()),
    ConnectorOption(
        "database.ssl.mode",
        "`disabled`, `preferred`, `required`, `verify_ca` or `verify_identity`",
        ssl_mode,
        "preferred",
    ),
    ConnectorOption("database.ssl.ca", "file of the certificate authority, for verify_ca and verify_identity"),
    ConnectorOption("database.server.id", "accepted and not used: a read does not register as a replica"),
    ConnectorOption("connect.timeout.ms", "how long a connection may take", parse_as.positive, 30_000),
)

MYSQL_REFUSED: Final = {
    "database.ssl.keystore*": "keystores are for Java: use database.ssl.ca with a PEM file",
    "database.ssl.truststore*": "truststores are for Java: use database.ssl.ca with a PEM file",
    "snapshot.locking.mode": "MariaDB needs no lock, and MySQL's is held only until the snapshot is open",
    "include.query": "statements are not read",
    "include.schema.changes": "changes themselves have the columns of their tables",
    "gtid.source.*": "all transactions of the server are read; leave tables out by their names",
    "bigint.unsigned.handling.mode": "BIGINT UNSIGNED is a decimal: use decimal.handling.mode",
    "inconsistent.schema.handling.mode": "every change has the columns that its table had at that moment",
}


class MysqlOptions(Struct, frozen=True):
    """The options of one query. `ssl_ca` is None if the server's certificate is not verified."""

    capture: CaptureOptions
    host: str
    port: int
    user: str
    password: str
    ssl_mode: str
    ssl_ca: str | None
    connect_timeout_ms: int
    keys: Mapping[str, tuple[str, ...]]

    __repr__ = repr_without("password")

    def wants_table(self, name: str) -> bool:
        """Whether the lists of databases and tables let `database.table` through."""
        given = self.capture.given
        database = name.partition(".")[0]
        included, excluded = given.get("database.include.list"), given.get("database.exclude.list")
        if included and not any(pattern.fullmatch(database) for pattern in included):
            return False
        if any(pattern.fullmatch(database) for pattern in excluded):
            return False
        return self.capture.wants_table(name)


def parse_mysql_options(capture: CaptureOptions) -> MysqlOptions:
    """The options of a query. Raises OptionError."""
    given = capture.given
    if given.get("database.include.list") and given.get("database.exclude.list"):
        raise OptionError("give database.include.list or database.exclude.list, not both")
    mode = given.get("database.ssl.mode")
    ca = given.get("database.ssl.ca")
    if mode.startswith("verify") and not ca:
        raise OptionError(f"database.ssl.mode={mode} needs database.ssl.ca, the file of the certificate authority")
    return MysqlOptions(
        capture,
        given.require("database.hostname", "the host of the server"),
        given.get("database.port"),
        given.require("database.user", "a user with REPLICATION SLAVE, REPLICATION CLIENT and SELECT"),
        given.get("database.password"),
        mode,
        ca,
        given.get("connect.timeout.ms"),
        dict(capture.key_columns),
    )
