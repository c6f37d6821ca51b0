"""Codec: connection.url -> which database, where it is, and the settings of its driver.

    jdbc:postgresql://host:port/database?sslmode=require    also postgresql://user:password@host/database
    jdbc:mysql://host:port/database                         also jdbc:mariadb:, mysql: and mariadb:
    jdbc:sqlite:/path/file.db                               also sqlite:///path/file.db
    jdbc:duckdb:/path/file.db                               also duckdb:///path/file.db

The properties of a JDBC URL that mean something to Python's drivers are translated, those that only tune a JDBC driver
are accepted, and others are refused. Sources: the documentation of pgJDBC, MySQL Connector/J and MariaDB Connector/J.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct, field

from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.errors import OptionError

_SCHEMES: Final = {
    "postgresql": Dialect.POSTGRES,
    "postgres": Dialect.POSTGRES,
    "mysql": Dialect.MYSQL,
    "mariadb": Dialect.MYSQL,
    "sqlite": Dialect.SQLITE,
    "duckdb": Dialect.DUCKDB,
}
_PORTS: Final = {Dialect.POSTGRES: 5432, Dialect.MYSQL: 3306}
_EXAMPLES: Final = "jdbc:postgresql://host:5432/database, jdbc:mysql://host:3306/database, jdbc:sqlite:/path/file.db"

_QUOTED: Final = (
    "In a user or a password, write the characters / ? # @ : [ ] with percent signs, such as %2F for /, or give"
    " connection.user and connection.password"
)

_OF_POSTGRES: Final = {
    "sslmode": "sslmode",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslrootcert": "sslrootcert",
    "sslpassword": "sslpassword",
    "applicationname": "application_name",
    "application_name": "application_name",
    "connecttimeout": "connect_timeout",
    "connect_timeout": "connect_timeout",
    "logintimeout": "connect_timeout",
    "targetservertype": "target_session_attrs",
    "target_session_attrs": "target_session_attrs",
    "gssencmode": "gssencmode",
    "currentschema": "search_path",
    "ssl": "ssl",
}
_OF_MYSQL: Final = {
    "sslmode": "ssl_mode",
    "ssl-mode": "ssl_mode",
    "usessl": "use_ssl",
    "ssl_ca": "ssl_ca",
    "sslca": "ssl_ca",
    "serversslcert": "ssl_ca",
    "connecttimeout": "connect_timeout_ms",
}
_TRANSLATED: Final[Mapping[Dialect, Mapping[str, str]]] = {
    Dialect.POSTGRES: _OF_POSTGRES,
    Dialect.MYSQL: _OF_MYSQL,
    Dialect.SQLITE: {},
    Dialect.DUCKDB: {},
}
_OF_JDBC_ONLY: Final = frozenset(
    {
        "rewritebatchedinserts", "rewritebatchedstatements", "stringtype", "preparethreshold", "binarytransfer",
        "tcpkeepalive", "defaultrowfetchsize", "reconnect", "autoreconnect", "useunicode", "characterencoding",
        "servertimezone", "connectiontimezone", "forceconnectiontimezonetosession", "preserveinstants",
        "allowpublickeyretrieval", "useserverprepstmts", "cacheprepstmts", "prepstmtcachesize",
        "prepstmtcachesqllimit", "usecompression", "usecursorfetch", "zerodatetimebehavior", "sockettimeout",
        "allowmultiqueries", "tinyint1isbit", "nullcatalogmeanscurrent", "uselegacydatetimecode", "journal_mode",
    }
)  # fmt: skip
"""Properties that tune JDBC drivers, or choose what the sinks and sources always do."""
_TARGETS: Final = {
    "any": "any",
    "primary": "read-write",
    "master": "read-write",
    "secondary": "standby",
    "preferprimary": "any",
    "prefersecondary": "prefer-standby",
}


class DatabaseAddress(Struct, frozen=True):
    """Where a database is. `database` is its name, or the path of the file of SQLite and DuckDB.

    `settings` are libpq's connection parameters for PostgreSQL (and `search_path`); for MySQL they are `ssl_mode`,
    `ssl_ca` and `connect_timeout_ms`.
    """

    dialect: Dialect
    database: str
    host: str = ""
    port: int = 0
    user: str | None = None
    password: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The address without secrets."""
        return f"{self.dialect}://{self.host}:{self.port}/{self.database}" if self.host else self.database

    def __repr__(self) -> str:
        return f"DatabaseAddress({self})"


def parse_connection_url(url: str, user: str | None = None, password: str | None = None) -> DatabaseAddress:
    """The address of a database; `user` and `password`, if given, count more than those of the URL. Raises OptionError
    with a text that has no password in it.
    """
    text = url.strip()
    bare = text[len("jdbc:") :] if text.lower().startswith("jdbc:") else text
    scheme, colon, rest = bare.partition(":")
    dialect = _SCHEMES.get(scheme.lower())
    if not colon or dialect is None:
        kind = f", got one for {scheme}" if colon else ""
        raise OptionError(f"connection.url must be an address such as {_EXAMPLES}{kind}")
    if dialect in (Dialect.SQLITE, Dialect.DUCKDB):
        return _file_address(dialect, rest)
    example = f"{scheme}://host:{_PORTS[dialect]}/database"
    try:  # the errors say nothing of the URL itself: what precedes an unexpected / or # may be a password
        parts = urlsplit(f"{scheme}:{rest}")
        is_one_host = rest.startswith("//") and "," not in parts.netloc.rpartition("@")[2]
        host, port = (parts.hostname, parts.port) if is_one_host else (None, None)
    except ValueError:
        raise OptionError(
            f"connection.url has a host or a port that cannot be read: write {example}, with a port from 1 to 65535."
            f" {_QUOTED}"
        ) from None
    if not is_one_host:
        raise OptionError(f"connection.url must name one host, as {example} does")
    database = unquote(parts.path.removeprefix("/"))
    if not database:
        raise OptionError(f"connection.url has no database: write {example}. {_QUOTED}")
    if "@" in parts.path and "@" not in parts.netloc:
        raise OptionError(f"connection.url has an @ after the host: write {example}. {_QUOTED}")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    url_user = unquote(parts.username) if parts.username else None
    url_password = unquote(parts.password) if parts.password else None
    return DatabaseAddress(
        dialect,
        database,
        host or "localhost",
        port or _PORTS[dialect],
        user or given.pop("user", None) or url_user,
        password or given.pop("password", None) or url_password,
        _settings(dialect, {name: value for name, value in given.items() if name not in ("user", "password")}),
    )


def _file_address(dialect: Dialect, rest: str) -> DatabaseAddress:
    """`sqlite:/path`, `sqlite:path` (relative), `sqlite:///path`."""
    path, _, query = rest.partition("?")
    if path.startswith("//"):
        path = urlsplit(f"file:{path}").path
    path = path.removeprefix("file:")
    if not path or path == ":memory:":
        raise OptionError(
            f"connection.url must name the file of the database, as jdbc:{dialect}:/path/file.db does: a database in"
            " memory is not shared between Spark's processes"
        )
    return DatabaseAddress(dialect, unquote(path), settings=_settings(dialect, dict(parse_qsl(query))))


def _settings(dialect: Dialect, given: Mapping[str, str]) -> dict[str, str]:
    known = _TRANSLATED[dialect]
    settings: dict[str, str] = {}
    for name, value in given.items():
        lowered = name.lower()
        if lowered in known:
            settings[known[lowered]] = value
        elif lowered not in _OF_JDBC_ONLY:
            near = difflib.get_close_matches(lowered, sorted(known), n=1)
            hint = f": did you mean {near[0]}?" if near else ": leave it out"
            raise OptionError(f"connection.url has the property {name}, which is not known here{hint}")
    if dialect is Dialect.POSTGRES:
        return _libpq(settings)
    return _of_mysql(settings)


def _libpq(settings: dict[str, str]) -> dict[str, str]:
    ssl = settings.pop("ssl", "false").strip().lower()
    if ssl in ("true", "") and "sslmode" not in settings:
        settings["sslmode"] = "verify-full"  # as pgJDBC does
    target = settings.get("target_session_attrs")
    if target is not None:
        settings["target_session_attrs"] = _TARGETS.get(target.lower(), target)
    return settings


_SSL_MODES: Final = {
    "disabled": "disabled", "disable": "disabled", "preferred": "preferred", "prefer": "preferred",
    "required": "required", "trust": "required", "verify_ca": "verify_ca", "verify-ca": "verify_ca",
    "verify_identity": "verify_identity", "verify-full": "verify_identity",
}  # fmt: skip


def _of_mysql(settings: dict[str, str]) -> dict[str, str]:
    use = settings.pop("use_ssl", None)
    mode = settings.get("ssl_mode")
    if mode is None and use is not None:
        mode = "required" if use.lower() == "true" else "disabled"
    if mode is not None:
        if mode.lower() not in _SSL_MODES:
            names = ", ".join(dict.fromkeys(_SSL_MODES.values()))
            raise OptionError(f"sslMode in connection.url must be one of {names}, got {mode!r}")
        settings["ssl_mode"] = _SSL_MODES[mode.lower()]
        if settings["ssl_mode"].startswith("verify") and "ssl_ca" not in settings:
            raise OptionError(f"sslMode={mode} in connection.url also needs sslCa, the authority's certificate file")
    if not settings.get("connect_timeout_ms", "0").isdigit():
        raise OptionError("connectTimeout in connection.url must be a number of milliseconds")
    return settings
