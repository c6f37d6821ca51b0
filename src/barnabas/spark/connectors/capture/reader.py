"""Shell: the readers that Spark calls for every capture source. `planning.py` decides what a micro-batch reads.

    driver, long-lived   CaptureStreamReader: all methods but read(); one process per query
    driver, planning     CaptureBatchReader.partitions(); creates what is pickled for the workers
    workers, forked      read(): one task for each staged file, one task for all changes of the micro-batch

The initial offset of a query is a constant, so a restart before the first micro-batch begins at the same offset. The
first `latestOffset` takes the snapshot, or uses the complete snapshot that an earlier start of the query staged. The
end of a micro-batch is confirmed when the next one is planned: Spark has then written the commit of the first one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from barnabas.spark.connectors.capture.errors import CaptureError, LostPositionError, NewStartError
from barnabas.spark.connectors.capture.manifest import Manifest
from barnabas.spark.connectors.capture.offsets import START, CaptureOffset
from barnabas.spark.connectors.capture.options import CaptureOptions, Output, SnapshotMode, parse_capture_options
from barnabas.spark.connectors.capture.planning import (
    begin_snapshot,
    check_manifest,
    heartbeat_due,
    new_start,
    next_files,
    ranges_between,
    starts_anew,
)
from barnabas.spark.connectors.capture.ports import CapturedChanges, ChangeSource, Connector, Position
from barnabas.spark.connectors.capture.reuse import lent_source
from barnabas.spark.connectors.capture.staging import Staging, open_staging
from barnabas.spark.errors import OptionError
from barnabas.spark.heap import freeze_heap
from barnabas.spark.reporting import readable_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from barnabas.spark.connectors.capture.output import CaptureOutput

log = logging.getLogger("barnabas.spark")


def parse(texts: Mapping[str, str], connector: Connector) -> CaptureOptions:
    """The options of a query. Raises OptionError."""
    if connector.parse is not None:
        return connector.parse(texts)
    return parse_capture_options(
        texts, connector.options, connector.refused, connector=connector.name, version=connector.version
    )


@readable_errors
def capture_schema(texts: Mapping[str, str], connector: Connector) -> str:
    """The columns of a query, as DDL: those of a record, or those of the one table with output=rows."""
    freeze_heap()
    from barnabas.spark.connectors.capture.output import output_ddl

    options = parse(texts, connector)
    columns = connector.columns or output_ddl
    if options.output is Output.RECORDS:
        return columns(options, None)
    source = connector.open(options)
    try:
        tables = source.read_tables()
    finally:
        source.close()
    if len(tables) != 1:
        names = ", ".join(table.id for table in tables) or "none"
        raise OptionError(
            f"output=rows is for one table, and table.include.list selects {len(tables)} ({names}): name one table, or"
            " use output=records"
        )
    return columns(options, tables[0])


@readable_errors
def capture_stream_reader(texts: Mapping[str, str], schema: StructType, connector: Connector) -> CaptureStreamReader:
    """The reader of a streaming query. Raises OptionError."""
    return CaptureStreamReader(parse(texts, connector), _output(texts, schema, connector), connector)


@readable_errors
def capture_batch_reader(texts: Mapping[str, str], schema: StructType, connector: Connector) -> CaptureBatchReader:
    """The reader of a batch query, which reads a snapshot. Raises OptionError."""
    freeze_heap()
    options = parse(texts, connector)
    if options.snapshot_mode is SnapshotMode.NO_DATA:
        raise OptionError("snapshot.mode=no_data leaves a batch query nothing to read: use readStream")
    return CaptureBatchReader(options, _output(texts, schema, connector), connector)


def _output(texts: Mapping[str, str], schema: StructType, connector: Connector) -> CaptureOutput:
    from pyspark.sql.pandas.types import to_arrow_schema

    from barnabas.spark.connectors.capture.output import CaptureOutput

    return (connector.output or CaptureOutput)(parse(texts, connector), to_arrow_schema(schema, timezone="UTC"))


class StagedTask(InputPartition):  # type: ignore[misc]  # pyspark is not followed by mypy
    """One staged file of a snapshot."""

    def __init__(self, manifest: Manifest, index: int) -> None:
        super().__init__(None)
        self.manifest = manifest
        self.index = index


class ChangesTask(InputPartition):  # type: ignore[misc]  # as above
    """All changes of a micro-batch, and its heartbeat."""

    def __init__(self, changes: tuple[Position, Position] | None, heartbeat: int | None) -> None:
        super().__init__(None)
        self.changes = changes
        self.heartbeat = heartbeat


class _TaskReader:
    """What both readers do in workers."""

    def __init__(self, options: CaptureOptions, output: CaptureOutput, connector: Connector) -> None:
        self._options = options
        self._output = output
        self._connector = connector

    def _read(self, partition: InputPartition) -> Iterator[Any]:
        # If there is nothing to read, Spark still calls `read` once, with a partition object of its own.
        freeze_heap()
        if isinstance(partition, StagedTask):
            yield from self._read_file(partition.manifest, partition.index)
        elif isinstance(partition, ChangesTask):
            if partition.changes is not None:
                yield from self._read_changes(*partition.changes)
            if partition.heartbeat is not None:
                yield from self._output.heartbeat(partition.heartbeat)

    def _read_file(self, manifest: Manifest, index: int) -> Iterator[Any]:
        from barnabas.spark.connectors.capture.snapshot_rows import snapshot_change, snapshot_words

        source = self._connector.open(self._options)
        try:
            table, batches = open_staging(self._options.staging_location).read_file(manifest.files[index])
            place = source.snapshot_place(manifest.position)
            first = 0
            for batch in batches:
                words = snapshot_words(manifest, index, first, batch.num_rows)
                positions = source.snapshot_positions(manifest.position, batch.num_rows)
                change = snapshot_change(table, batch, words, manifest.taken_us, positions, place)
                yield from self._output.batches(CapturedChanges((change,)))
                first += batch.num_rows
        finally:
            source.close()

    def _read_changes(self, start: Position, end: Position) -> Iterator[Any]:
        with lent_source(self._connector, self._options) as source:
            try:
                for captured in source.read(start, end):
                    yield from self._output.batches(self._complete(captured, source))
            except LostPositionError as error:
                if self._options.fails_on_data_loss:
                    raise
                # The next start of the query repeats the micro-batch. Its two ends may look right also then.
                open_staging(self._options.staging_location).note_loss(end, str(error))
                raise NewStartError(
                    f"{error}. The query starts anew when it is started again, since failOnDataLoss=false"
                ) from error

    def _complete(self, captured: CapturedChanges, source: ChangeSource) -> CapturedChanges:
        """The changes with the values that the database did not send, as far as they can be read from its tables."""
        if not any(table.changes.unavailable for table in captured.tables):
            return captured
        from barnabas.spark.connectors.capture.completing import complete

        look_up = None if self._connector.look_up is None else partial(self._connector.look_up, source)
        mode = self._options.unavailable
        return structs.replace(captured, tables=tuple(complete(table, mode, look_up) for table in captured.tables))


class CaptureBatchReader(_TaskReader, DataSourceReader):  # type: ignore[misc]  # as above
    """The reader of `spark.read`: a snapshot, taken when the query is planned."""

    @readable_errors
    def partitions(self) -> list[StagedTask]:
        source = self._connector.open(self._options)
        try:
            writer = open_staging(self._options.staging_location).begin_batch(source.identity)
            taken_us = time.time_ns() // 1000
            position = source.take_snapshot(writer, rows=True, follow=False)
        finally:
            source.close()
        manifest = writer.manifest(position, taken_us)
        return [StagedTask(manifest, index) for index in range(len(manifest.files))]

    @readable_errors
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from self._read(partition)


class CaptureStreamReader(_TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The reader of `spark.readStream`: the snapshot in one or more micro-batches, then changes."""

    def __init__(self, options: CaptureOptions, output: CaptureOutput, connector: Connector) -> None:
        super().__init__(options, output, connector)
        self._source: ChangeSource | None = None
        self._manifest: Manifest | None = None
        self._follows_target = False
        self._target: Position | None = None
        self._removed = False

    def initialOffset(self) -> dict[str, Any]:
        return START.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        # The planner applies the limit. The value only has to differ from ReadAllAvailable, which Trigger.Once uses.
        return ReadMaxBytes(self._options.trigger_bytes_max)

    @readable_errors
    def prepareForTriggerAvailableNow(self) -> None:
        self._follows_target = True

    @readable_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        offset = CaptureOffset.from_json(start)
        bytes_max = None if isinstance(limit, ReadAllAvailable) else self._options.trigger_bytes_max
        try:
            return self._latest(offset, bytes_max)
        except LostPositionError as error:
            return self._next_files(*self._start_anew(offset, error), bytes_max).to_json()

    def _latest(self, offset: CaptureOffset, bytes_max: int | None) -> dict[str, Any]:
        source = self._open(offset)
        if offset.snapshot is None:
            manifest = self._manifest or self._take_snapshot(source)
            offset = begin_snapshot(manifest)
            return self._next_files(offset, manifest, bytes_max).to_json()
        if offset.snapshot.left:
            return self._next_files(offset, check_manifest(offset, self._manifest), bytes_max).to_json()
        if self._options.snapshot_mode is SnapshotMode.INITIAL_ONLY:
            return offset.to_json()
        self._remove_files()
        return self._next_changes(source, offset, bytes_max).to_json()

    @readable_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, stop = CaptureOffset.from_json(start), CaptureOffset.from_json(end)
        ranges = ranges_between(begin, stop)
        try:
            self._open(stop if starts_anew(begin, stop) else begin, stop.position)
        except LostPositionError as error:  # between the plan of the micro-batch and this start of the query
            if self._options.fails_on_data_loss or stop.position is None:
                raise
            log.warning("%s. A planned micro-batch has no changes, since failOnDataLoss=false", error)
            self._staging().note_loss(stop.position, str(error))  # Spark goes on from the end, which may look right
            ranges = structs.replace(ranges, changes=None)
        tasks: list[InputPartition] = []
        if ranges.first_file < ranges.end_file:
            manifest = check_manifest(stop, self._manifest)
            tasks += [StagedTask(manifest, index) for index in range(ranges.first_file, ranges.end_file)]
        if ranges.changes is not None or ranges.heartbeat is not None:
            tasks.append(ChangesTask(ranges.changes, ranges.heartbeat))
        return tasks

    @readable_errors
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from self._read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: Spark does not call this for the last micro-batch, so `latestOffset` confirms its start."""

    def stop(self) -> None:
        if self._source is not None:
            self._source.close()

    # -- internal

    def _open(self, offset: CaptureOffset, end: Position | None = None) -> ChangeSource:
        """The source, checked once for each start of the query: at an offset, and at the `end` of the micro-batch from
        there that is repeated.
        """
        if self._source is not None:
            return self._source
        source = self._connector.open(self._options)
        try:
            staging = self._staging()
            self._manifest = staging.read_manifest(source.identity)
            position = offset.position
            if position is None and self._manifest is not None:
                position = self._manifest.position
            ends = () if end is None or position in (None, end) else (end,)
            follows = self._options.snapshot_mode is not SnapshotMode.INITIAL_ONLY
            for one in (position, *ends) if follows else ():
                if one is not None and (reason := staging.find_loss(source.identity, one)) is not None:
                    raise LostPositionError(reason)
            if offset.position is None and self._manifest is not None:
                _refuse_read(staging, self._manifest)
            begun = position is None and staging.was_begun(source.identity)
            if follows:
                source.check(position, begun=begun)
                for one in ends:
                    source.check(one, begun=False)
        except BaseException:
            source.close()
            raise
        self._source = source
        return source

    def _start_anew(self, offset: CaptureOffset, error: LostPositionError) -> tuple[CaptureOffset, Manifest]:
        """The offset before the files of a new snapshot, and the snapshot. One that an earlier start of the query has
        staged for this, before Spark has stored an offset in it, is used. Raises the error with failOnDataLoss=true.
        """
        rows = self._options.snapshot_mode is not SnapshotMode.NO_DATA
        lost = offset.position
        if lost is None and self._manifest is not None:  # a complete snapshot of which no file was planned
            lost = self._manifest.position
        log.warning("%s", new_start(error, fails=self._options.fails_on_data_loss or lost is None, rows=rows))
        assert lost is not None, "a query without a position has lost none"
        self.stop()
        self._source, self._target, self._removed = None, None, False
        staging, source = self._staging(), self._connector.open(self._options)
        try:
            manifest = staging.staged_after(source.identity, lost)
            if manifest is not None and not _goes_on(source, manifest.position):
                manifest = None
            if manifest is None:
                source.check(None, begun=staging.was_begun(source.identity, lost), lost=lost)
        except BaseException:
            source.close()
            raise
        self._source, self._manifest = source, manifest or self._take_snapshot(source, lost)
        return structs.replace(begin_snapshot(self._manifest), heartbeat=offset.heartbeat), self._manifest

    def _staging(self) -> Staging:
        return open_staging(self._options.staging_location)

    def _take_snapshot(self, source: ChangeSource, lost: Position | None = None) -> Manifest:
        staging = self._staging()
        mode = self._options.snapshot_mode
        rows = mode is not SnapshotMode.NO_DATA
        writer = staging.begin(source.identity, rows=rows, lost=lost)
        taken_us = time.time_ns() // 1000
        position = source.take_snapshot(writer, rows=rows, follow=mode is not SnapshotMode.INITIAL_ONLY)
        manifest = writer.manifest(position, taken_us)
        staging.complete(manifest)
        staged = sum(file.rows for file in manifest.files)
        log.info("the snapshot %s is staged: %d rows in %d files", manifest.id, staged, len(manifest.files))
        self._manifest = manifest
        return manifest

    def _next_files(self, offset: CaptureOffset, manifest: Manifest, bytes_max: int | None) -> CaptureOffset:
        return next_files(offset, [file.bytes for file in manifest.files], bytes_max)

    def _next_changes(self, source: ChangeSource, offset: CaptureOffset, bytes_max: int | None) -> CaptureOffset:
        assert offset.position is not None
        source.confirm(offset.position)
        if self._follows_target and self._target is None:
            self._target = source.find_target(offset.position)
        end = source.find_end(offset.position, bytes_max, self._target)
        heartbeat = offset.heartbeat
        now_ms = time.time_ns() // 1_000_000
        if not self._follows_target and heartbeat_due(offset, now_ms, self._options.heartbeat_ms):
            heartbeat = now_ms
            source.beat()
        return CaptureOffset(offset.snapshot, end, heartbeat)

    def _remove_files(self) -> None:
        """Delete the staged rows: Spark plans changes only after the micro-batches of the snapshot are committed."""
        if not self._removed:
            self._staging().remove_files()
            self._removed = True


def _goes_on(source: ChangeSource, position: Position) -> bool:
    """Whether the changes after a staged snapshot can be read, of which Spark has stored no offset."""
    try:
        source.check(position, begun=False)
    except LostPositionError as error:
        log.warning("%s. The staged snapshot of this position is replaced by another one", error)
        return False
    return True


def _refuse_read(staging: Staging, manifest: Manifest) -> None:
    if staging.is_read(manifest):
        raise CaptureError(
            f"the snapshot {manifest.id} in stagingLocation was read by a query with another checkpoint: use that"
            " checkpoint; or start over with an empty stagingLocation, after the slot or other state of that query was"
            " removed from the database"
        )
