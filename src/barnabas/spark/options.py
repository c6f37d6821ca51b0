"""Table: the options of `format("barnabas")`, and the choices that some of them offer.

Names and meanings are those of Spark's own Kafka connector, and names are case-insensitive. The rows marked `ours` are
additions. Options that start with `kafka.` are client settings and are passed to the client without the prefix.

To add an option, add a row to OPTIONS. The row gives the parser of the option's text (`option_parsers.py`) and its
default, and the table in docs/SPARK.md is written from the rows (`pytest tests/golden/pages --rewrite`). Then read the
option with `given.get(name)` (`given_options.py`) into a new field:

    of a reader                            SourceOptions in source/options.py, by parse_source_options
    of a writer                            SinkOptions in sink/options.py, by parse_sink_options
    of formats, registries, bad records    RecordFormats in records/formats.py, by parse_formats in records/options.py
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from barnabas.spark import option_parsers as parse_as
from barnabas.spark.delivery.visibility import VISIBLE_TIMEOUT_MS
from barnabas.spark.records.formats import ErrorsTolerance, RecordFormat, SchemaEvolution
from barnabas.spark.source.positions import MissingTimestamp

MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
MAX_BYTES_PER_PARTITION = 64 * 1024 * 1024
POLL_TIMEOUT_MS = 120_000
DELIVERY_LEDGER = "__barnabas_delivery"
TRANSACTIONAL_ID_PREFIX = "barnabas-spark"
DEFAULT_ISOLATION = "read_committed"
"""The default of `kafka.isolation.level`. Sinks of streams write in transactions, and abort those of task attempts that
fail. A reader that got the records of aborted transactions, too, would have such rows several times.
"""


class MissingTopics(Enum):
    """`missingTopics`: whether a topic that does not exist stops the query, or is read once it exists."""

    FAIL = "fail"
    WAIT = "wait"


class QueryMode(Enum):
    """Whether the query that reads or writes is a batch query or a streaming query."""

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


class Delivery(Enum):
    """`delivery`: whether rows may be written again after a failure."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


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


_REGISTRY_TLS = (
    ("ca.location", "PEM file to trust a registry on https."),
    ("certificate.location", "PEM file with the client's certificate for the registry."),
    ("key.location", "PEM file with its key."),
    ("key.password", "Password of the key."),
    ("truststore.location", "The same as ca.location, by Java's name: a file of truststore.type."),
    ("truststore.type", "PEM, PKCS12 or JKS (PEM)."),
    ("truststore.password", "Password of the trust store."),
    ("truststore.certificates", "The authorities as PEM text."),
    ("keystore.location", "File of keystore.type with the client's certificate and key."),
    ("keystore.type", "PEM, PKCS12 or JKS (PEM)."),
    ("keystore.password", "Password of the key store."),
    ("keystore.key", "The key as PEM text."),
    ("keystore.certificate.chain", "The certificate as PEM text."),
    ("endpoint.identification.algorithm", "Empty: a registry's certificate for any name is accepted."),
)
"""TLS to the registry; the options begin with schema.registry.ssl."""

OPTIONS: tuple[OptionRow, ...] = (
    OptionRow("kafka.bootstrap.servers", "read,write", "Brokers to connect to first: host:port,host:port. Required."),
    OptionRow("subscribe", "read", "Topics to read, separated by commas.", parse_as.topics),
    OptionRow("subscribePattern", "read", "Regular expression that matches whole topic names.", parse_as.topic_pattern),
    OptionRow("assign", "read", 'Partitions to read: {"topicA": [0, 1]}.', parse_as.assignment),
    OptionRow(
        "missingTopics",
        "read",
        "fail; wait: a topic or partition that does not exist yet is read from its beginning once it exists.",
        parse_as.one_of(MissingTopics),
        MissingTopics.FAIL,
        ours=True,
    ),
    OptionRow(
        "kafka.isolation.level",
        "read",
        "read_committed; read_uncommitted: also what is in transactions that are open or aborted (Kafka's default).",
        default=DEFAULT_ISOLATION,
    ),
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
        "segments.store",
        "read",
        "Where executors see the object store of tiered storage: a directory, or s3://BUCKET/KEY-PREFIX.",
        parse_as.segments_store,
        ours=True,
    ),
    OptionRow("segments.store.endpoint", "read", "The URL of an S3 server that is not AWS.", parse_as.name, ours=True),
    OptionRow("segments.store.region", "read", "The region of the bucket.", parse_as.name, ours=True),
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
        "delivery.visible.timeout.ms",
        "write",
        "How long a commit waits until consumers see its rows (30000); 0: it does not wait. Micro-batches with"
        " delivery=at-least-once wait only if it is given.",
        parse_as.milliseconds,
        VISIBLE_TIMEOUT_MS,
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
        "kafka.transaction.two.phase.commit.enable",
        "write",
        "Transactions without a time-out: true; false; else if the brokers offer them (see Two-phase commit).",
        parse_as.boolean,
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
        "basic.auth.credentials.source",
        "read,write",
        "USER_INFO; URL: user and password are in it; SASL_INHERIT: those of the Kafka client.",
        ours=True,
    ),
    *(OptionRow(f"schema.registry.ssl.{name}", "read,write", doc, ours=True) for name, doc in _REGISTRY_TLS),
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
