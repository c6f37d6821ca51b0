"""Table: the options of `format("barnabas")`, and the values into which they are parsed.

Names and meanings are those of Spark's own Kafka connector, and names are case-insensitive. The rows marked `ours` are
additions. Options that start with `kafka.` are client settings and are passed to the client without the prefix.

To add an option: add a row to OPTIONS and a field to `SourceOptions` or `SinkOptions`, and read the option with
`given.get(name)` in `parse_source_options` or `parse_sink_options`. The row gives the parser of its text and its
default, and the table in docs/SPARK.md is written from the rows (tests/golden/pages). The fields are used in
`source/reader.py`, `source/planner.py` (limits), `source/splits.py` and `source/ranges.py`.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from barnabas.client.config import check_names
from barnabas.core.config import ConfigError
from barnabas.spark import option_parsers as parse_as
from barnabas.spark.errors import OptionError
from barnabas.spark.records.formats import ErrorsTolerance, RecordFormat, RecordFormats, SchemaEvolution
from barnabas.spark.records.options import parse_formats
from barnabas.spark.schema import CHANGE_TYPE, DEFAULT_COLUMNS, check_columns
from barnabas.spark.source.positions import (
    EARLIEST,
    LATEST,
    AtEdge,
    AtOffsets,
    AtTimestamps,
    Boundary,
    MissingTimestamp,
    SourceSubscription,
)

log = logging.getLogger("barnabas.spark")

MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
MAX_BYTES_PER_PARTITION = 64 * 1024 * 1024
POLL_TIMEOUT_MS = 120_000
DELIVERY_LEDGER = "__barnabas_delivery"
TRANSACTIONAL_ID_PREFIX = "barnabas-spark"
TWO_PHASE_SETTING = "transaction.two.phase.commit.enable"


class ReadMode(Enum):
    """Whether the source is read by a batch query or by a streaming query."""

    BATCH = "batch"
    STREAM = "streaming"


class OnDataLoss(Enum):
    """`failOnDataLoss`: stop the query, continue, or continue and count the lost records in the query's offsets."""

    FAIL = "true"
    SKIP = "false"
    REPORT = "report"


class ReadAs(Enum):
    """`readAs`: every record of the log, or the newest record of each key, as a table keyed by the record keys."""

    LOG = "log"
    TABLE = "table"


class ReadFrom(Enum):
    """`readFrom`: all records from the brokers, or closed segments from the brokers' data directories."""

    BROKER = "broker"
    SEGMENTS = "segments"


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum and the minimum that one micro-batch reads, and how long it may be delayed to reach the minimum."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = MAX_TRIGGER_DELAY_MS


@dataclass(frozen=True, slots=True)
class Splitting:
    """How a partition's offsets are divided among tasks."""

    min_tasks: int | None = None
    max_records: int | None = None
    max_bytes: int = MAX_BYTES_PER_PARTITION


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a reader."""

    client: Mapping[str, str]
    subscription: SourceSubscription
    starting: Boundary
    ending: Boundary
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    limits: Limits = field(default_factory=Limits)
    splitting: Splitting = field(default_factory=Splitting)
    progress_group: str | None = None
    stall_timeout_ms: int = POLL_TIMEOUT_MS
    read_as: ReadAs = ReadAs.LOG
    read_from: ReadFrom = ReadFrom.BROKER
    segments_root: str | None = None
    formats: RecordFormats = field(default_factory=RecordFormats)


class Delivery(Enum):
    """`delivery`: whether rows may be written again after a failure."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """The options of exactly-once delivery. `two_phase` is None if it is used wherever the brokers offer it."""

    ledger: str = DELIVERY_LEDGER
    id_prefix: str = TRANSACTIONAL_ID_PREFIX
    two_phase: bool | None = None
    accept_loss: bool = False
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of a writer. `exactly_once` is None for at-least-once delivery."""

    client: Mapping[str, str]
    topic: str | None = None
    include_headers: bool = True
    exactly_once: ExactlyOnce | None = None
    formats: RecordFormats = field(default_factory=RecordFormats)


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One option: the parser of its text, its default value, and its line in docs/SPARK.md.

    `use` says where the option applies: read (batch and streaming queries), stream, batch, write; several are separated
    by commas. A streaming query rejects an option whose use is batch.
    """

    name: str
    use: str
    meaning: str
    parse: parse_as.Parse = parse_as.text
    default: Any = None
    ours: bool = False


OPTIONS: tuple[OptionRow, ...] = (
    OptionRow("kafka.bootstrap.servers", "read,write", "Brokers to connect to first: host:port,host:port. Required."),
    OptionRow("subscribe", "read", "Topics to read, separated by commas.", parse_as.topics),
    OptionRow("subscribePattern", "read", "Regular expression that matches whole topic names.", parse_as.topic_pattern),
    OptionRow("assign", "read", 'Partitions to read: {"topicA": [0, 1]}.', parse_as.assignment),
    OptionRow(
        "readAs",
        "read",
        "log: every record; table: the newest record of each key (see Tables).",
        parse_as.one_of(ReadAs),
        ReadAs.LOG,
        ours=True,
    ),
    OptionRow(
        "readFrom",
        "read",
        "broker; segments: closed segments straight from the brokers' data directories (see Reading segments).",
        parse_as.one_of(ReadFrom),
        ReadFrom.BROKER,
        ours=True,
    ),
    OptionRow(
        "segments.root",
        "read",
        "Where executors see the data directories, such as /mnt/{broker}{path}; without it, at the brokers' own paths.",
        parse_as.segments_root,
        ours=True,
    ),
    OptionRow(
        "startingOffsets", "read", "earliest, latest or JSON per partition; streams begin at latest.", parse_as.offsets
    ),
    OptionRow(
        "startingTimestamp",
        "read",
        "Begin at the first record that is not older (ms since 1970).",
        parse_as.timestamp_ms,
    ),
    OptionRow(
        "startingOffsetsByTimestamp", "read", "As startingTimestamp, as JSON per partition.", parse_as.timestamps
    ),
    OptionRow(
        "startingOffsetsByTimestampStrategy",
        "read",
        "error or latest: if all records are older than the timestamp.",
        parse_as.one_of(MissingTimestamp),
        MissingTimestamp.ERROR,
    ),
    OptionRow("endingOffsets", "batch", "latest or JSON per partition.", parse_as.offsets),
    OptionRow(
        "endingTimestamp",
        "batch",
        "Stop before the first record that is not older (ms since 1970).",
        parse_as.timestamp_ms,
    ),
    OptionRow("endingOffsetsByTimestamp", "batch", "As endingTimestamp, as JSON per partition.", parse_as.timestamps),
    OptionRow(
        "failOnDataLoss",
        "read,write",
        "true: stop; false: continue; report: continue and count lost records in the query's offsets.",
        parse_as.one_of(OnDataLoss),
        OnDataLoss.FAIL,
    ),
    OptionRow("maxOffsetsPerTrigger", "stream", "The maximum number of offsets in one micro-batch.", parse_as.positive),
    OptionRow(
        "maxBytesPerTrigger",
        "stream",
        "The approximate maximum of log bytes in one micro-batch.",
        parse_as.size,
        ours=True,
    ),
    OptionRow("minOffsetsPerTrigger", "stream", "Wait until this many offsets have arrived.", parse_as.positive),
    OptionRow(
        "maxTriggerDelay",
        "stream",
        "The longest wait for minOffsetsPerTrigger (15m).",
        parse_as.duration_ms,
        MAX_TRIGGER_DELAY_MS,
    ),
    OptionRow(
        "minPartitions", "read", "The minimum number of tasks; partitions are split to reach it.", parse_as.positive
    ),
    OptionRow("maxRecordsPerPartition", "read", "The maximum number of offsets in one task.", parse_as.positive),
    OptionRow(
        "maxBytesPerPartition",
        "read",
        "The approximate maximum of log bytes in one task (64m).",
        parse_as.size,
        MAX_BYTES_PER_PARTITION,
        ours=True,
    ),
    OptionRow("includeHeaders", "read,write", "Read the column headers (false); write it (true).", parse_as.boolean),
    OptionRow("includeKey", "read", "false: do not read the column key.", parse_as.boolean, ours=True),
    OptionRow("includeValue", "read", "false: do not read the column value.", parse_as.boolean, ours=True),
    OptionRow(
        "columns",
        "read",
        "The columns to read, separated by commas; transfers less than select().",
        parse_as.name_list,
        ours=True,
    ),
    OptionRow(
        "groupId",
        "stream",
        "Consumer group whose committed offsets follow the query (also group.id).",
        parse_as.group_id,
        ours=True,
    ),
    OptionRow("group.id", "stream", "The same as groupId.", parse_as.group_id, ours=True),
    OptionRow("groupIdPrefix", "read", "Accepted and ignored: this source reads without joining a group."),
    OptionRow(
        "kafkaConsumer.pollTimeoutMs",
        "read",
        "How long a task waits for records that must exist.",
        parse_as.positive,
        POLL_TIMEOUT_MS,
    ),
    OptionRow("fetchOffset.numRetries", "read", "Accepted and ignored: the client has its own retry settings."),
    OptionRow("fetchOffset.retryIntervalMs", "read", "Accepted and ignored: the client has its own retry settings."),
    OptionRow("topic", "write", "Topic for all rows; overrides the column topic.", parse_as.sink_topic),
    OptionRow(
        "delivery",
        "write",
        "exactly-once (the default of streams) or at-least-once (the default of `df.write`).",
        parse_as.one_of(Delivery),
        ours=True,
    ),
    OptionRow(
        "deliveryLedger",
        "write",
        "The compacted topic that records which micro-batches were committed.",
        parse_as.name,
        DELIVERY_LEDGER,
        ours=True,
    ),
    OptionRow(
        "transactionalIdPrefix",
        "write",
        "What the transactional ids of exactly-once delivery begin with.",
        parse_as.name,
        TRANSACTIONAL_ID_PREFIX,
        ours=True,
    ),
    OptionRow(
        "valueFormat",
        "read,write",
        "Format of the values: raw, string, json, avro, json-schema, protobuf (see Typed records).",
        parse_as.one_of(RecordFormat),
        RecordFormat.RAW,
        ours=True,
    ),
    OptionRow(
        "valueSchema", "read,write", "A schema as text, in the language of valueFormat; json: a Spark type.", ours=True
    ),
    OptionRow("valueSubject", "read,write", "Subject in the registry (<topic>-value).", ours=True),
    OptionRow(
        "valueSchemaVersion",
        "read",
        "Version of the subject to read with (latest).",
        parse_as.schema_version,
        ours=True,
    ),
    OptionRow("valueMessage", "read,write", "Protobuf message (the first of the schema).", ours=True),
    OptionRow(
        "keyFormat",
        "read,write",
        "Format of the keys: raw, string, json, avro, json-schema, protobuf (see Typed records).",
        parse_as.one_of(RecordFormat),
        RecordFormat.RAW,
        ours=True,
    ),
    OptionRow(
        "keySchema", "read,write", "A schema as text, in the language of keyFormat; json: a Spark type.", ours=True
    ),
    OptionRow("keySubject", "read,write", "Subject in the registry (<topic>-key).", ours=True),
    OptionRow(
        "keySchemaVersion", "read", "Version of the subject to read with (latest).", parse_as.schema_version, ours=True
    ),
    OptionRow("keyMessage", "read,write", "Protobuf message (the first of the schema).", ours=True),
    OptionRow("schema.registry.url", "read,write", "The schema registry, ours or Confluent's.", ours=True),
    OptionRow("schema.registry.basic.auth.user.info", "read,write", "user:password for the registry.", ours=True),
    OptionRow(
        "basic.auth.user.info", "read,write", "The same, by the name that Confluent's serializers use.", ours=True
    ),
    OptionRow(
        "basic.auth.credentials.source", "read,write", "USER_INFO, or URL: user and password are in it.", ours=True
    ),
    OptionRow("schema.registry.ssl.ca.location", "read,write", "PEM file to trust a registry on https.", ours=True),
    OptionRow(
        "schema.evolution",
        "read",
        "ignore, restart or fail: a record has another schema than the query reads with.",
        parse_as.one_of(SchemaEvolution),
        SchemaEvolution.IGNORE,
        ours=True,
    ),
    OptionRow(
        "errors.tolerance",
        "read",
        "none: a record that cannot be read stops the query; all: it is left out.",
        parse_as.one_of(ErrorsTolerance),
        ErrorsTolerance.NONE,
        ours=True,
    ),
    OptionRow("errors.deadletterqueue.topic.name", "read", "Topic for records that cannot be read.", ours=True),
    OptionRow(
        "errors.deadletterqueue.context.headers.enable",
        "read",
        "Say in headers where a bad record is and why it is bad (true).",
        parse_as.boolean,
        ours=True,
    ),
    OptionRow(
        "errors.deadletterqueue.topic.replication.factor",
        "read",
        "Of the dead-letter topic, if it is created (the brokers' default).",
        parse_as.replication_factor,
        ours=True,
    ),
    OptionRow("auto.register.schemas", "write", "Register the schema of the rows (true).", parse_as.boolean, ours=True),
    OptionRow(
        "use.latest.version",
        "write",
        "Write with the subject's latest version; without this option, if the subject exists.",
        parse_as.boolean,
        ours=True,
    ),
    OptionRow("normalize.schemas", "write", "Register schemas in normal form (false).", parse_as.boolean, ours=True),
)

_ROWS = {row.name: row for row in OPTIONS}

_REFUSED: Mapping[str, str] = {
    "kafka.auto.offset.reset": "use startingOffsets; a query never resets its position by itself",
    "kafka.key.deserializer": "keys are always bytes; decode them with DataFrame expressions",
    "kafka.value.deserializer": "values are always bytes; decode them with DataFrame expressions",
    "kafka.key.serializer": "keys are strings or bytes; encode them with DataFrame expressions",
    "kafka.value.serializer": "values are strings or bytes; encode them with DataFrame expressions",
    "kafka.enable.auto.commit": "the position is in Spark's checkpoint; use groupId to commit it for a group as well",
    "kafka.interceptor.classes": "the source works on whole columns and calls no interceptor",
    "kafka.transactional.id": "each task attempt needs an id of its own; use transactionalIdPrefix",
}

_OF_SPARK = frozenset(
    {
        "path", "paths", "checkpointlocation", "queryname", "mode", "header", "timezone", "mergeschema",
        "serialization.format", "samplingratio", "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms", "asyncprogresstrackingoverridesinksupportcheck",
        "fastpathenabled", "withwatermark", "outputmode", "owner", "provider", "external", "location", "comment",
        "collation", "is_managed_location", "transient_lastddltime",
    }
)  # fmt: skip
"""Options of Spark itself that it passes to every data source, in lower case; and properties of tables."""
_OF_SPARK_PREFIXES = ("spark.", "__", "option.")


class GivenOptions:
    """The options of one query, parsed by their rows when they are read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._texts = {name.lower(): value for name, value in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def get(self, name: str) -> Any:
        """The value of an option, or its row's default. KeyError if no row has this name, which is a bug."""
        row = _ROWS[name]
        text = self._texts.get(name.lower())
        return row.default if text is None else row.parse(name, text)

    def text(self, name: str) -> str | None:
        """The text of an option that no row has, such as those of Spark."""
        return self._texts.get(name.lower())

    def only(self, names: Iterable[str]) -> list[str]:
        """The names among `names` that the query's options contain."""
        return [name for name in names if name in self]

    def check_names(self, use: str) -> None:
        """Raise OptionError for an option that neither the table, Spark nor a Kafka client has, with the nearest name.
        An option of the table that has no effect in a query of this use (read, stream, batch, write) is logged.
        """
        rows = {row.name.lower(): row for row in OPTIONS}
        for name in self._texts:
            row = rows.get(name)
            if row is not None:
                uses = {"stream": {"read", "stream"}, "batch": {"read", "batch"}, "write": {"write"}}[use]
                if not uses & set(row.use.split(",")):
                    log.warning("the option %s has no effect here: it is for %s", row.name, row.use)
            elif not (name.startswith(("kafka.", *_OF_SPARK_PREFIXES)) or name in _OF_SPARK):
                near = difflib.get_close_matches(name, sorted(rows), n=1)
                hint = f"did you mean {rows[near[0]].name}?" if near else "docs/SPARK.md has a list of all options"
                raise OptionError(f"there is no option {name}: {hint}")

    def client_settings(self) -> dict[str, str]:
        """The options that start with `kafka.`, without the prefix. Raises OptionError for settings that no client has
        or that would have no effect, and if `kafka.bootstrap.servers` is missing.
        """
        for name, reason in _REFUSED.items():
            if name in self:
                raise OptionError(f"{name} is not supported: {reason}")
        client = {n.removeprefix("kafka."): value for n, value in self._texts.items() if n.startswith("kafka.")}
        if not client.get("bootstrap.servers", "").strip():
            raise OptionError("kafka.bootstrap.servers must be given: host:port, or several separated by commas")
        try:
            check_names(client, prefix="kafka.")
        except ConfigError as error:
            raise OptionError(str(error)) from None
        return client


# -- the options of a query --------------------------------------------------------------------------------------------


def parse_source_options(options: Mapping[str, str], mode: ReadMode) -> SourceOptions:
    """Parse the options of a reader. Raises OptionError, which names the option, what is wrong, and a valid value."""
    given = GivenOptions(options)
    given.check_names("batch" if mode is ReadMode.BATCH else "stream")
    client = given.client_settings()
    if mode is ReadMode.STREAM:
        for name in given.only(row.name for row in OPTIONS if row.use == "batch"):
            raise OptionError(f"{name} is not valid in a streaming query, which has no end; read with spark.read")
    return SourceOptions(
        client=client,
        subscription=_subscription(given),
        starting=_starting(given, mode),
        ending=_ending(given),
        columns=_columns(given),
        on_data_loss=given.get("failOnDataLoss"),
        limits=_limits(given),
        splitting=Splitting(
            min_tasks=given.get("minPartitions"),
            max_records=given.get("maxRecordsPerPartition"),
            max_bytes=given.get("maxBytesPerPartition"),
        ),
        progress_group=_progress_group(given),
        stall_timeout_ms=given.get("kafkaConsumer.pollTimeoutMs"),
        read_as=given.get("readAs"),
        read_from=given.get("readFrom"),
        segments_root=given.get("segments.root"),
        formats=parse_formats(given),
    )


def parse_sink_options(options: Mapping[str, str], mode: ReadMode = ReadMode.BATCH) -> SinkOptions:
    """Parse the options of the writer of a batch or streaming query. Raises OptionError. Options of Spark itself (path,
    checkpointLocation, ...) are ignored, but for the checkpoint's place.
    """
    given = GivenOptions(options)
    given.check_names("write")
    client = given.client_settings()
    delivery = given.get("delivery")
    if delivery is None:
        delivery = Delivery.EXACTLY_ONCE if mode is ReadMode.STREAM else Delivery.AT_LEAST_ONCE
    exactly_once = None
    if delivery is Delivery.EXACTLY_ONCE:
        exactly_once = _exactly_once(given, client)
    elif TWO_PHASE_SETTING in client:
        raise OptionError(f"kafka.{TWO_PHASE_SETTING} is for delivery=exactly-once, and delivery is at-least-once")
    return SinkOptions(
        client=client,
        topic=given.get("topic"),
        include_headers=given.get("includeHeaders") is not False,
        formats=parse_formats(given),
        exactly_once=exactly_once,
    )


def _exactly_once(given: GivenOptions, client: dict[str, str]) -> ExactlyOnce:
    """The options of exactly-once delivery; removes from `client` what is not a setting of all producers."""
    two_phase = client.pop(TWO_PHASE_SETTING, None)
    if "transaction.timeout.ms" in client and two_phase is not None and two_phase.strip().lower() == "true":
        raise OptionError(f"kafka.transaction.timeout.ms has no effect with kafka.{TWO_PHASE_SETTING}=true; give one")
    for name, allowed in (("acks", ("all", "-1")), ("enable.idempotence", ("true",))):
        if name in client and client[name].strip().lower() not in allowed:
            raise OptionError(
                f"kafka.{name}={client[name]} is not possible with delivery=exactly-once; leave it out, or set"
                " delivery=at-least-once"
            )
    return ExactlyOnce(
        ledger=given.get("deliveryLedger"),
        id_prefix=given.get("transactionalIdPrefix"),
        two_phase=None if two_phase is None else parse_as.boolean(f"kafka.{TWO_PHASE_SETTING}", two_phase),
        accept_loss=given.get("failOnDataLoss") is not OnDataLoss.FAIL,
        checkpoint=given.text("checkpointLocation"),
    )


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that the options select. Needs no broker, so that Spark can be given the schema at once."""
    return _columns(GivenOptions(options))


def typed_columns_of(options: Mapping[str, str]) -> tuple[RecordFormats, tuple[str, ...]]:
    """The formats of the columns, and the topics that the options name; none for a pattern."""
    given = GivenOptions(options)
    return parse_formats(given), topics_of(_subscription(given))


def topics_of(subscription: SourceSubscription) -> tuple[str, ...]:
    """The topics that a subscription names, sorted; none for a pattern."""
    return tuple(sorted({*subscription.topics, *(tp.topic for tp in subscription.assigned)}))


def _columns(given: GivenOptions) -> tuple[str, ...]:
    include_headers = given.get("includeHeaders")
    dropped = {name for name in ("key", "value") if given.get(f"include{name.capitalize()}") is False}
    listed = given.get("columns")
    as_table = given.get("readAs") is ReadAs.TABLE
    if listed is not None:
        columns = check_columns(listed)
        if CHANGE_TYPE in columns and not as_table:
            raise OptionError(f"the column {CHANGE_TYPE} exists only with readAs=table")
        if dropped & set(columns):
            excluded = f"include{min(dropped).capitalize()}=false"
            raise OptionError(f"columns={','.join(listed)} contains a column that {excluded} excludes")
        return columns
    names = (*DEFAULT_COLUMNS, *(("headers",) if include_headers else ()), *((CHANGE_TYPE,) if as_table else ()))
    return tuple(name for name in names if name not in dropped)


def _subscription(given: GivenOptions) -> SourceSubscription:
    named = given.only(("subscribe", "subscribePattern", "assign"))
    if len(named) != 1:
        raise OptionError(
            "exactly one of subscribe, subscribePattern and assign must be given, "
            + (f"got {' and '.join(named)}" if named else "got none")
        )
    subscription: SourceSubscription = given.get(named[0])
    return subscription


def _starting(given: GivenOptions, mode: ReadMode) -> Boundary:
    missing = given.get("startingOffsetsByTimestampStrategy")
    as_table = given.get("readAs") is ReadAs.TABLE
    if as_table and mode is ReadMode.BATCH:
        for name in given.only(("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")):
            if given.get(name) != AtEdge(EARLIEST):
                raise OptionError(
                    f"{name} is not valid with readAs=table in a batch read: a table has the newest record of every"
                    " key since the beginning of the log; leave the option out, or read with readAs=log"
                )
    default = EARLIEST if mode is ReadMode.BATCH or as_table else LATEST
    boundary = _boundary(given, "starting", default, missing)
    if mode is ReadMode.BATCH and _has_edge(boundary, LATEST):
        raise OptionError("startingOffsets cannot be latest (-1) in a batch read: it would read nothing")
    return boundary


def _ending(given: GivenOptions) -> Boundary:
    boundary = _boundary(given, "ending", LATEST, MissingTimestamp.LATEST)
    if _has_edge(boundary, EARLIEST):
        raise OptionError("endingOffsets cannot be earliest (-2): it would read nothing")
    return boundary


def _has_edge(boundary: Boundary, edge: int) -> bool:
    return (isinstance(boundary, AtEdge) and boundary.offset == edge) or (
        isinstance(boundary, AtOffsets) and edge in boundary.offsets.values()
    )


def _boundary(given: GivenOptions, side: str, default: int, missing: MissingTimestamp) -> Boundary:
    """The position that the options with the prefix `side` ("starting" or "ending") give; `default` (EARLIEST or
    LATEST) if none of them is given. `missing` says what to do with partitions whose records are all older than a
    timestamp.

    `...Timestamp` overrides `...OffsetsByTimestamp`, and that overrides `...Offsets`, as in Spark's connector.
    """
    everywhere = given.get(f"{side}Timestamp")
    if everywhere is not None:
        return AtTimestamps(everywhere=everywhere, missing=missing)
    timestamps = given.get(f"{side}OffsetsByTimestamp")
    if timestamps is not None:
        return AtTimestamps(timestamps=timestamps, missing=missing)
    boundary: Boundary | None = given.get(f"{side}Offsets")
    return AtEdge(default) if boundary is None else boundary


def _limits(given: GivenOptions) -> Limits:
    limits = Limits(
        max_offsets=given.get("maxOffsetsPerTrigger"),
        max_bytes=given.get("maxBytesPerTrigger"),
        min_offsets=given.get("minOffsetsPerTrigger"),
        max_delay_ms=given.get("maxTriggerDelay"),
    )
    if limits.min_offsets is not None and limits.max_offsets is not None and limits.min_offsets > limits.max_offsets:
        raise OptionError(
            f"minOffsetsPerTrigger ({limits.min_offsets}) must not exceed maxOffsetsPerTrigger ({limits.max_offsets})"
        )
    return limits


def _progress_group(given: GivenOptions) -> str | None:
    groups = {given.get(name) for name in given.only(("groupId", "group.id"))}
    if len(groups) > 1:
        raise OptionError("groupId and group.id are two names of one option; give one of them")
    return groups.pop() if groups else None
