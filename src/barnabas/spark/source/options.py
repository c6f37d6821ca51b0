"""Codec: the options of a reader -> `SourceOptions`.

The fields are used in `source/reader.py`, `source/planner.py` (limits), `source/splits.py` and `source/ranges.py`. The
docstring of `spark/options.py` says how to add an option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.core.reprs import repr_without
from barnabas.spark.errors import OptionError
from barnabas.spark.given_options import GivenOptions
from barnabas.spark.options import (
    MAX_BYTES_PER_PARTITION,
    MAX_TRIGGER_DELAY_MS,
    OPTIONS,
    POLL_TIMEOUT_MS,
    MissingTopics,
    OnDataLoss,
    QueryMode,
    ReadAs,
    ReadFrom,
)
from barnabas.spark.records.formats import RecordFormats
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
class SegmentStore:
    """Where executors find remote segments (KIP-405)."""

    prefix: str
    """What the names of objects, or of files, begin with."""
    bucket: str | None = None
    """None for a directory."""
    endpoint: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a reader."""

    client: Mapping[str, str]
    subscription: SourceSubscription
    starting: Boundary
    ending: Boundary
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    waits_for_topics: bool = False
    """Whether topics that do not exist are read once they exist (`missingTopics`)."""
    limits: Limits = field(default_factory=Limits)
    splitting: Splitting = field(default_factory=Splitting)
    progress_group: str | None = None
    stall_timeout_ms: int = POLL_TIMEOUT_MS
    read_as: ReadAs = ReadAs.LOG
    read_from: ReadFrom = ReadFrom.BROKER
    segments_root: str | None = None
    segments_store: SegmentStore | None = None
    formats: RecordFormats = field(default_factory=RecordFormats)

    __repr__ = repr_without("client")


def parse_source_options(options: Mapping[str, str], mode: QueryMode) -> SourceOptions:
    """Parse the options of a reader. Raises OptionError, which names the option, what is wrong, and a valid value."""
    given = GivenOptions(options)
    given.check_names("batch" if mode is QueryMode.BATCH else "stream")
    client = given.client_settings()
    if mode is QueryMode.STREAM:
        for name in given.only(row.name for row in OPTIONS if row.use == "batch"):
            raise OptionError(f"{name} is not valid in a streaming query, which has no end; read with spark.read")
    return SourceOptions(
        client=client,
        subscription=_subscription(given),
        starting=_starting(given, mode),
        ending=_ending(given),
        columns=_columns(given),
        on_data_loss=given.get("failOnDataLoss"),
        waits_for_topics=given.get("missingTopics") is MissingTopics.WAIT,
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
        segments_store=_segments_store(given),
        formats=parse_formats(given),
    )


def _segments_store(given: GivenOptions) -> SegmentStore | None:
    place: str | None = given.get("segments.store")
    if place is None:
        return None
    if not place.startswith("s3://"):
        return SegmentStore(place.rstrip("/") + "/")
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    return SegmentStore(prefix, bucket, given.get("segments.store.endpoint"), given.get("segments.store.region"))


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that the options select. Needs no broker, so that Spark can be given the schema at once."""
    return _columns(GivenOptions(options))


def subscription_of(options: Mapping[str, str]) -> SourceSubscription:
    """The topics that the options select. Raises OptionError."""
    return _subscription(GivenOptions(options))


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


def _starting(given: GivenOptions, mode: QueryMode) -> Boundary:
    missing = given.get("startingOffsetsByTimestampStrategy")
    as_table = given.get("readAs") is ReadAs.TABLE
    if as_table and mode is QueryMode.BATCH:
        for name in given.only(("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")):
            if given.get(name) != AtEdge(EARLIEST):
                raise OptionError(
                    f"{name} is not valid with readAs=table in a batch read: a table has the newest record of every"
                    " key since the beginning of the log; leave the option out, or read with readAs=log"
                )
    default = EARLIEST if mode is QueryMode.BATCH or as_table else LATEST
    boundary = _boundary(given, "starting", default, missing)
    if mode is QueryMode.BATCH and _has_edge(boundary, LATEST):
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
