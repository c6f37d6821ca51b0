"""Table: the options of `format("barnabas")`, and the values they are parsed into.

Names and meanings are those of Spark's own Kafka connector, case-insensitive; the rows marked ours add to it. Options
starting with `kafka.` are client settings and are handed on, without the prefix, to the client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import OptionError
from barnabas.spark.positions import (
    EARLIEST,
    LATEST,
    AtEdge,
    AtOffsets,
    AtTimestamps,
    Boundary,
    MissingTimestamp,
    flatten,
    parse_assignment,
)
from barnabas.spark.schema import DEFAULT_COLUMNS, check_columns

T = TypeVar("T")


class Mode(Enum):
    """How the source is read."""

    BATCH = "batch"
    STREAM = "streaming"


class OnDataLoss(Enum):
    """`failOnDataLoss`: stop the query, go on, or go on and count what is missing in the query's own offsets."""

    FAIL = "true"
    SKIP = "false"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one micro-batch may take, and how long it may wait for more."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Splitting:
    """How a partition's offsets are spread over tasks."""

    min_tasks: int | None = None
    max_records: int | None = None
    max_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Everything a reader needs to know."""

    client: Mapping[str, str]
    subscription: Subscription
    starting: Boundary
    ending: Boundary
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    limits: Limits = field(default_factory=Limits)
    splitting: Splitting = field(default_factory=Splitting)
    progress_group: str | None = None
    stall_timeout_ms: int = 120_000


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Everything a writer needs to know."""

    client: Mapping[str, str]
    topic: str | None = None
    include_headers: bool = True


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One line of the table below, for the documentation and for "did you mean"."""

    name: str
    use: str  # where it is understood: "read", "stream", "batch", "write" (comma separated)
    meaning: str
    ours: bool = False


OPTIONS: tuple[OptionRow, ...] = (
    OptionRow("kafka.bootstrap.servers", "read,write", "Brokers to begin with: host:port,host:port. Required."),
    OptionRow("subscribe", "read", "Topics to read, separated by commas."),
    OptionRow("subscribePattern", "read", "Regular expression; every topic it matches in full is read."),
    OptionRow("assign", "read", 'Partitions to read: {"topicA": [0, 1]}.'),
    OptionRow("startingOffsets", "read", "earliest, latest or JSON per partition; streams begin at latest."),
    OptionRow("startingTimestamp", "read", "Begin at the first record not older than this (ms since 1970)."),
    OptionRow("startingOffsetsByTimestamp", "read", "The same, as JSON per partition."),
    OptionRow("startingOffsetsByTimestampStrategy", "read", "error or latest: when no record is that young."),
    OptionRow("endingOffsets", "batch", "latest or JSON per partition."),
    OptionRow("endingTimestamp", "batch", "Stop before the first record not older than this (ms since 1970)."),
    OptionRow("endingOffsetsByTimestamp", "batch", "The same, as JSON per partition."),
    OptionRow("failOnDataLoss", "read", "true: stop; false: go on; report: go on and count it in the offsets."),
    OptionRow("maxOffsetsPerTrigger", "stream", "At most so many offsets in one micro-batch."),
    OptionRow("maxBytesPerTrigger", "stream", "At most about so many bytes of the log in one micro-batch.", True),
    OptionRow("minOffsetsPerTrigger", "stream", "Wait until so many offsets have arrived."),
    OptionRow("maxTriggerDelay", "stream", "But wait no longer than this (15m)."),
    OptionRow("minPartitions", "read", "At least so many tasks, by splitting partitions."),
    OptionRow("maxRecordsPerPartition", "read", "At most so many offsets in one task."),
    OptionRow("maxBytesPerPartition", "read", "At most about so many bytes of the log in one task (64m).", True),
    OptionRow("includeHeaders", "read,write", "Read the column headers (false); write it (true)."),
    OptionRow("includeKey", "read", "false: do not read the column key.", True),
    OptionRow("includeValue", "read", "false: do not read the column value.", True),
    OptionRow("columns", "read", "Exactly these columns, separated by commas; reads less than select().", True),
    OptionRow("groupId", "stream", "Consumer group whose committed offsets follow the query (also group.id).", True),
    OptionRow("group.id", "stream", "The same as groupId.", True),
    OptionRow("groupIdPrefix", "read", "Accepted: this source reads without joining a group."),
    OptionRow("kafkaConsumer.pollTimeoutMs", "read", "How long a task waits for records that must be there."),
    OptionRow("fetchOffset.numRetries", "read", "Accepted: the client retries by its own settings."),
    OptionRow("fetchOffset.retryIntervalMs", "read", "Accepted: the client retries by its own settings."),
    OptionRow("topic", "write", "Topic for rows without a topic of their own; overrides the column."),
)

_KNOWN = {row.name.lower(): row for row in OPTIONS}

_REFUSED: Mapping[str, str] = {
    "kafka.auto.offset.reset": "use startingOffsets; a query never resets its position by itself",
    "kafka.key.deserializer": "keys are always bytes; decode them with DataFrame expressions",
    "kafka.value.deserializer": "values are always bytes; decode them with DataFrame expressions",
    "kafka.key.serializer": "keys are strings or bytes; encode them with DataFrame expressions",
    "kafka.value.serializer": "values are strings or bytes; encode them with DataFrame expressions",
    "kafka.enable.auto.commit": "the position lives in Spark's checkpoint; use groupId to make it visible as a group",
    "kafka.interceptor.classes": "the source works on whole columns and calls no interceptor",
}

_EDGES = {"earliest": EARLIEST, "latest": LATEST}


def parse_source_options(options: Mapping[str, str], mode: Mode) -> SourceOptions:
    """Raises OptionError, which names the option, says what is wrong and what would be right."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse(given, mode)
    return SourceOptions(
        client=_client_settings(given),
        subscription=_subscription(given),
        starting=_starting(given, mode),
        ending=_ending(given),
        columns=columns_of(given),
        on_data_loss=_choice(given, "failOnDataLoss", OnDataLoss, OnDataLoss.FAIL),
        limits=_limits(given),
        splitting=Splitting(
            min_tasks=_get(given, "minPartitions", _positive),
            max_records=_get(given, "maxRecordsPerPartition", _positive),
            max_bytes=_get(given, "maxBytesPerPartition", _size) or Splitting().max_bytes,
        ),
        progress_group=_progress_group(given),
        stall_timeout_ms=_get(given, "kafkaConsumer.pollTimeoutMs", _positive) or 120_000,
    )


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Raises OptionError. Options that belong to Spark itself (path, checkpointLocation, …) are left alone."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse_client_settings(given)
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("topic is empty; name the topic to write to, or leave the option out and give a topic column")
    return SinkOptions(
        client=_client_settings(given),
        topic=topic,
        include_headers=_get(given, "includeHeaders", _boolean) is not False,
    )


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns the options ask for; needs no broker, so Spark can be given the schema at once."""
    given = {name.lower(): value for name, value in options.items()}
    include_headers = _get(given, "includeHeaders", _boolean)
    dropped = {name for name in ("key", "value") if _get(given, f"include{name.capitalize()}", _boolean) is False}
    listed = given.get("columns")
    if listed is not None:
        columns = check_columns(tuple(name.strip() for name in listed.split(",") if name.strip()))
        if dropped & set(columns):
            raise OptionError(f"columns={listed} asks for what include{min(dropped).capitalize()}=false leaves out")
        return columns
    return tuple(name for name in (*DEFAULT_COLUMNS, *(("headers",) if include_headers else ())) if name not in dropped)


def _refuse(given: Mapping[str, str], mode: Mode) -> None:
    _refuse_client_settings(given)
    if mode is Mode.STREAM:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name.lower() in given:
                raise OptionError(f"{name} is not valid in a streaming query, which has no end; read with spark.read")


def _refuse_client_settings(given: Mapping[str, str]) -> None:
    for name, reason in _REFUSED.items():
        if name in given:
            raise OptionError(f"{name} is not supported: {reason}")


def _client_settings(given: Mapping[str, str]) -> dict[str, str]:
    client = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    if not client.get("bootstrap.servers", "").strip():
        raise OptionError("kafka.bootstrap.servers must be given: host:port, or several separated by commas")
    return client


def _subscription(given: Mapping[str, str]) -> Subscription:
    named = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(named) != 1:
        raise OptionError(
            "exactly one of subscribe, subscribePattern and assign must be given, "
            + (f"got {' and '.join(named)}" if named else "got none")
        )
    text = given[named[0].lower()]
    if named[0] == "assign":
        return Subscription(assigned=parse_assignment(text))
    if named[0] == "subscribePattern":
        if not text.strip():
            raise OptionError("subscribePattern is empty; give a regular expression such as orders-.*")
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern {text!r} is not a regular expression: {error}") from None
        return Subscription(pattern=text)
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise OptionError("subscribe names no topic; give one, or several separated by commas")
    return Subscription(topics=topics)


def _starting(given: Mapping[str, str], mode: Mode) -> Boundary:
    missing = _choice(given, "startingOffsetsByTimestampStrategy", MissingTimestamp, MissingTimestamp.ERROR)
    default = EARLIEST if mode is Mode.BATCH else LATEST
    boundary = _boundary(given, "starting", default, missing)
    if mode is Mode.BATCH:
        at_latest = (isinstance(boundary, AtEdge) and boundary.offset == LATEST) or (
            isinstance(boundary, AtOffsets) and LATEST in boundary.offsets.values()
        )
        if at_latest:
            raise OptionError("startingOffsets cannot be latest (-1) in a batch read: it would read nothing")
    return boundary


def _ending(given: Mapping[str, str]) -> Boundary:
    boundary = _boundary(given, "ending", LATEST, MissingTimestamp.LATEST)
    at_earliest = (isinstance(boundary, AtEdge) and boundary.offset == EARLIEST) or (
        isinstance(boundary, AtOffsets) and EARLIEST in boundary.offsets.values()
    )
    if at_earliest:
        raise OptionError("endingOffsets cannot be earliest (-2): it would read nothing")
    return boundary


def _boundary(given: Mapping[str, str], side: str, default: int, missing: MissingTimestamp) -> Boundary:
    """`…Timestamp` goes before `…OffsetsByTimestamp`, and that before `…Offsets`, as in Spark's connector."""
    everywhere = _get(given, f"{side}Timestamp", _not_negative)
    if everywhere is not None:
        return AtTimestamps(everywhere=everywhere, missing=missing)
    by_timestamp = given.get(f"{side}OffsetsByTimestamp".lower())
    if by_timestamp is not None:
        timestamps = _per_partition(by_timestamp, f"{side}OffsetsByTimestamp")
        if any(timestamp < 0 for timestamp in timestamps.values()):
            raise OptionError(f"{side}OffsetsByTimestamp holds a negative timestamp: {by_timestamp}")
        return AtTimestamps(timestamps=timestamps, missing=missing)
    text = given.get(f"{side}Offsets".lower())
    if text is None:
        return AtEdge(default)
    edge = _EDGES.get(text.strip().lower())
    if edge is not None:
        return AtEdge(edge)
    offsets = _per_partition(text, f"{side}Offsets")
    if any(offset < EARLIEST for offset in offsets.values()):
        raise OptionError(f"{side}Offsets holds an offset below -2: {text}")
    return AtOffsets(offsets)


def _per_partition(text: str, name: str) -> dict[TopicPartition, int]:
    try:
        document = json.loads(text)
    except ValueError:
        words = "" if "imestamp" in name else "earliest, latest or "
        raise OptionError(f'{name} must be {words}JSON such as {{"topicA": {{"0": 23}}}}, got {text!r}') from None
    offsets = flatten(document, name)
    if not offsets:
        raise OptionError(f"{name} names no partition: {text}")
    return offsets


def _limits(given: Mapping[str, str]) -> Limits:
    limits = Limits(
        max_offsets=_get(given, "maxOffsetsPerTrigger", _positive),
        max_bytes=_get(given, "maxBytesPerTrigger", _size),
        min_offsets=_get(given, "minOffsetsPerTrigger", _positive),
    )
    delay = _get(given, "maxTriggerDelay", _duration_ms)
    if limits.min_offsets is not None and limits.max_offsets is not None and limits.min_offsets > limits.max_offsets:
        raise OptionError(
            f"minOffsetsPerTrigger ({limits.min_offsets}) must not exceed maxOffsetsPerTrigger ({limits.max_offsets})"
        )
    return limits if delay is None else Limits(limits.max_offsets, limits.max_bytes, limits.min_offsets, delay)


def _progress_group(given: Mapping[str, str]) -> str | None:
    names = {given[name].strip() for name in ("groupid", "group.id") if name in given}
    if len(names) > 1:
        raise OptionError("groupId and group.id are two names of one option; give one of them")
    group = names.pop() if names else None
    if group == "":
        raise OptionError("groupId is empty; name a consumer group, or leave the option out")
    return group


def _get(given: Mapping[str, str], name: str, parse: Callable[[str, str], T]) -> T | None:
    text = given.get(name.lower())
    return None if text is None else parse(name, text.strip())


def _choice(given: Mapping[str, str], name: str, choices: type[Any], default: T) -> T:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        chosen: T = choices(text.strip().lower())
    except ValueError:
        raise OptionError(f"{name} must be one of {', '.join(c.value for c in choices)}, got {text!r}") from None
    return chosen


def _positive(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) == 0:
        raise OptionError(f"{name} must be a whole number above 0, got {text!r}")
    return int(text)


def _not_negative(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text):
        raise OptionError(f"{name} must be milliseconds since 1970, got {text!r}")
    return int(text)


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, got {text!r}")
    return text.lower() == "true"


_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_BYTES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


def _duration_ms(name: str, text: str) -> int:
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.lower())
    if match is None or match[2] not in _UNITS_MS:
        raise OptionError(f"{name} must be a time such as 500ms, 30s or 15m, got {text!r}")
    return int(match[1]) * _UNITS_MS[match[2]]


def _size(name: str, text: str) -> int:
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.lower())
    if match is None or match[2] not in _UNITS_BYTES or int(match[1]) == 0:
        raise OptionError(f"{name} must be a size above 0 such as 1048576, 512k or 64m, got {text!r}")
    return int(match[1]) * _UNITS_BYTES[match[2]]
