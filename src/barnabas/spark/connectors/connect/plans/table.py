"""Table: the connectors that a configuration can name, with their formats and their keys.

To add a connector, add a row to CONNECTORS. A row names the format of Spark that does the work; the keys of the
connector are the options of that format. `barnabas.spark.connectors` has the formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.connect.cluster.values import ConnectorKind
from barnabas.spark.connectors.connect.plans import accepted, jdbc
from barnabas.spark.connectors.option_rows import ConnectorOption, milliseconds
from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from barnabas.spark.connectors.capture.ports import Connector

Check = Callable[[Mapping[str, str]], Any]
"""Parses the options of a format as the format does. Raises OptionError."""

TRIGGER_MS: Final = 500


class ConnectorRow(Struct, frozen=True):
    """One connector. `aliases` are the Java classes whose configurations it takes. `format` None: the key spark.format
    names it.
    """

    name: str
    kind: ConnectorKind
    format: str | None
    options: Callable[[], Sequence[ConnectorOption]]
    check: Check
    aliases: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    refused: Callable[[], Mapping[str, str]] = dict
    """Keys that are known elsewhere and have no meaning here, with what to do instead; a star ends a prefix."""
    converts: bool = False
    """Whether the connector encodes records by converters. Others have bytes, texts or typed columns."""
    is_staged: bool = False
    """Whether the source needs a directory for what it copies (the option stagingLocation)."""
    format_of: Callable[[Mapping[str, str]], str] | None = None
    """Chooses the format by the configuration, in place of `format`. Raises OptionError."""
    is_staged_sink: Callable[[Mapping[str, str]], bool] | None = None
    """Whether the sink needs such a directory, by the options of its format."""
    translate: Callable[[Mapping[str, str]], dict[str, str]] | None = None
    """The connector's own keys as options of the format. Raises OptionError."""
    only_converters: bool = False
    """Whether the connector cannot have typed columns in place of records with converters."""
    accepted: tuple[ConnectorOption, ...] = ()
    """Keys that configurations of the Java class have and that change no record here: they have no effect."""
    accepted_prefixes: tuple[str, ...] = ()
    """Starts of other such keys."""


COMMON: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption("name", "the name of the connector"),
    ConnectorOption("connector.class", "the class of the connector"),
    ConnectorOption(
        "tasks.max", "accepted for Connect's sake: Spark divides the work of a query by itself", parse_as.positive, 1
    ),
    ConnectorOption("key.converter", "how keys are encoded; the worker's if it is not given", default=""),
    ConnectorOption("value.converter", "how values are encoded; the worker's if it is not given", default=""),
    ConnectorOption("header.converter", "accepted for Connect's sake: headers are bytes", default=""),
    *accepted.OF_CONNECT,
    ConnectorOption(
        "errors.retry.timeout", "accepted for Connect's sake: a query that an outage ended is always started again"
    ),
    ConnectorOption(
        "errors.retry.delay.max.ms", "accepted for Connect's sake: a query is started again after at most a minute"
    ),
    ConnectorOption(
        "spark.select",
        "what follows SELECT in a query of Spark SQL over the rows that are read: a transformation. Without it, a sink"
        " gets the fields of typed values as columns",
    ),
    ConnectorOption("trigger.interval.ms", "the time from one micro-batch to the next", milliseconds, TRIGGER_MS),
)
"""The keys of every connector."""
SINK_KEYS: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption("topics", "the topics to read, separated by commas"),
    ConnectorOption("topics.regex", "a regular expression of the topics to read"),
)
"""The keys of every sink. A sink also has the options by which `format("barnabas")` reads a topic."""
SOURCE_KEYS: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption("topic", "the topic to write to, for rows without a column topic"),
    *accepted.OF_SOURCES,
)
"""The keys of every source. A source also has the options by which `format("barnabas")` writes to a topic."""
ANY_FORMAT: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption("spark.format", "the format of Spark that does the work"),
)
"""The keys of SparkSource and SparkSink. Options of the format begin with `spark.option.`."""


def _delta_options() -> Sequence[ConnectorOption]:
    from barnabas.spark.connectors.lake.options import LAKE_OPTIONS
    from barnabas.spark.connectors.sinking.options import ROW_OPTIONS

    return (*LAKE_OPTIONS, *ROW_OPTIONS)


def _check_delta(texts: Mapping[str, str]) -> Any:
    from barnabas.spark.connectors.lake.options import LakeKind, parse_lake_options

    return parse_lake_options(LakeKind.DELTA, texts)


def _check_iceberg(texts: Mapping[str, str]) -> Any:
    from barnabas.spark.connectors.lake.options import LakeKind, parse_lake_options

    return parse_lake_options(LakeKind.ICEBERG, texts)


def _http_options() -> Sequence[ConnectorOption]:
    from barnabas.spark.connectors.http.options import HTTP_OPTIONS
    from barnabas.spark.connectors.sinking.options import ROW_OPTIONS

    return (*HTTP_OPTIONS, *ROW_OPTIONS)


def _check_http(texts: Mapping[str, str]) -> Any:
    from barnabas.spark.connectors.http.options import parse_http_options

    return parse_http_options(texts)


def _file_sink_options() -> Sequence[ConnectorOption]:
    from barnabas.spark.connectors.files.options import SINK_OPTIONS
    from barnabas.spark.connectors.sinking.options import ROW_OPTIONS

    return (*SINK_OPTIONS, *(row for row in ROW_OPTIONS if row.name.startswith("errors.")))


def _check_file_sink(texts: Mapping[str, str]) -> Any:
    from barnabas.spark.connectors.files.options import parse_file_sink

    return parse_file_sink(texts)


def _file_source_options() -> Sequence[ConnectorOption]:
    from barnabas.spark.connectors.files.options import SOURCE_OPTIONS

    return SOURCE_OPTIONS


def _check_file_source(texts: Mapping[str, str]) -> Any:
    from barnabas.spark.connectors.files.options import parse_file_source

    return parse_file_source(texts)


def _capture_options(connector: Callable[[], Connector]) -> Callable[[], Sequence[ConnectorOption]]:
    """The options of a connector for change capture, which a worker gives output and stagingLocation."""

    def options() -> Sequence[ConnectorOption]:
        from barnabas.spark.connectors.capture.options import CAPTURE_OPTIONS

        return (*(row for row in CAPTURE_OPTIONS if row.name != "output"), *connector().options)

    return options


def _capture_refused(connector: Callable[[], Connector]) -> Callable[[], Mapping[str, str]]:
    def refused() -> Mapping[str, str]:
        from barnabas.spark.connectors.capture.options import REFUSED

        return {
            **REFUSED,
            **connector().refused,
            "output": "a connector writes records; use Spark's DataFrames for rows",
        }

    return refused


def _check_capture(connector: Callable[[], Connector]) -> Check:
    def check(texts: Mapping[str, str]) -> Any:
        from barnabas.spark.connectors.capture.options import parse_capture_options
        from barnabas.spark.connectors.capture.records_output import check_records_output
        from barnabas.spark.connectors.converters.errors import ConverterConfigError
        from barnabas.spark.connectors.transforms.errors import TransformConfigError

        made = connector()
        staged = {"stagingLocation": "set by the worker", **texts}
        options = parse_capture_options(staged, made.options, made.refused, connector=made.name, version=made.version)
        try:
            check_records_output(options)
        except (ConverterConfigError, TransformConfigError) as error:
            raise OptionError(str(error)) from error
        made.open(options)  # parses the options of the database, and does not connect
        return options

    return check


def _postgres() -> Connector:
    from barnabas.spark.connectors.postgres.source import CONNECTOR

    return CONNECTOR


def _mysql() -> Connector:
    from barnabas.spark.connectors.mysql.source import MYSQL

    return MYSQL


def _mariadb() -> Connector:
    from barnabas.spark.connectors.mysql.source import MARIADB

    return MARIADB


def _unchecked(texts: Mapping[str, str]) -> Any:
    """The options of any format of Spark are checked when the query starts."""
    return texts


_CONVERTING: Final = ("key.converter", "value.converter", "header.converter", "transforms", "predicates")
"""The starts of the keys of converters and transforms, for connectors that convert."""
_OF_CAPTURE: Final = (
    "key.converter.", "value.converter.", "transforms.", "predicates.", "errors.", "column.mask.", "column.truncate.",
)  # fmt: skip
CONNECTORS: Final[tuple[ConnectorRow, ...]] = (
    ConnectorRow(
        "DebeziumJdbcSink",
        ConnectorKind.SINK,
        "barnabas.postgres",
        jdbc.debezium_sink_options,
        jdbc.check_sink,
        ("io.debezium.connector.jdbc.JdbcSinkConnector",),
        ("connection.pool.", *_CONVERTING),
        lambda: jdbc.DEBEZIUM_SINK_REFUSED,
        converts=True,
        format_of=jdbc.sink_format,
        is_staged_sink=jdbc.is_staged_sink,
        translate=jdbc.from_debezium,
        only_converters=True,
    ),
    ConnectorRow(
        "DeltaSink",
        ConnectorKind.SINK,
        "barnabas.delta",
        _delta_options,
        _check_delta,
        prefixes=("storage.", *_CONVERTING),
        converts=True,
    ),
    ConnectorRow(
        "FileStreamSink",
        ConnectorKind.SINK,
        "barnabas.files",
        _file_sink_options,
        _check_file_sink,
        ("org.apache.kafka.connect.file.FileStreamSinkConnector",),
        ("storage.", *_CONVERTING),
        converts=True,
    ),
    ConnectorRow(
        "FileStreamSource",
        ConnectorKind.SOURCE,
        "barnabas.files",
        _file_source_options,
        _check_file_source,
        ("org.apache.kafka.connect.file.FileStreamSourceConnector",),
        ("storage.", "errors.", *_CONVERTING),
        converts=True,
    ),
    ConnectorRow(
        "HttpSink",
        ConnectorKind.SINK,
        "barnabas.http",
        _http_options,
        _check_http,
        ("io.aiven.kafka.connect.http.HttpSinkConnector",),
        _CONVERTING,
        converts=True,
    ),
    ConnectorRow(
        "IcebergSink",
        ConnectorKind.SINK,
        "barnabas.iceberg",
        _delta_options,
        _check_iceberg,
        ("org.apache.iceberg.connect.IcebergSinkConnector", "io.tabular.iceberg.connect.IcebergSinkConnector"),
        ("storage.", "catalog.", *_CONVERTING),
        converts=True,
    ),
    ConnectorRow(
        "JdbcSink",
        ConnectorKind.SINK,
        "barnabas.postgres",
        jdbc.sink_options,
        jdbc.check_sink,
        ("io.confluent.connect.jdbc.JdbcSinkConnector", "io.aiven.connect.jdbc.JdbcSinkConnector"),
        _CONVERTING,
        lambda: jdbc.SINK_REFUSED,
        converts=True,
        format_of=jdbc.sink_format,
        is_staged_sink=jdbc.is_staged_sink,
        translate=jdbc.without_driver,
    ),
    ConnectorRow(
        "JdbcSource",
        ConnectorKind.SOURCE,
        "barnabas.postgres",
        jdbc.source_options,
        jdbc.check_source,
        ("io.confluent.connect.jdbc.JdbcSourceConnector", "io.aiven.connect.jdbc.JdbcSourceConnector"),
        ("key.converter.", "value.converter.", "transforms.", "predicates.", "errors."),
        jdbc.source_refused,
        converts=True,
        is_staged=True,
        format_of=jdbc.source_format,
    ),
    ConnectorRow(
        "MariaDbSource",
        ConnectorKind.SOURCE,
        "barnabas.mariadb",
        _capture_options(_mariadb),
        _check_capture(_mariadb),
        ("io.debezium.connector.mariadb.MariaDbConnector",),
        _OF_CAPTURE,
        _capture_refused(_mariadb),
        converts=True,
        is_staged=True,
        accepted=accepted.OF_DEBEZIUM,
        accepted_prefixes=accepted.OF_HISTORY,
    ),
    ConnectorRow(
        "MySqlSource",
        ConnectorKind.SOURCE,
        "barnabas.mysql",
        _capture_options(_mysql),
        _check_capture(_mysql),
        ("io.debezium.connector.mysql.MySqlConnector",),
        _OF_CAPTURE,
        _capture_refused(_mysql),
        converts=True,
        is_staged=True,
        accepted=accepted.OF_DEBEZIUM,
        accepted_prefixes=accepted.OF_HISTORY,
    ),
    ConnectorRow(
        "PostgresSource",
        ConnectorKind.SOURCE,
        "barnabas.postgres",
        _capture_options(_postgres),
        _check_capture(_postgres),
        ("io.debezium.connector.postgresql.PostgresConnector",),
        _OF_CAPTURE,
        _capture_refused(_postgres),
        converts=True,
        is_staged=True,
        accepted=accepted.OF_POSTGRES,
    ),
    ConnectorRow("SparkSink", ConnectorKind.SINK, None, lambda: ANY_FORMAT, _unchecked, prefixes=("spark.option.",)),
    ConnectorRow(
        "SparkSource", ConnectorKind.SOURCE, None, lambda: ANY_FORMAT, _unchecked, prefixes=("spark.option.",)
    ),
)
"""All connectors, in the order of their names."""

AS_BYTES: Final = ("StringConverter", "ByteArrayConverter")
"""The converters after which a value is what the topic has."""


def find_connector(class_name: str) -> ConnectorRow:
    """The connector of a class: our name, with or without `Connector` at the end, or a Java class. Raises LookupError
    with the nearest name.
    """
    import difflib

    given = class_name.strip()
    for row in CONNECTORS:
        if given in (row.name, f"{row.name}Connector", *row.aliases):
            return row
    names = [name for row in CONNECTORS for name in (row.name, *row.aliases)]
    near = difflib.get_close_matches(given, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the connectors are {', '.join(row.name for row in CONNECTORS)}"
    raise LookupError(f"Failed to find any class that implements Connector and which name matches {given}: {hint}")
