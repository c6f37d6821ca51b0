"""Shell: the readers that Spark calls. `planner` and `splits` decide which offsets to read; this module sends the
requests.

The methods of a reader run in different processes:

    driver, planning     BatchReader.partitions(); also creates the reader that is pickled for the workers
    driver, long-lived   StreamReader: all methods but read(); one process per query, for the life of the query
    workers, forked      read(); reused for later tasks, so that `connect` finds open connections

The readers have no `pushFilters`, because by default Spark refuses to read from a source that has it. Ranges of time
and of offsets are options instead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.spark.connection import LogClient, connect, require_partitions
from barnabas.spark.errors import DataLossError
from barnabas.spark.heap import freeze_heap
from barnabas.spark.options import OnDataLoss, QueryMode, ReadAs, ReadFrom
from barnabas.spark.records.dead_letter_topic import prepare_dead_letters
from barnabas.spark.reporting import readable_errors
from barnabas.spark.schema import check_columns, spark_schema
from barnabas.spark.source.options import SourceOptions, columns_of, parse_source_options, topics_of, typed_columns_of
from barnabas.spark.source.planner import (
    LogOffsets,
    Loss,
    PartitionRange,
    StreamPlanner,
    check_losses,
    divergences,
    missing_ends,
    plan_ranges,
    plan_replay,
)
from barnabas.spark.source.positions import EARLIEST, AtEdge, AtOffsets, Position
from barnabas.spark.source.remote_plan import RemoteCopies
from barnabas.spark.source.segment_plan import SegmentDirectory, SegmentSources
from barnabas.spark.source.splits import split_ranges

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.spark.records.inference import Pinned
    from barnabas.spark.records.typed_read import TypedRead

log = logging.getLogger("barnabas.spark")

SPLIT_WORTH_OFFSETS = 10_000
"""For ranges of fewer offsets, the reader does not request the log sizes from the brokers, and does not split the
ranges by size.
"""

_NO_LIMIT = 2**63 - 1


@readable_errors
def schema(options: Mapping[str, str]) -> tuple[str, Pinned]:
    """The columns that the options select, as DDL, and the registered schemas of which typed columns have the type."""
    freeze_heap()
    columns = columns_of(options)
    formats, topics = typed_columns_of(options)
    if not formats.typed:
        return spark_schema(columns), {}
    from barnabas.spark.records.inference import column_types, pin_schemas

    pinned = pin_schemas(formats, columns, topics)
    return spark_schema(columns, column_types(formats, columns, pinned)), pinned


@readable_errors
def batch_reader(options: Mapping[str, str], schema: StructType, pinned: Pinned | None = None) -> BatchReader:
    """Create the reader of a batch query. Raises OptionError."""
    freeze_heap()
    return BatchReader(*_parse(options, QueryMode.BATCH, schema, pinned))


@readable_errors
def stream_reader(options: Mapping[str, str], schema: StructType, pinned: Pinned | None = None) -> StreamReader:
    """Create the reader of a streaming query. Raises OptionError."""
    return StreamReader(*_parse(options, QueryMode.STREAM, schema, pinned))


def _parse(
    options: Mapping[str, str], mode: QueryMode, schema: StructType, pinned: Pinned | None
) -> tuple[SourceOptions, tuple[str, ...], TypedRead | None]:
    parsed, columns = parse_source_options(options, mode), check_columns(tuple(schema.names))
    if not any(part.part in columns for part in parsed.formats.typed):
        return parsed, columns, None
    from pyspark.sql.pandas.types import to_arrow_schema

    from barnabas.spark.records.typed_read import TypedRead

    if pinned is None:  # the schema was given with spark.read.schema(...), so Spark did not call `schema`
        from barnabas.spark.records.inference import pin_schemas

        pinned = pin_schemas(parsed.formats, columns, topics_of(parsed.subscription))
    target = to_arrow_schema(schema, timezone="UTC")
    return parsed, columns, TypedRead(parsed.formats, pinned, target, parsed.client)


class Task(InputPartition):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The range that one Spark task reads, and with readFrom=segments the directory of its partition and its remote
    segments. The driver sends the task, pickled, to a worker.
    """

    def __init__(
        self,
        wanted: PartitionRange,
        directory: SegmentDirectory | None = None,
        remote: RemoteCopies | None = None,
    ) -> None:
        super().__init__(None)
        self.remote = remote
        self.range = wanted
        self.directory = directory


class BatchReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The reader of `spark.read`: a range of each partition, fixed when the query is planned."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...], typed: TypedRead | None = None) -> None:
        self._options = options
        self._columns = columns
        self._typed = typed

    @readable_errors
    def partitions(self) -> list[Task]:
        options = self._options
        client = connect(options.client)
        partitions = require_partitions(client, options.subscription, waits=options.waits_for_topics)
        if not partitions:
            return []
        prepare_dead_letters(client, options.formats, {tp.topic for tp in partitions})
        view = client.log_view(partitions)
        start = client.resolve(options.starting, partitions, view, starting=True)
        end = client.resolve(options.ending, partitions, view, starting=False)
        latest = client.with_open_transactions(view, end).latest  # a task waits until such a transaction has ended
        losses = missing_ends(end, latest)
        ends = {tp: min(end[tp], latest[tp]) for tp in end}
        ranges, aged = plan_ranges(start, ends, view.earliest, view.ids)
        losses += aged
        check_losses(losses, options.on_data_loss)
        _report(losses)
        return _tasks(client, options, ranges)

    @readable_errors
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there is nothing to read, Spark still calls `read` once, with a partition object of its own.
        if isinstance(partition, Task):
            yield from _read(self._options, self._columns, partition, QueryMode.BATCH, self._typed)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # as above
    """The reader of `spark.readStream`.

    Spark does not store a stream's initial offset until the first micro-batch is committed: it asks for the initial
    offset twice, and again after a restart before that commit. With `startingOffsets=latest`, records that arrive
    between these calls would be lost. Therefore the first micro-batch is empty (except with Trigger.Once, or if
    `startingOffsets` is `earliest` or gives all offsets as numbers): `latestOffset` returns the initial offset
    unchanged, so that Spark writes it to the query's offset log. If a restart replays that micro-batch from a newer
    initial offset, its start is beyond its end; such a range is empty, and the position in the offset log remains
    valid. A replay from `earliest` begins later only where retention has deleted records meanwhile, before any
    micro-batch was committed; such records are no loss of the query.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...], typed: TypedRead | None = None) -> None:
        self._options = options
        self._columns = columns
        self._typed = typed
        self._planner = StreamPlanner(options.limits, options.on_data_loss)
        self._initial: dict[str, Any] | None = None
        self._pinned = False
        self._followed: Position | None = None
        self._reported: set[Loss] = set()
        self._has_checked = False
        self._has_planned = False

    # -- positions
    # -------------------------------------------------------------------------------------------------------

    @readable_errors
    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            client = self._client()
            # The planner reads a topic that does not exist yet from its beginning, as every partition that is new.
            waits = self._options.waits_for_topics
            partitions = require_partitions(client, self._options.subscription, waits=waits)
            prepare_dead_letters(client, self._options.formats, {tp.topic for tp in partitions})
            view = client.log_view(partitions)
            offsets = client.resolve(self._options.starting, partitions, view, starting=True)
            self._initial = Position(offsets, ids=view.ids, schemas=self._schemas(), epochs=view.epochs).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        # The planner applies the limits, because it can combine them. The returned limit only has to differ from
        # ReadAllAvailable, which Trigger.Once uses.
        return ReadMaxRows(self._options.limits.max_offsets or _NO_LIMIT)

    @readable_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        position = Position.from_json(start)
        self._follow(position)
        unlimited = isinstance(limit, ReadAllAvailable)
        if self._must_pin(start) and not unlimited:
            self._pinned = True
            return start
        self._check_schemas(position)
        client = self._client()
        view = client.with_open_transactions(self._view(client), position.offsets)
        view = replace(view, diverged=client.diverged(position, view.epochs, view.ids))
        self._has_planned = True
        density = client.bytes_per_offset(view) if self._options.limits.max_bytes is not None else None
        plan = self._planner.plan(
            position, view, now_ms=time.time_ns() // 1_000_000, bytes_per_offset=density, unlimited=unlimited
        )
        self._report_once(plan.losses)
        for topic in plan.adopted:
            log.info("the query knows the topic %s from now on by its id %s", topic, plan.end.ids.get(topic))
        return replace(plan.end, schemas=self._schemas()).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The latest offsets of the log, not reduced by the limits on the size of a batch. Spark's progress report
        shows the query's lag from these offsets. None if they cannot be read.
        """
        try:
            view = self._view(self._client())
            return Position(view.latest, ids=view.ids).to_json()
        except KafkaError:
            return None  # an error in a progress report must not stop the query

    @readable_errors
    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.fix_target(self._view(self._client()).latest)

    # -- ranges
    # ----------------------------------------------------------------------------------------------------------

    @readable_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Task]:
        self._pinned = True  # a first micro-batch is in the offset log now
        client = self._client()
        begin, stop = Position.from_json(start), Position.from_json(end)
        earliest = client.earliest(stop.offsets)
        ids = client.topic_ids({tp.topic for tp in stop.offsets}, fresh=True)
        rewound = client.diverged(begin, stop.epochs, ids)  # failOnDataLoss is false, else there were no such position
        begin = replace(begin, offsets={**begin.offsets, **rewound})
        ranges, losses = plan_replay(begin, stop, earliest, ids)
        if not self._has_planned:  # the micro-batch was planned before a restart
            there = [tp for tp in stop.epochs if tp in earliest]
            epochs = client.log_view(there).epochs if there else {}
            losses += divergences(stop, client.diverged(stop, epochs, ids))
        check_losses(losses, self._options.on_data_loss)
        self._planner.record_late_losses(losses, begin, stop)
        self._report_once(losses)
        return _tasks(client, self._options, ranges)

    @readable_errors
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Task):
            yield from _read(self._options, self._columns, partition, QueryMode.STREAM, self._typed)

    def commit(self, end: dict[str, Any]) -> None:
        self._follow(Position.from_json(end))

    def stop(self) -> None:
        """Does nothing: the connections belong to the process, which ends with the query."""

    # -- internal
    # --------------------------------------------------------------------------------------------------------

    def _client(self) -> LogClient:
        return connect(self._options.client)

    def _view(self, client: LogClient) -> LogOffsets:
        client.reach()
        return client.log_view(client.partitions(self._options.subscription))

    def _schemas(self) -> dict[str, str]:
        """The schemas with which the query decodes records, as a position stores them."""
        if self._typed is None:
            return {}
        from barnabas.spark.records.registries import schema_marks

        found = {part: schema_marks(registered) for part, registered in self._typed.pinned.items()}
        return {part: one for part, one in found.items() if one}

    def _check_schemas(self, position: Position) -> None:
        """Look, once for each start of the query, whether the registry still has the schemas by which records were
        decoded before. Raises DataLossError if its ids began anew, unless failOnDataLoss is false."""
        if self._typed is None or self._has_checked or self._typed.formats.registry is None:
            return
        from barnabas.spark.records.registries import check_schema

        for part, stored in position.schemas.items():
            pinned = self._typed.pinned.get(part)
            subject = "" if pinned is None else pinned.subject
            problem = check_schema(part, self._typed.formats.registry, stored, subject)
            if problem is None:
                continue
            text = f"{problem}. Its ids began anew, and the ids in records that were written before name other schemas"
            if self._options.on_data_loss is OnDataLoss.FAIL:
                raise DataLossError(
                    f"{text}: restore the registry; or set failOnDataLoss=false, if all records to be read were written"
                    " with the new ids"
                )
            log.warning("%s", text)
        self._has_checked = True

    def _must_pin(self, start: dict[str, Any]) -> bool:
        if self._pinned or start != self._initial:
            return False
        starting = self._options.starting
        if isinstance(starting, AtOffsets):
            return any(offset < 0 and offset != EARLIEST for offset in starting.offsets.values())
        return starting != AtEdge(EARLIEST)

    def _follow(self, position: Position) -> None:
        """Commit the position for the group that makes the query's progress visible.

        Spark calls `commit` for a micro-batch when it plans the next one, so never for the last micro-batch. A plan
        starts at the end of the previous micro-batch, therefore `latestOffset` calls this method too. An error is
        logged and otherwise ignored, because the checkpoint has the authoritative position.
        """
        group = self._options.progress_group
        if group is None or position == self._followed or not position.offsets:
            return
        try:
            self._client().commit(group, position)
        except KafkaError as error:
            log.warning("the progress of the query could not be committed for group %s: %s", group, error)
        self._followed = position

    def _report_once(self, losses: Sequence[Loss]) -> None:
        fresh = [loss for loss in losses if loss not in self._reported]
        self._reported.update(fresh)
        _report(fresh)


def _read(
    options: SourceOptions, columns: tuple[str, ...], task: Task, mode: QueryMode, typed: TypedRead | None
) -> Iterator[pa.RecordBatch]:
    freeze_heap()
    if typed is None:
        return _read_raw(options, columns, task, mode)
    from barnabas.spark.records.reading import typed_batches

    return typed_batches(_read_raw(options, typed.raw_columns, task, mode), typed, task.range.tp)


def _read_raw(
    options: SourceOptions, columns: tuple[str, ...], task: Task, mode: QueryMode
) -> Iterator[pa.RecordBatch]:
    # These modules import numpy and compile kernels by numba: 150 MB that the driver's processes do not need.
    if options.read_as is ReadAs.TABLE:
        from barnabas.spark.source.table import TableRead, read_table

        wanted = TableRead(columns, tombstones=mode is QueryMode.STREAM)
        return read_table(options, wanted, task.range, SegmentSources(task.directory, task.remote))
    from barnabas.spark.source.ranges import read_range

    return read_range(options, columns, task.range, SegmentSources(task.directory, task.remote))


def _tasks(client: LogClient, options: SourceOptions, ranges: list[PartitionRange]) -> list[Task]:
    found: dict[TopicPartition, SegmentDirectory] = {}
    remote: dict[TopicPartition, RemoteCopies] = {}
    if options.read_from is ReadFrom.SEGMENTS and ranges:
        from barnabas.spark.source.segment_locations import locate_segments

        found = locate_segments(client, ranges, options.segments_root)
        if options.segments_store is not None:
            from barnabas.spark.source.remote_locations import locate_remote

            remote = locate_remote(client, ranges, options.stall_timeout_ms)
    if options.read_as is ReadAs.TABLE:
        pieces = ranges  # only a task with all records of a key finds the newest
    else:
        long = [r.tp for r in ranges if r.size >= SPLIT_WORTH_OFFSETS]
        density = client.bytes_per_offset(client.log_view(long)) if long else {}
        pieces = split_ranges(ranges, options.splitting, density)
    return [
        Task(piece, found.get(piece.tp), remote[piece.tp].part(piece.start, piece.end) if piece.tp in remote else None)
        for piece in pieces
    ]


def _report(losses: Sequence[Loss]) -> None:
    for loss in losses:
        log.warning("data loss: %s", loss)
