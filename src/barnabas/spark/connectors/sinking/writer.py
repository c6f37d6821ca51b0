"""Shell: the writers that Spark calls for a SinkTarget.

driver, planning   the writer is created and pickled for the tasks: SinkTarget.prepare
workers, forked    write(): one task attempt stages its rows; the returned message names what it staged
driver             another process creates the writer again; commit(messages): SinkTarget.publish
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.spark.connectors.sinking.failures import FailedRecords, prepare_topic, read_records
from barnabas.spark.connectors.sinking.options import InputKind, RowOptions
from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId, SinkTarget, StagedPart, TableRows
from barnabas.spark.connectors.sinking.records import ROW, RecordReader
from barnabas.spark.connectors.sinking.tables import Divided, TableDivider
from barnabas.spark.delivery.checkpoints import history_of, query_id_of
from barnabas.spark.errors import RecoveryError, SinkError, SparkSourceError
from barnabas.spark.heap import freeze_heap
from barnabas.spark.reporting import readable_errors
from barnabas.spark.sink.tasks import Attempt, this_attempt

if TYPE_CHECKING:
    import pyarrow as pa


class Divider(Protocol):
    """Rows of one task attempt -> rows of tables (TableDivider)."""

    def divide_columns(self, batch: Any) -> list[TableRows]: ...

    def divide_records(self, batch: Any) -> Divided: ...

    @property
    def origins(self) -> frozenset[str] | None: ...


class SinkPlan(msgspec.Struct, frozen=True):
    """What a query writes to, what its rows are, and how they become rows of tables."""

    target: SinkTarget
    rows: RowOptions
    divider: Callable[[RowOptions, int], Divider] = TableDivider


MakePlan = Callable[[Mapping[str, str]], SinkPlan]


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not followed by mypy
    """What one task attempt staged."""

    query_id: str
    parts: tuple[StagedPart, ...]


@readable_errors
def target_batch_writer(options: Mapping[str, str], overwrite: bool, make: MakePlan) -> TargetBatchWriter:
    """The writer of a batch query. Raises OptionError and SinkError."""
    freeze_heap()
    if overwrite:
        raise SinkError("this sink only adds and changes rows; write with mode('append')")
    plan = make(options)
    prepare_topic(plan.rows)
    plan.target.prepare(None)
    return TargetBatchWriter(plan, f"job-{uuid.uuid4()}")


@readable_errors
def target_stream_writer(options: Mapping[str, str], make: MakePlan) -> TargetStreamWriter:
    """The writer of a streaming query. Raises OptionError and SinkError."""
    freeze_heap()
    plan = make(options)
    prepare_topic(plan.rows)
    plan.target.prepare(None)
    return TargetStreamWriter(plan)


class TargetBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The writer of `df.write`."""

    def __init__(self, plan: SinkPlan, job_id: str) -> None:
        self._plan = plan
        self._job_id = job_id

    @readable_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        freeze_heap()
        here = this_attempt()
        attempt = AttemptId(self._job_id, here.run_id, 0, here.partition, here.attempt, is_job=True)
        return stage_rows(iterator, self._plan, attempt)

    @readable_errors
    def commit(self, messages: list[StagedRows | None]) -> None:
        freeze_heap()
        self._plan.target.publish(BatchId(self._job_id, 0, is_job=True), _parts(messages))

    @readable_errors
    def abort(self, messages: list[StagedRows | None]) -> None:
        self._plan.target.discard(_parts(messages))


class TargetStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The writer of `df.writeStream`."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        self._is_prepared = False

    def __getstate__(self) -> dict[str, object]:
        """Spark pickles the writer for the tasks, once per micro-batch: this is the moment before the tasks. When the
        writer is created, the tasks may have ended, since the process of the commit creates it, too."""
        if not self._is_prepared:
            query_id = query_id_of(self._plan.rows.checkpoint)
            if query_id is not None:
                try:
                    self._plan.target.prepare(query_id)
                except SparkSourceError as error:
                    raise RecoveryError(str(error)) from error
            self._is_prepared = True
        return self.__dict__.copy()

    @readable_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        freeze_heap()
        here = this_attempt()
        attempt = AttemptId(here.query_id, here.run_id, here.batch_id, here.partition, here.attempt)
        return stage_rows(iterator, self._plan, attempt)

    @readable_errors
    def commit(self, messages: list[StagedRows | None], batchId: int) -> None:
        freeze_heap()
        parts = _parts(messages)
        if parts:
            query_id = next(message.query_id for message in messages if message is not None)
            history = history_of(self._plan.rows.checkpoint)
            batch = BatchId(query_id, batchId, history=history)
            if history is None:
                self._plan.target.publish(batch, parts)
            else:
                history.explain(lambda: self._plan.target.publish(batch, parts))

    @readable_errors
    def abort(self, messages: list[StagedRows | None], batchId: int) -> None:
        self._plan.target.discard(_parts(messages))


def stage_rows(iterator: Iterator[pa.RecordBatch], plan: SinkPlan, attempt: AttemptId) -> StagedRows:
    """Stage the rows of one task attempt."""
    rows = plan.rows
    here = Attempt(attempt.query_id, attempt.run_id, attempt.batch_id, attempt.partition, attempt.attempt)
    failed = FailedRecords(rows, here)
    reader = RecordReader(rows) if rows.input is InputKind.RECORDS else None
    divider = plan.divider(rows, attempt.partition)
    stage = plan.target.open_stage(attempt)
    try:
        for batch in iterator:
            if reader is None:
                for each in divider.divide_columns(batch):
                    for problem in stage.add(each):
                        failed.add(batch, range(problem.row, problem.row + 1), problem.reason)
                continue
            for one in read_records(reader, batch, failed):
                divided = divider.divide_records(one)
                for problem in divided.problems:
                    failed.add(batch, _row_of(one, problem.row), problem.reason)
                for each in divided.tables:
                    for problem in stage.add(each):
                        failed.add(batch, _row_of(one, problem.row), problem.reason)
        parts = tuple(replace(part, origins=divider.origins) for part in stage.finish())
        failed.flush()
        return StagedRows(attempt.query_id, parts)
    except BaseException:  # `iterator` raises what the user's plan raises; Spark interrupts killed tasks
        stage.abandon()
        raise


def _row_of(decoded: Any, row: int) -> range:
    """The row of the batch that was read, from a row of decoded records."""
    found = decoded.column(ROW)[row].as_py()
    return range(found, found + 1)


def _parts(messages: Sequence[StagedRows | None]) -> list[StagedPart]:
    return [part for message in messages if message is not None for part in message.parts]
