"""Table: the connectors for databases by JDBC URL: Confluent's JdbcSink and JdbcSource, and Debezium's JdbcSink.

The scheme of `connection.url` chooses the format of Spark: PostgreSQL, MySQL, MariaDB, SQLite and DuckDB have sinks of
their own, exactly once. Every other URL is written by Spark's own JDBC writer, at least once, with a driver's jar of
the user; there is no source for those. Debezium's names are translated into Confluent's, and its change events are made
flat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.option_rows import ConnectorOption
from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from barnabas.spark.connectors.capture.ports import Connector
    from barnabas.spark.connectors.sql.dialects import Dialect

SPARK_JDBC: Final = "jdbc"
"""The format of Spark that writes to databases without a sink of ours."""
URL: Final = "connection.url"
_DRIVER: Final = ConnectorOption(
    "connection.driver",
    "the class of the JDBC driver, for databases that Spark's own JDBC writer writes; without effect for others, which"
    " have drivers of Python",
)
_FORMATS: Final = {
    "postgresql": "barnabas.postgres",
    "postgres": "barnabas.postgres",
    "mysql": "barnabas.mysql",
    "mariadb": "barnabas.mariadb",
    "sqlite": "barnabas.sqlite",
    "duckdb": "barnabas.duckdb",
}
_FILES: Final = ("barnabas.sqlite", "barnabas.duckdb")
SINK_REFUSED: Final = {
    "dialect.name": "the connection.url says which database it is",
    "date.timezone": "use db.timezone",
    "mssql.*": "there is no sink for this database",
    "input": "a connector chooses it",
    "stagingLocation": "the worker chooses it",
}
_OF_SPARK: Final = {
    "connection.url": "url",
    "connection.user": "user",
    "connection.password": "password",
    "connection.driver": "driver",
    "batch.size": "batchsize",
    "table.name.format": "dbtable",
    "dbtable": "dbtable",
    "insert.mode": "",
    "pk.mode": "",
}


def _scheme(texts: Mapping[str, str]) -> str:
    given = {name.lower(): text for name, text in texts.items()}
    url = given.get(URL, "").strip()
    if not url:
        raise OptionError(f"{URL} must be given: the database, such as jdbc:postgresql://host:5432/shop")
    parts = url.lower().split(":", 2)
    return parts[1] if parts[0] == "jdbc" and len(parts) > 1 else parts[0]


def sink_format(texts: Mapping[str, str]) -> str:
    """The format that writes to the database. Raises OptionError without a URL."""
    return _FORMATS.get(_scheme(texts), SPARK_JDBC)


def source_format(texts: Mapping[str, str]) -> str:
    """The format that polls the database. Raises OptionError without a URL, and for a database that has none."""
    scheme = _scheme(texts)
    if scheme not in _FORMATS:
        raise OptionError(
            f"{URL} is that of a {scheme} database, which has no streaming source: read it as a batch with"
            f" spark.read.format('jdbc'). There are sources for {', '.join(_FORMATS)}"
        )
    return _FORMATS[scheme]


def is_staged_sink(texts: Mapping[str, str]) -> bool:
    """Whether the sink stages rows in files, because its database is a file with one writer."""
    return sink_format(texts) in _FILES


def sink_options() -> Sequence[ConnectorOption]:
    from barnabas.spark.connectors.sinking.options import ROW_OPTIONS
    from barnabas.spark.connectors.sql.sinks.options import SQL_SINK_OPTIONS

    return (*SQL_SINK_OPTIONS, *(row for row in ROW_OPTIONS if row.name not in ("input", "stagingLocation")), _DRIVER)


def without_driver(texts: Mapping[str, str]) -> dict[str, str]:
    """The options of a sink without the class of a JDBC driver, if the sink of the database has a driver of Python."""
    if sink_format(texts) == SPARK_JDBC:
        return dict(texts)
    return {name: text for name, text in texts.items() if name.lower() != _DRIVER.name}


def check_sink(texts: Mapping[str, str]) -> Any:
    """Parse the options of a sink as its format does. Raises OptionError."""
    chosen = sink_format(texts)
    if chosen == SPARK_JDBC:
        return spark_jdbc_options(texts)
    from barnabas.spark.connectors.sql.sinks.options import parse_sql_sink_options

    staged = {"stagingLocation": "set by the worker", **texts} if chosen in _FILES else texts
    return parse_sql_sink_options(_dialect(chosen), staged)


def _dialect(chosen: str) -> Dialect:
    from barnabas.spark.connectors.sql.dialects import Dialect

    return {
        "barnabas.postgres": Dialect.POSTGRES,
        "barnabas.mysql": Dialect.MYSQL,
        "barnabas.mariadb": Dialect.MYSQL,
        "barnabas.sqlite": Dialect.SQLITE,
        "barnabas.duckdb": Dialect.DUCKDB,
    }[chosen]


def spark_jdbc_options(texts: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's JDBC writer. Raises OptionError for what only our own sinks do."""
    found: dict[str, str] = {}
    for name, text in texts.items():
        lowered = name.lower()
        if lowered not in _OF_SPARK:
            raise OptionError(
                f"{name} is not supported for this database, which Spark's own JDBC writer writes: it has"
                f" {', '.join(sorted(_OF_SPARK))}"
            )
        found |= {_OF_SPARK[lowered]: text} if _OF_SPARK[lowered] else {}
        if lowered in ("insert.mode", "pk.mode") and text.strip() not in ("insert", "none"):
            raise OptionError(f"{name} must be insert or none for this database: Spark's own JDBC writer adds rows")
    if "dbtable" not in found or "${" in found["dbtable"]:
        raise OptionError("table.name.format must name one table: Spark's own JDBC writer writes to one")
    return found


def source_options() -> Sequence[ConnectorOption]:
    from barnabas.spark.connectors.polling.options import POLLING_OPTIONS

    return tuple(row for row in POLLING_OPTIONS if row.name not in ("output", "stagingLocation"))


def source_refused() -> Mapping[str, str]:
    from barnabas.spark.connectors.polling.options import POLLING_REFUSED

    return {**POLLING_REFUSED, "output": "a connector writes records; use Spark's DataFrames for rows"}


def check_source(texts: Mapping[str, str]) -> Any:
    """Parse the options of a source as its format does. Raises OptionError."""
    from barnabas.spark.connectors.record_encoder import RECORD_PREFIXES, check_record_options

    connector = _polling(source_format(texts))
    assert connector.parse is not None, "polling sources parse their options by themselves"
    options = connector.parse({"stagingLocation": "set by the worker", **texts})
    check_record_options(options.given.under(*RECORD_PREFIXES))
    return options


def _polling(chosen: str) -> Connector:
    match chosen:
        case "barnabas.postgres":
            from barnabas.spark.connectors.polling.postgres import POSTGRES_POLLING

            return POSTGRES_POLLING
        case "barnabas.mysql":
            from barnabas.spark.connectors.polling.mysql import MYSQL_POLLING

            return MYSQL_POLLING
        case "barnabas.mariadb":
            from barnabas.spark.connectors.polling.mysql import MARIADB_POLLING

            return MARIADB_POLLING
        case "barnabas.sqlite":
            from barnabas.spark.connectors.polling.sqlite import SQLITE

            return SQLITE
        case _:
            from barnabas.spark.connectors.polling.duckdb import DUCKDB

            return DUCKDB


# -- Debezium's sink ---------------------------------------------------------------------------------------------------

_RENAMED: Final = {
    "connection.url": "connection.url",
    "connection.username": "connection.user",
    "connection.password": "connection.password",
    "insert.mode": "insert.mode",
    "delete.enabled": "delete.enabled",
    "primary.key.mode": "pk.mode",
    "primary.key.fields": "pk.fields",
    "field.include.list": "fields.include",
    "use.time.zone": "db.timezone",
    "database.time_zone": "db.timezone",
    "flush.max.retries": "max.retries",
    "flush.retry.delay.ms": "retry.backoff.ms",
    "batch.size": "batch.size",
}
_UNUSED: Final = ("use.reduction.buffer", "connection.restart.on.errors", "connection.pool.")
DEBEZIUM_SINK_OPTIONS: Final = (
    ConnectorOption(URL, "the database: jdbc:postgresql://host:5432/db, jdbc:mysql://host:3306/db"),
    ConnectorOption("connection.username", "the user"),
    ConnectorOption("connection.password", "the user's password"),
    ConnectorOption("insert.mode", "insert, upsert or update"),
    ConnectorOption("delete.enabled", "deletes delete rows; else they are left out", parse_as.boolean, False),
    ConnectorOption("primary.key.mode", "none, kafka, record_key or record_value"),
    ConnectorOption("primary.key.fields", "the fields of the key, separated by commas"),
    ConnectorOption("collection.name.format", "the table, with ${topic}, in which dots become underscores"),
    ConnectorOption("table.name.format", "the older name of collection.name.format"),
    ConnectorOption("schema.evolution", "none, or basic: create tables and add columns"),
    ConnectorOption("quote.identifiers", "whether names keep upper and lower case", parse_as.boolean, False),
    ConnectorOption("field.include.list", "the fields to write besides the key", parse_as.name_list),
    ConnectorOption("use.time.zone", "the zone of timestamps in columns without one"),
    ConnectorOption("database.time_zone", "the older name of use.time.zone"),
    ConnectorOption("flush.max.retries", "how often a commit is tried again"),
    ConnectorOption("flush.retry.delay.ms", "the time before that"),
    ConnectorOption("batch.size", "accepted for Debezium's sake: rows are staged in bulk"),
    ConnectorOption("use.reduction.buffer", "accepted for Debezium's sake: the last change of a key is written"),
    ConnectorOption("connection.restart.on.errors", "accepted for Debezium's sake: connections are opened again"),
)
DEBEZIUM_SINK_REFUSED: Final = {
    "field.exclude.list": "use field.include.list, or the transform ReplaceField",
    "truncate.enabled": "there are no events of truncated tables in topics of ours",
    "column.naming.strategy*": "use the transform ReplaceField",
    "collection.naming.strategy*": "use collection.name.format, or the transform RegexRouter",
    "table.naming.strategy": "use collection.name.format, or the transform RegexRouter",
    "connection.provider": "connections are those of Python's drivers",
    "dialect.*": "the connection.url says which database it is",
}
_UNWRAP: Final = "barnabasUnwrap"


def debezium_sink_options() -> Sequence[ConnectorOption]:
    from barnabas.spark.connectors.sinking.options import ROW_OPTIONS

    return (*DEBEZIUM_SINK_OPTIONS, *(row for row in ROW_OPTIONS if row.name.startswith("errors.")))


def from_debezium(texts: Mapping[str, str]) -> dict[str, str]:
    """The options of Debezium's sink by Confluent's names, with a transform that makes change events flat. Raises
    OptionError.
    """
    given = {name.lower(): text.strip() for name, text in texts.items()}
    found = {
        name: text
        for name, text in given.items()
        if name not in {row.name for row in DEBEZIUM_SINK_OPTIONS} and not name.startswith(_UNUSED)
    }
    for name, text in given.items():
        if name in _RENAMED:
            found[_RENAMED[name]] = text
    table = given.get("collection.name.format", given.get("table.name.format", "${topic}"))
    if "${source." in table:
        raise OptionError("collection.name.format has ${source..}: name the table by ${topic}, or use RegexRouter")
    found["table.name.format"] = table.replace("${topic}", "${topic_}")
    if found.get("pk.mode") == "record_header":
        raise OptionError(
            "primary.key.mode=record_header is not supported: use record_key, or the transform ValueToKey"
        )
    evolution = given.get("schema.evolution", "none").lower()
    if evolution not in ("none", "basic"):
        raise OptionError(f"schema.evolution must be none or basic, got {evolution!r}")
    if evolution == "basic":
        found |= {"auto.create": "true", "auto.evolve": "true"}
    found["quote.sql.identifiers"] = "always" if given.get("quote.identifiers", "false").lower() == "true" else "never"
    deletes = given.get("delete.enabled", "false").lower() == "true"
    names = [name.strip() for name in given.get("transforms", "").split(",") if name.strip()]
    found["transforms"] = ",".join([*names, _UNWRAP])
    found[f"transforms.{_UNWRAP.lower()}.type"] = "io.debezium.transforms.ExtractNewRecordState"
    found[f"transforms.{_UNWRAP.lower()}.delete.tombstone.handling.mode"] = "delete-to-tombstone" if deletes else "drop"
    return found
