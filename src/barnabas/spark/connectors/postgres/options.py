"""Table: the options of `format("barnabas.postgres")` beside those of all capture sources, with Debezium's names.

To add an option, add a row and read it in `parse_postgres_options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from barnabas.core.reprs import repr_without
from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.option_rows import ConnectorOption, milliseconds, patterns, port_number
from barnabas.spark.connectors.postgres.setup_state import PublicationMode
from barnabas.spark.connectors.postgres.types import Arrays, NotANumber, OutOfRange, ValuePolicy
from barnabas.spark.errors import OptionError

_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


def ssl_mode(name: str, text: str) -> str:
    """libpq's sslmode."""
    if text.strip().lower() not in _SSL_MODES:
        raise OptionError(f"{name} must be one of {', '.join(_SSL_MODES)}, got {text!r}")
    return text.strip().lower()


def plugin(name: str, text: str) -> str:
    """The output plugin of the slot: pgoutput, which every server has."""
    if text.strip() != "pgoutput":
        raise OptionError(f"{name} must be pgoutput, which is a part of PostgreSQL, got {text!r}")
    return text.strip()


def publication_mode(name: str, text: str) -> PublicationMode:
    """Debezium's modes but the one that publishes all tables."""
    if text.strip().lower() in ("all_tables", "no_tables"):
        raise OptionError(
            f"{name}={text.strip()} is not supported: publishing a table without a replica identity makes the"
            " application's updates fail. Use filtered, or create the publication and use disabled"
        )
    mode: PublicationMode = parse_as.one_of(PublicationMode)(name, text)
    return mode


def _text_only(name: str, text: str) -> str:
    if text.strip().lower() != "string":
        raise OptionError(f"{name} must be string: intervals are text, as PostgreSQL prints them, got {text!r}")
    return "string"


POSTGRES_OPTIONS: Final = (
    ConnectorOption("database.hostname", "host of the server, or the directory of its socket"),
    ConnectorOption("database.port", "port of the server", port_number, 5432),
    ConnectorOption("database.user", "role with LOGIN and REPLICATION"),
    ConnectorOption("database.password", "password of the role", default=""),
    ConnectorOption("database.dbname", "name of the database"),
    ConnectorOption("database.sslmode", "libpq's sslmode", ssl_mode, "prefer"),
    ConnectorOption("database.sslcert", "file of the client's certificate"),
    ConnectorOption("database.sslkey", "file of the client's key"),
    ConnectorOption("database.sslrootcert", "file of the authorities' certificates"),
    ConnectorOption("database.sslpassword", "password of the client's key"),
    ConnectorOption("connection.attempts", "how often a lost connection is tried again", parse_as.positive, 10),
    ConnectorOption("connection.backoff.ms", "time before each new connection attempt", milliseconds, 3_000),
    ConnectorOption("plugin.name", "the output plugin of the slot: only `pgoutput`", plugin, "pgoutput"),
    ConnectorOption("slot.name", "the replication slot; one for each query", default="barnabas"),
    ConnectorOption("slot.failover", "the slot survives a failover (PostgreSQL 17)", parse_as.boolean, False),
    ConnectorOption("slot.max.retries", "how often a slot in use is tried again", parse_as.positive, 6),
    ConnectorOption("slot.retry.delay.ms", "time before a slot in use is tried again", milliseconds, 10_000),
    ConnectorOption("publication.name", "the publication of the tables", default="barnabas_publication"),
    ConnectorOption(
        "publication.autocreate.mode",
        "`filtered`: create the publication, and add tables to it; `disabled`: use the publication as it is",
        publication_mode,
        PublicationMode.FILTERED,
    ),
    ConnectorOption("schema.include.list", "regular expressions of the schemas to read", patterns, ()),
    ConnectorOption("schema.exclude.list", "regular expressions of schemas to leave out", patterns, ()),
    ConnectorOption("interval.handling.mode", "`string`: intervals as PostgreSQL prints them", _text_only, "string"),
    ConnectorOption(
        "out.of.range.handling.mode",
        "infinity, years before 1 and after 9999: `fail`, `null`, `clamp`, or `text` for all columns of such types",
        parse_as.one_of(OutOfRange),
        OutOfRange.FAIL,
    ),
    ConnectorOption(
        "nan.handling.mode",
        "NaN and infinity in numeric: `fail`, `null`, or `text` for all numeric columns",
        parse_as.one_of(NotANumber),
        NotANumber.FAIL,
    ),
    ConnectorOption("array.handling.mode", "`list` or `text`", parse_as.one_of(Arrays), Arrays.LIST),
)

POSTGRES_REFUSED: Final = {
    "slot.drop.on.stop": "a dropped slot loses changes; run SELECT pg_drop_replication_slot('..') after the last query",
    "slot.stream.params": "the parameters of pgoutput are fixed",
    "hstore.handling.mode": "an hstore is a map; with output=records it becomes JSON",
    "publish.via.partition.root": "a partitioned table is always published as one table",
    "replica.identity.autoset.values": "run ALTER TABLE .. REPLICA IDENTITY .. as the owner of the table",
    "snapshot.isolation.mode": "the snapshot is that of the slot, and always consistent",
    "snapshot.locking.mode": "tables are locked in ACCESS SHARE mode, which blocks no reads and writes",
    "status.update.interval.ms": "the slot is advanced behind each micro-batch",
    "lsn.flush.mode": "the slot is advanced behind each micro-batch",
    "xmin.fetch.interval.ms": "events have no xmin",
    "database.tcpkeepalive": "connections have TCP keepalives",
    "database.initial.statements": "use ALTER ROLE .. SET .. for the role",
    "read.only": "reading needs a slot on the primary",
    "include.unknown.datatypes": "all types are read, unknown ones as text",
    "money.fraction.digits": "money is text",
    "flush.lsn.source": "the slot is advanced behind each micro-batch",
    "database.server.name": "use topic.prefix",
    "database.server.id": "a slot identifies the reader",
    "connection.url": "use database.hostname, database.port and database.dbname",
}


class PostgresOptions(Struct, frozen=True):
    """The options of one query. `connection` has libpq's parameters."""

    capture: CaptureOptions
    connection: Mapping[str, Any]
    slot: str
    publication: str
    publication_mode: PublicationMode
    failover: bool
    retries: int
    retry_delay_ms: int
    attempts: int
    backoff_ms: int
    policy: ValuePolicy

    __repr__ = repr_without("connection")

    def wants_table(self, schema: str, table: str) -> bool:
        """Whether the lists of schemas and tables let a table through."""
        included = self.capture.given.get("schema.include.list")
        excluded = self.capture.given.get("schema.exclude.list")
        if included and not any(pattern.fullmatch(schema) for pattern in included):
            return False
        if any(pattern.fullmatch(schema) for pattern in excluded):
            return False
        return self.capture.wants_table(f"{schema}.{table}")


def parse_postgres_options(capture: CaptureOptions) -> PostgresOptions:
    """Raises OptionError."""
    given = capture.given
    for name in ("plugin.name", "interval.handling.mode"):
        given.get(name)  # only one value is allowed
    connection: dict[str, Any] = {
        "host": given.require("database.hostname", "the host of the server, or the directory of its socket"),
        "port": given.get("database.port"),
        "user": given.require("database.user", "a role with LOGIN and REPLICATION"),
        "password": given.get("database.password"),
        "dbname": given.require("database.dbname", "the name of the database"),
        "sslmode": given.get("database.sslmode"),
    }
    for name in ("sslcert", "sslkey", "sslrootcert", "sslpassword"):
        if given.get(f"database.{name}") is not None:
            connection[name] = given.get(f"database.{name}")
    if not given.get("table.include.list") and not given.get("schema.include.list"):
        raise OptionError(
            "table.include.list must be given (or schema.include.list): regular expressions of the tables to read, such"
            r" as public.orders,public\.line_.*"
        )
    return PostgresOptions(
        capture,
        connection,
        given.get("slot.name"),
        given.get("publication.name"),
        given.get("publication.autocreate.mode"),
        given.get("slot.failover"),
        given.get("slot.max.retries"),
        given.get("slot.retry.delay.ms"),
        given.get("connection.attempts"),
        given.get("connection.backoff.ms"),
        ValuePolicy(
            given.get("out.of.range.handling.mode"), given.get("nan.handling.mode"), given.get("array.handling.mode")
        ),
    )
