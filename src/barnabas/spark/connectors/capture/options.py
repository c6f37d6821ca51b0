"""Table: the options that all capture sources have; and as a value, those of one query.

To add an option that all databases have, add a row to CAPTURE_OPTIONS and read it in `parse_capture_options`; an option
of one database belongs to its `Connector`. The names are Debezium's where it has one. `stagingLocation`, `output` and
`maxBytesPerTrigger` are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.events.masking import MASK_PREFIXES, parse_column_rules
from barnabas.spark.connectors.events.names import NameAdjustment
from barnabas.spark.connectors.events.options import BinaryHandling, DecimalHandling, EventOptions, TimePrecision
from barnabas.spark.connectors.option_rows import (
    ConnectorOption,
    ConnectorOptions,
    is_json_without_schemas,
    milliseconds,
    patterns,
)
from barnabas.spark.errors import OptionError

TRIGGER_BYTES_MAX: Final = 256 << 20
STAGED_FILE_BYTES_MIN: Final = 8 << 20
STAGED_FILE_BYTES_MAX: Final = 64 << 20
"""A staged file, which is one task of Spark, ends when it has a quarter of the bytes of the table's files before it,
within these limits. So a small table has several tasks, and a large one not too many."""


class Output(StrEnum):
    """`output`: records for `format("barnabas")`, or the rows of one table."""

    RECORDS = "records"
    ROWS = "rows"


class SnapshotMode(StrEnum):
    """`snapshot.mode`: the rows first and then changes, only the rows, or only changes."""

    INITIAL = "initial"
    INITIAL_ONLY = "initial_only"
    NO_DATA = "no_data"


class UnavailableValues(StrEnum):
    """`unavailable.value.handling.mode`: what a query does with a value of an update that the database did not send.
    With output=records, FAIL and NULL apply only to types without a placeholder. The values of a row with a new key are
    read from the table in all modes (`completing.py`).
    """

    FAIL = "fail"
    NULL = "null"
    LIST = "list"  # null, and the column __unavailable has the names of such columns
    RESELECT = "reselect"  # the value that the table has now


class Operation(StrEnum):
    """`skipped.operations`: kinds of changes, by the letters of the field `op` of an event."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    TRUNCATE = "t"


_MODES_WITH_REASONS: Final = {
    "always": "a restart continues where the query was; delete the checkpoint and stagingLocation to start over",
    "never": "use no_data",
    "schema_only": "use no_data",
    "when_needed": "use initial with failOnDataLoss=false, which takes a new snapshot if changes are lost",
    "recovery": "there is no schema history to be recovered; use initial",
    "schema_only_recovery": "there is no schema history to be recovered; use initial",
    "configuration_based": "use initial, initial_only or no_data",
    "custom": "use initial, initial_only or no_data",
}


def snapshot_mode(name: str, text: str) -> SnapshotMode:
    """A snapshot.mode; the modes of Debezium that have no meaning here are refused with the one to use."""
    reason = _MODES_WITH_REASONS.get(text.strip().lower())
    if reason is not None:
        raise OptionError(f"{name} {text} is not supported: {reason}")
    mode: SnapshotMode = parse_as.one_of(SnapshotMode)(name, text)
    return mode


def skipped_operations(name: str, text: str) -> frozenset[Operation]:
    """Letters separated by commas, or `none`."""
    if text.strip().lower() == "none":
        return frozenset()
    parts: Iterable[Operation] = (parse_as.one_of(Operation)(name, part) for part in parse_as.name_list(name, text))
    return frozenset(parts)


def topic_prefix(name: str, text: str) -> str:
    """A logical name: the start of all topics' names, so only characters that topics may have."""
    given = text.strip()
    if not given or not all(char.isalnum() or char in "._-" for char in given) or not given.isascii():
        raise OptionError(f"{name} must consist of letters, digits, dots, hyphens and underscores, got {text!r}")
    return given


def key_columns(name: str, text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """`schema.table:column,column;...`. The tables are names here, not regular expressions as in Debezium."""
    found = []
    for part in text.split(";"):
        if not part.strip():
            continue
        table, colon, columns = part.strip().partition(":")
        names = parse_as.name_list(name, columns)
        if not colon or not table.strip() or not names:
            raise OptionError(f"{name} must look like public.orders:id,line;public.items:id, got {text!r}")
        found.append((table.strip().replace("\\.", "."), names))
    return tuple(found)


CAPTURE_OPTIONS: Final = (
    ConnectorOption("stagingLocation", "a directory that driver and workers share, and no other query uses"),
    ConnectorOption("output", "`records` for a topic, or `rows` of one table", parse_as.one_of(Output), Output.RECORDS),
    ConnectorOption("maxBytesPerTrigger", "about how many bytes a micro-batch reads", parse_as.size, TRIGGER_BYTES_MAX),
    ConnectorOption("topic.prefix", "the logical name of the source, and the start of its topics", topic_prefix),
    ConnectorOption("snapshot.mode", "`initial`, `initial_only` or `no_data`", snapshot_mode, SnapshotMode.INITIAL),
    ConnectorOption(
        "failOnDataLoss",
        "stop if the position belongs to another server or history, or changes after it are gone; false: start anew,"
        " with a new snapshot and a warning",
        parse_as.boolean,
        True,
    ),
    ConnectorOption("snapshot.max.threads", "tables that are copied at the same time", parse_as.positive, 1),
    ConnectorOption("table.include.list", "regular expressions of the tables to read", patterns, ()),
    ConnectorOption("table.exclude.list", "regular expressions of tables to leave out", patterns, ()),
    ConnectorOption("column.include.list", "regular expressions of the columns to read", patterns, ()),
    ConnectorOption("column.exclude.list", "regular expressions of columns to leave out", patterns, ()),
    ConnectorOption("message.key.columns", "`table:column,..;..`: other keys than the tables' own", key_columns, ()),
    ConnectorOption(
        "skipped.operations",
        "kinds of changes to leave out: `c`, `u`, `d`, and `t` for truncates; or `none`",
        skipped_operations,
        frozenset((Operation.TRUNCATE,)),
    ),
    ConnectorOption(
        "skip.messages.without.change",
        "leave out updates that change no column that is read; PostgreSQL needs REPLICA IDENTITY FULL",
        parse_as.boolean,
        False,
    ),
    ConnectorOption(
        "column.truncate.to.N.chars", "regular expressions of columns whose texts are cut; N is a number", default=()
    ),
    ConnectorOption(
        "column.mask.with.N.chars", "regular expressions of columns whose texts become N asterisks", default=()
    ),
    ConnectorOption(
        "column.mask.hash.v2.A.with.salt.hex.S",
        "columns whose texts become hashes: A is SHA-256 or another algorithm, S the salt in hexadecimal",
        default=(),
    ),
    ConnectorOption(
        "schema.name.adjustment.mode",
        "names of schemas as Avro allows them: `none`, `avro` or `avro_unicode`",
        parse_as.one_of(NameAdjustment),
        NameAdjustment.NONE,
    ),
    ConnectorOption(
        "field.name.adjustment.mode",
        "names of fields as Avro allows them: `none`, `avro` or `avro_unicode`",
        parse_as.one_of(NameAdjustment),
        NameAdjustment.NONE,
    ),
    ConnectorOption("tombstones.on.delete", "a tombstone after each delete", parse_as.boolean, True),
    ConnectorOption("provide.transaction.metadata", "transactions as records too", parse_as.boolean, False),
    ConnectorOption(
        "decimal.handling.mode",
        "`precise`, `double` or `string`; the default for JSON without schemas is `string`",
        parse_as.one_of(DecimalHandling),
        DecimalHandling.PRECISE,
    ),
    ConnectorOption(
        "time.precision.mode",
        "`adaptive`, `adaptive_time_microseconds`, `connect`, `microseconds` or `nanoseconds`",
        parse_as.one_of(TimePrecision),
        TimePrecision.ADAPTIVE,
    ),
    ConnectorOption(
        "binary.handling.mode",
        "`bytes`, `base64`, `base64-url-safe` or `hex`",
        parse_as.one_of(BinaryHandling),
        BinaryHandling.BYTES,
    ),
    ConnectorOption(
        "unavailable.value.placeholder",
        "stands in events for a value that the database did not send",
        default="__debezium_unavailable_value",
    ),
    ConnectorOption(
        "unavailable.value.handling.mode",
        "what becomes of a value of an update that the database did not send: `fail`, `null`, `list` (only output=rows:"
        " null, and a column `__unavailable` names the columns) or `reselect` (read from the table). With"
        " output=records and `fail` or `null`, types with a placeholder have it",
        parse_as.one_of(UnavailableValues),
        UnavailableValues.FAIL,
    ),
    ConnectorOption("heartbeat.interval.ms", "time between heartbeat records, 0 for none", milliseconds, 0),
    ConnectorOption("heartbeat.action.query", "a statement to run with each heartbeat"),
    ConnectorOption("name", "the name of the connector in headers of records", default=""),
    ConnectorOption("key.converter", "class of the converter of keys", default="JsonConverter"),
    ConnectorOption("value.converter", "class of the converter of values", default="JsonConverter"),
    ConnectorOption("transforms", "names of the transforms, in order", parse_as.name_list, ()),
    ConnectorOption("predicates", "names of the predicates", parse_as.name_list, ()),
)

PREFIXES: Final = ("key.converter.", "value.converter.", "transforms.", "predicates.", "errors.")
"""Starts of the names that converters, transforms and their error handling check."""

REFUSED: Final[Mapping[str, str]] = {
    "column.propagate.source.type": "the types are in the schemas of events",
    "datatype.propagate.source.type": "the types are in the schemas of events",
    "signal.*": "there are no incremental snapshots; start a second query with another stagingLocation",
    "incremental.snapshot.*": "there are no incremental snapshots; start a second query with another stagingLocation",
    "snapshot.select.statement.overrides*": "capture a view of the database with a polling source instead",
    "snapshot.fetch.size": "rows are copied as a stream",
    "max.batch.size": "use maxBytesPerTrigger",
    "max.queue.size": "use maxBytesPerTrigger",
    "max.queue.size.in.bytes": "use maxBytesPerTrigger",
    "poll.interval.ms": "use the trigger of the query",
    "errors.max.retries": "Spark and the checkpoint restart a query",
    "schema.history.internal.*": "the changes themselves have the columns of their tables",
    "snapshot.include.collection.list": "the snapshot has all tables that are read; use two queries",
    "snapshot.delay.ms": "start the query later",
    "snapshot.lock.timeout.ms": "a snapshot waits for no lock of a table",
    "event.processing.failure.handling.mode": "a change that cannot be read stops the query, so that none is lost",
    "query.fetch.size": "rows are copied as a stream",
    "sanitize.field.names": "use field.name.adjustment.mode",
    "include.schema.changes": "changes themselves have the columns of their tables",
    "include.schema.comments": "the schemas of events have no comments",
    "topic.delimiter": "topics are named prefix.schema.table: rename them with the transform RegexRouter",
    "topic.naming.strategy": "topics are named prefix.schema.table: rename them with the transform RegexRouter",
    "topic.heartbeat.prefix": "the topic of heartbeats is __debezium-heartbeat and topic.prefix",
    "topic.transaction": "the topic of transactions is topic.prefix and .transaction",
    "converters": "there are no converters of columns: use a transform, or output=rows and Spark's functions",
    "notification.*": "the log and the progress of the query say how far it is",
    "retriable.restart.connector.wait.ms": "Spark and the checkpoint restart a query",
    "connector.class": "the format of the query says it",
    "tasks.max": "one slot or binlog is read by one task",
}
"""Debezium's options that no capture source has, with what to do instead."""


class CaptureOptions(Struct, frozen=True):
    """The options of one query. `given` has those of the database, and those of converters and transforms.

    `key_columns` has pairs of a table's name as `schema.table` and columns.
    """

    given: ConnectorOptions
    staging_location: str
    output: Output
    trigger_bytes_max: int
    snapshot_mode: SnapshotMode
    snapshot_threads: int
    key_columns: tuple[tuple[str, tuple[str, ...]], ...]
    skipped: frozenset[Operation]
    unavailable: UnavailableValues
    heartbeat_ms: int
    heartbeat_query: str | None
    events: EventOptions
    skips_unchanged: bool = False
    fails_on_data_loss: bool = True

    @property
    def wants_truncates(self) -> bool:
        """Whether a truncate becomes an event."""
        return Operation.TRUNCATE not in self.skipped

    def wants_table(self, name: str) -> bool:
        """Whether table.include.list and table.exclude.list let a table through; `name` is `schema.table`."""
        return _selects(self.given, "table", name)

    def wants_column(self, table: str, column: str) -> bool:
        """Whether column.include.list and column.exclude.list let a column of a table through."""
        return _selects(self.given, "column", f"{table}.{column}")


def _selects(given: ConnectorOptions, kind: str, name: str) -> bool:
    included, excluded = given.get(f"{kind}.include.list"), given.get(f"{kind}.exclude.list")
    if included and not any(pattern.fullmatch(name) for pattern in included):
        return False
    return not any(pattern.fullmatch(name) for pattern in excluded)


def parse_capture_options(
    texts: Mapping[str, str],
    rows: Iterable[ConnectorOption],
    refused: Mapping[str, str],
    *,
    connector: str,
    version: str,
) -> CaptureOptions:
    """The options of a query on the database whose own options are `rows`. Raises OptionError."""
    prefixes = (*PREFIXES, *MASK_PREFIXES)
    given = ConnectorOptions(texts, (*CAPTURE_OPTIONS, *rows), prefixes=prefixes, refused={**REFUSED, **refused})
    given.check_names()
    for kind in ("table", "column"):
        if given.get(f"{kind}.include.list") and given.get(f"{kind}.exclude.list"):
            raise OptionError(f"give {kind}.include.list or {kind}.exclude.list, not both")
    staging = given.require("stagingLocation", "a directory of this query alone that driver and workers share")
    output: Output = given.get("output")
    if output is Output.RECORDS:
        prefix = given.require("topic.prefix", "a logical name of the source, with which the names of its topics begin")
        if given.get("unavailable.value.handling.mode") is UnavailableValues.LIST:
            raise OptionError("unavailable.value.handling.mode=list is for output=rows: use fail, null or reselect")
    else:
        prefix = given.get("topic.prefix") or connector
        _check_rows_output(given)
    has_texts = _has_decimal_texts(given)
    return CaptureOptions(
        given,
        staging.rstrip("/"),
        output,
        given.get("maxBytesPerTrigger"),
        given.get("snapshot.mode"),
        given.get("snapshot.max.threads"),
        given.get("message.key.columns"),
        given.get("skipped.operations"),
        given.get("unavailable.value.handling.mode"),
        given.get("heartbeat.interval.ms"),
        given.get("heartbeat.action.query"),
        EventOptions(
            prefix,
            connector,
            version,
            decimals=DecimalHandling.STRING if has_texts else given.get("decimal.handling.mode"),
            unsigned=DecimalHandling.PRECISE if has_texts else None,
            times=given.get("time.precision.mode"),
            binaries=given.get("binary.handling.mode"),
            tombstones_on_delete=given.get("tombstones.on.delete"),
            transaction_metadata=given.get("provide.transaction.metadata"),
            unavailable_value=given.get("unavailable.value.placeholder"),
            connector_name=given.get("name"),
            schema_names=given.get("schema.name.adjustment.mode"),
            field_names=given.get("field.name.adjustment.mode"),
            columns=parse_column_rules(given.under(*MASK_PREFIXES)),
        ),
        given.get("skip.messages.without.change"),
        given.get("failOnDataLoss"),
    )


def _has_decimal_texts(given: ConnectorOptions) -> bool:
    """Whether decimals are texts because JSON without a schema has no better form for them: its numbers are doubles for
    most readers, and bytes are base64. A BIGINT UNSIGNED is a number there.
    """
    if "decimal.handling.mode" in given:
        return False
    config = given.under("key.converter", "value.converter")
    if any(name.endswith(".decimal.format") for name in config):
        return False
    return any(is_json_without_schemas(config, part) for part in ("key.converter", "value.converter"))


def _check_rows_output(given: ConnectorOptions) -> None:
    for name in ("transforms", "key.converter", "value.converter", "heartbeat.interval.ms"):
        if name in given:
            raise OptionError(f"{name} is for output=records: rows have typed columns, which Spark's functions change")
    if Operation.TRUNCATE not in given.get("skipped.operations"):
        raise OptionError("with output=rows, skipped.operations must have t: there is no row for a truncate")
