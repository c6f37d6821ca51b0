"""Shell: what Spark calls for the sinks of databases, by the name of the format, and the sessions of each database."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from barnabas.spark.connectors.sinking.writer import SinkPlan
from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.connectors.sql.sinks.errors import DatabaseSinkError, DatabaseUnreachableError
from barnabas.spark.connectors.sql.sinks.options import SqlSinkOptions, parse_sql_sink_options
from barnabas.spark.connectors.sql.sinks.ports import SinkSession

log = logging.getLogger("barnabas.spark")


def postgres_plan(options: Mapping[str, str]) -> SinkPlan:
    return _plan(Dialect.POSTGRES, options)


def mysql_plan(options: Mapping[str, str]) -> SinkPlan:
    return _plan(Dialect.MYSQL, options)


def sqlite_plan(options: Mapping[str, str]) -> SinkPlan:
    return _plan(Dialect.SQLITE, options)


def duckdb_plan(options: Mapping[str, str]) -> SinkPlan:
    return _plan(Dialect.DUCKDB, options)


def _plan(dialect: Dialect, options: Mapping[str, str]) -> SinkPlan:
    from barnabas.spark.connectors.sinking.tables import JsonTextDivider
    from barnabas.spark.connectors.sql.sinks.target import SqlTarget

    parsed = parse_sql_sink_options(dialect, options)
    return SinkPlan(SqlTarget(parsed), parsed.rows, JsonTextDivider)


def open_session(options: SqlSinkOptions, attempts: int | None = None) -> SinkSession:
    """Connect to the database, as often as the options say. Raises DatabaseSinkError."""
    attempts = options.attempts_max if attempts is None else attempts
    while True:
        attempts -= 1
        try:
            return _open(options)
        except DatabaseUnreachableError as error:
            if attempts <= 0:
                raise
            log.info("connecting again in %d ms: %s", options.connection_backoff_ms, error)
            time.sleep(options.connection_backoff_ms / 1000)


def _open(options: SqlSinkOptions) -> SinkSession:
    match options.dialect:
        case Dialect.POSTGRES:
            from barnabas.spark.connectors.sql.sinks.postgres import PostgresSinkSession

            return PostgresSinkSession(options)
        case Dialect.MYSQL:
            from barnabas.spark.connectors.sql.sinks.mysql import MysqlSinkSession

            return MysqlSinkSession(options)
        case Dialect.SQLITE:
            from barnabas.spark.connectors.sql.sinks.sqlite import SqliteSinkSession

            return SqliteSinkSession(options)
        case Dialect.DUCKDB:
            from barnabas.spark.connectors.sql.sinks.duckdb import DuckdbSinkSession

            return DuckdbSinkSession(options)
        case _:
            raise DatabaseSinkError(f"there is no sink for {options.dialect}")
