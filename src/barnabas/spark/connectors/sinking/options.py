"""Codec: the options that all sinks share -> `RowOptions`: what the rows of a DataFrame are, their keys and columns.

A DataFrame has either the columns of one table (input=columns), or records as `format("barnabas")` reads them
(input=records), whose keys and values converters decode and transforms change. Records are the input if a converter or
transforms are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from msgspec import Struct, field

from barnabas.client.config import check_names
from barnabas.core.config import ConfigError
from barnabas.core.reprs import repr_without
from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.option_rows import ConnectorOption, ConnectorOptions
from barnabas.spark.errors import OptionError
from barnabas.spark.records.formats import DeadLetterOptions, ErrorsTolerance


class InputKind(Enum):
    """`input`: the rows are those of one table, or records of topics."""

    COLUMNS = "columns"
    RECORDS = "records"


class InsertMode(Enum):
    """`insert.mode`: add rows, add or change them by their key, or only change those that exist."""

    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"


class PrimaryKeyMode(Enum):
    """`pk.mode`: where the key of a row comes from: nowhere, the record's place in its topic, its key, or its value."""

    NONE = "none"
    KAFKA = "kafka"
    RECORD_KEY = "record_key"
    RECORD_VALUE = "record_value"


KAFKA_KEY: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
"""The key columns of pk.mode=kafka, unless pk.fields names three others."""
UNAVAILABLE_VALUE: Final = "__debezium_unavailable_value"
"""Debezium's text in place of a value that the database did not send."""

ROW_OPTIONS: Final = (
    ConnectorOption(
        "input",
        "columns: the DataFrame has the columns of a table; records: it has records. Records if a converter or"
        " transforms are given.",
        parse_as.one_of(InputKind),
    ),
    ConnectorOption("dbtable", "The table to write to; the same as table.name.format.", parse_as.name),
    ConnectorOption(
        "table.name.format",
        "The table to write to, with ${topic} for the topic of a record, or ${topic_} with underscores for its dots"
        " (${topic}).",
        parse_as.name,
    ),
    ConnectorOption(
        "insert.mode",
        "insert: add rows; upsert: add rows or change those with the same key; update: only change rows.",
        parse_as.one_of(InsertMode),
        InsertMode.INSERT,
    ),
    ConnectorOption(
        "pk.mode",
        "The key of a row: none; kafka: topic, partition, offset; record_key; record_value (also for columns).",
        parse_as.one_of(PrimaryKeyMode),
    ),
    ConnectorOption("pk.fields", "The fields or columns of the key, separated by commas.", parse_as.name_list, ()),
    ConnectorOption(
        "delete.enabled",
        "true: a record without a value deletes its key (pk.mode=record_key); also a row with __op=d, __deleted=true.",
        parse_as.boolean,
        False,
    ),
    ConnectorOption(
        "fields.include", "The fields or columns to write besides the key; all if not given.", parse_as.name_list
    ),
    ConnectorOption("fields.whitelist", "The same as fields.include.", parse_as.name_list),
    ConnectorOption(
        "unavailable.value.placeholder",
        "A text that stands for a value that the source did not send: the column is not written.",
        parse_as.text,
        UNAVAILABLE_VALUE,
    ),
    ConnectorOption(
        "errors.tolerance",
        "none: a record that cannot be decoded, transformed or written stops the query; all: the record is left out.",
        parse_as.one_of(ErrorsTolerance),
        ErrorsTolerance.NONE,
    ),
    ConnectorOption("errors.log.enable", "true: also log each record that is left out.", parse_as.boolean, False),
    ConnectorOption(
        "errors.log.include.messages",
        "true: the log has the topic, partition and offset, too.",
        parse_as.boolean,
        False,
    ),
    ConnectorOption(
        "errors.deadletterqueue.topic.name",
        "The topic for records that are left out; needs kafka.bootstrap.servers.",
        parse_as.name,
    ),
    ConnectorOption(
        "errors.deadletterqueue.topic.replication.factor",
        "The replication factor of the dead-letter topic if it has to be created (-1: the default of the brokers).",
        parse_as.replication_factor,
        -1,
    ),
    ConnectorOption(
        "errors.deadletterqueue.context.headers.enable",
        "false: dead letters have no headers that say what happened.",
        parse_as.boolean,
        True,
    ),
    ConnectorOption("stagingLocation", "A directory that the driver and all workers can write to.", parse_as.name),
)
"""The options of every sink."""

ROW_PREFIXES: Final = (
    "key.converter", "value.converter", "header.converter", "transforms", "predicates", "kafka.",
)  # fmt: skip
"""Options whose names begin so belong to the converters, the transforms and the client of the dead letters."""
_CONVERTING: Final = ("key.converter", "value.converter", "transforms")


class RowOptions(Struct, frozen=True):
    """What the rows of a DataFrame are, and how they become rows of tables.

    `config` has the options of converters and transforms. `fields` is None if all are written.
    """

    input: InputKind
    table_format: str
    insert_mode: InsertMode = InsertMode.INSERT
    key_mode: PrimaryKeyMode = PrimaryKeyMode.NONE
    key_fields: tuple[str, ...] = ()
    delete_enabled: bool = False
    fields: tuple[str, ...] | None = None
    unavailable: str = UNAVAILABLE_VALUE
    tolerance: ErrorsTolerance = ErrorsTolerance.NONE
    log_errors: bool = False
    log_places: bool = False
    dead_letters: DeadLetterOptions | None = None
    client: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str | None = None

    __repr__ = repr_without("client", "config")

    @property
    def changes_keys(self) -> bool:
        """Whether several rows of one key in a batch depend on their order."""
        return self.insert_mode is not InsertMode.INSERT or self.delete_enabled


def parse_row_options(given: ConnectorOptions, texts: Mapping[str, str], *, keyed: bool = True) -> RowOptions:
    """The shared options of a sink. `texts` are the options as they were given. Raises OptionError.

    A sink that is not `keyed`, such as that of a web service, writes records as they are: it has no modes.
    """
    lowered = {name.lower(): text for name, text in texts.items()}
    kind = given.get("input")
    if kind is None:
        converting = any(name.startswith(_CONVERTING) for name in lowered)
        kind = InputKind.RECORDS if converting else InputKind.COLUMNS
    options = RowOptions(
        input=kind,
        table_format=_table_format(given, kind) if keyed else "${topic}",
        insert_mode=given.get("insert.mode"),
        key_mode=_key_mode(given, kind),
        key_fields=given.get("pk.fields"),
        delete_enabled=given.get("delete.enabled"),
        fields=given.get("fields.include") or given.get("fields.whitelist"),
        unavailable=given.get("unavailable.value.placeholder"),
        tolerance=given.get("errors.tolerance"),
        log_errors=given.get("errors.log.enable"),
        log_places=given.get("errors.log.include.messages"),
        dead_letters=_dead_letters(given),
        client=_client(given),
        config=given.under("key.converter", "value.converter", "header.converter", "transforms", "predicates"),
        checkpoint=lowered.get("checkpointlocation"),
    )
    if keyed:
        _check_modes(options)
    return options


def _table_format(given: ConnectorOptions, kind: InputKind) -> str:
    named = [given.get(name) for name in ("table.name.format", "dbtable") if name in given]
    if len(set(named)) > 1:
        raise OptionError("table.name.format and dbtable name different tables: give one of them")
    if kind is InputKind.RECORDS:
        return str(named[0]) if named else "${topic}"
    if not named:
        raise OptionError("dbtable (or table.name.format) must be given: the table to write to")
    if "${topic" in named[0]:
        raise OptionError(
            f"the table {named[0]} has ${{topic}}, and the rows are no records: name one table, or set input=records"
        )
    return str(named[0])


def _key_mode(given: ConnectorOptions, kind: InputKind) -> PrimaryKeyMode:
    mode = given.get("pk.mode")
    if mode is not None:
        return PrimaryKeyMode(mode)
    if kind is InputKind.COLUMNS and given.get("pk.fields"):
        return PrimaryKeyMode.RECORD_VALUE
    return PrimaryKeyMode.NONE


def _check_modes(options: RowOptions) -> None:
    mode = options.key_mode
    if options.input is InputKind.COLUMNS:
        if mode in (PrimaryKeyMode.KAFKA, PrimaryKeyMode.RECORD_KEY):
            raise OptionError(
                f"pk.mode={mode.value} is for input=records; for columns set pk.fields to the names of the key columns"
            )
        if mode is PrimaryKeyMode.RECORD_VALUE and not options.key_fields:
            raise OptionError("pk.fields must be given: the names of the key columns, separated by commas")
    if mode is PrimaryKeyMode.NONE and options.key_fields:
        raise OptionError("pk.fields has no effect with pk.mode=none: set pk.mode, or leave pk.fields out")
    if mode is PrimaryKeyMode.KAFKA and len(options.key_fields) not in (0, 3):
        raise OptionError("pk.fields must name three columns for pk.mode=kafka: topic, partition and offset")
    if mode is PrimaryKeyMode.NONE and options.insert_mode is not InsertMode.INSERT:
        raise OptionError(
            f"insert.mode={options.insert_mode.value} needs a key: set pk.mode and pk.fields, or insert.mode=insert"
        )
    if options.delete_enabled:
        allowed = PrimaryKeyMode.RECORD_KEY if options.input is InputKind.RECORDS else PrimaryKeyMode.RECORD_VALUE
        if mode is not allowed:
            what = "pk.mode=record_key" if options.input is InputKind.RECORDS else "pk.fields"
            raise OptionError(f"delete.enabled=true needs {what}: rows are deleted by that key")


def _dead_letters(given: ConnectorOptions) -> DeadLetterOptions | None:
    topic = given.get("errors.deadletterqueue.topic.name")
    if topic is None:
        return None
    if given.get("errors.tolerance") is not ErrorsTolerance.ALL:
        raise OptionError(
            "errors.deadletterqueue.topic.name has no effect with errors.tolerance=none: set errors.tolerance=all"
        )
    return DeadLetterOptions(
        topic,
        given.get("errors.deadletterqueue.context.headers.enable"),
        given.get("errors.deadletterqueue.topic.replication.factor"),
    )


def _client(given: ConnectorOptions) -> dict[str, str]:
    client = {name.removeprefix("kafka."): text for name, text in given.under("kafka.").items()}
    if "errors.deadletterqueue.topic.name" in given and not client.get("bootstrap.servers", "").strip():
        raise OptionError(
            "kafka.bootstrap.servers must be given for errors.deadletterqueue.topic.name: the brokers of that topic"
        )
    try:
        check_names(client, prefix="kafka.")
    except ConfigError as error:
        raise OptionError(str(error)) from None
    return client
