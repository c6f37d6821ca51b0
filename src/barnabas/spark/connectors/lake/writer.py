"""Shell: the writers that Spark calls for a SinkTarget whose rows have the columns of a table.

driver, planning   writer is created: SinkTarget.prepare
workers, forked    write(): one task attempt stages its rows; the returned message names what it staged
driver             commit(messages): SinkTarget.publish
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.spark.connectors.sinking.options import RowOptions
from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId, SinkTarget, StagedPart
from barnabas.spark.connectors.sinking.tables import TableDivider
from barnabas.spark.delivery.checkpoints import query_id_of
from barnabas.spark.errors import SinkError
from barnabas.spark.heap import freeze_heap
from barnabas.spark.reporting import readable_errors
from barnabas.spark.sink.tasks import this_attempt

if TYPE_CHECKING:
    import pyarrow as pa

MakeTarget = Callable[[Mapping[str, str]], tuple[SinkTarget, RowOptions]]


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not followed by mypy
    """What one task attempt staged."""

    query_id: str
    parts: tuple[StagedPart, ...]


@readable_errors
def target_batch_writer(options: Mapping[str, str], overwrite: bool, make: MakeTarget) -> TargetBatchWriter:
    """The writer of a batch query. Raises OptionError and SinkError."""
    freeze_heap()
    if overwrite:
        raise SinkError("this sink only adds and changes rows; write with mode('append')")
    target, rows = make(options)
    target.prepare(None)
    return TargetBatchWriter(target, rows, f"job-{uuid.uuid4()}")


@readable_errors
def target_stream_writer(options: Mapping[str, str], make: MakeTarget) -> TargetStreamWriter:
    """The writer of a streaming query. Raises OptionError and SinkError."""
    freeze_heap()
    target, rows = make(options)
    target.prepare(query_id_of(rows.checkpoint))
    return TargetStreamWriter(target, rows)


class TargetBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The writer of `df.write`."""

    def __init__(self, target: SinkTarget, rows: RowOptions, job_id: str) -> None:
        self._target = target
        self._rows = rows
        self._job_id = job_id

    @readable_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        freeze_heap()
        here = this_attempt()
        attempt = AttemptId(self._job_id, here.run_id, 0, here.partition, here.attempt, is_job=True)
        return stage_rows(iterator, self._target, self._rows, attempt)

    @readable_errors
    def commit(self, messages: list[StagedRows | None]) -> None:
        freeze_heap()
        self._target.publish(BatchId(self._job_id, 0, is_job=True), _parts(messages))

    @readable_errors
    def abort(self, messages: list[StagedRows | None]) -> None:
        self._target.discard(_parts(messages))


class TargetStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The writer of `df.writeStream`."""

    def __init__(self, target: SinkTarget, rows: RowOptions) -> None:
        self._target = target
        self._rows = rows

    @readable_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        freeze_heap()
        here = this_attempt()
        attempt = AttemptId(here.query_id, here.run_id, here.batch_id, here.partition, here.attempt)
        return stage_rows(iterator, self._target, self._rows, attempt)

    @readable_errors
    def commit(self, messages: list[StagedRows | None], batchId: int) -> None:
        freeze_heap()
        parts = _parts(messages)
        if parts:
            query_id = next(message.query_id for message in messages if message is not None)
            self._target.publish(BatchId(query_id, batchId), parts)

    @readable_errors
    def abort(self, messages: list[StagedRows | None], batchId: int) -> None:
        self._target.discard(_parts(messages))


def stage_rows(
    iterator: Iterator[pa.RecordBatch], target: SinkTarget, rows: RowOptions, attempt: AttemptId
) -> StagedRows:
    """Stage the rows of one task attempt."""
    divider = TableDivider(rows, attempt.partition)
    stage = target.open_stage(attempt)
    try:
        for batch in iterator:
            for each in divider.divide_columns(batch):
                stage.add(each)
        return StagedRows(attempt.query_id, tuple(stage.finish()))
    except BaseException:  # `iterator` raises what the user's plan raises; Spark interrupts killed tasks
        stage.abandon()
        raise


def _parts(messages: Sequence[StagedRows | None]) -> list[StagedPart]:
    return [part for message in messages if message is not None for part in message.parts]
