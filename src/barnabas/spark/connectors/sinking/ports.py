"""Port: what a sink of the connectors implements, and the values that flow through it.

One micro-batch (or one `df.write`), with the process in which each step runs:

    driver, planning   SinkTarget.prepare            before the tasks: remove what dead attempts of the query staged
    workers            SinkTarget.open_stage         one task attempt; nothing that it stages is visible
                         Stage.add(TableRows) ...    returns the rows that the target does not take
                         Stage.finish                -> StagedPart for each table and set of columns
    driver             SinkTarget.publish            the parts of the attempts that Spark names, with the batch's number
                       or SinkTarget.discard         the micro-batch failed

`publish` makes the rows visible and stores the number of the micro-batch in one transaction of the target, if the
target has transactions, and with it what identifies the micro-batch (`spark/delivery/identity.py`): one that is stored
is not published again. Spark may call `publish` for a micro-batch that is published already, with other rows in other
parts: nothing of them may be written.

`SinkTarget` is pickled for the tasks, so it holds settings and no connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from barnabas.spark.delivery.identity import BatchHistory, LedgerEntry, Standing, entry_of, standing_of


class BatchId(Struct, frozen=True):
    """A micro-batch. `query_id` is that of the checkpoint; a `df.write` has an id of its own. `history` is the
    checkpoint, on the driver; None for a `df.write` and if the checkpoint cannot be read."""

    query_id: str
    batch_id: int
    is_job: bool = False
    history: BatchHistory | None = None
    alone: bool = True
    """Whether all rows of the query go to one ledger."""

    def entry(self, marks: Mapping[str, str] | None = None) -> LedgerEntry:
        """What the ledger, which has these marks, stores when the micro-batch is published."""
        return entry_of(self.batch_id, self.history, marks)

    def standing(self, lookup: Callable[[str], LedgerEntry | None], target: str) -> Standing:
        """What is to be done: see `standing_of`. Raises BatchConflictError."""
        return standing_of(lookup, self.query_id, self.batch_id, self.history, target, alone=self.alone)


class AttemptId(Struct, frozen=True):
    """The identity of one attempt of a task. Task and attempt numbers begin at 0 again in each run of a query."""

    query_id: str
    run_id: str
    batch_id: int
    partition: int
    attempt: int
    is_job: bool = False


class TableRows(Struct, frozen=True):
    """Rows for one table, all with the same columns. The arrays have one element for each row.

    `rows` is an Arrow RecordBatch of the columns that were received; columns of the table that are not in it keep
    their values. `key` names the columns, the first ones of `rows`, that identify a row; it is empty if pk.mode=none.
    `deleted` (Arrow bool) marks rows that delete their key; their other columns are null. It is None if no row does.

    `order` (Arrow int64) is larger for a later change of the same key. Rows with different columns are applied in the
    order of `step`: the changes of one key have ascending steps whenever their columns change.

    `source` (Arrow int64) is the row of the batch from which each row came; None if the rows are that batch.

    `unavailable` names columns whose values exist, but were not sent by the source: an unchanged large value. They are
    not in `rows`. A row that is new to the table cannot be written without them.
    """

    table: str
    rows: Any
    key: tuple[str, ...]
    deleted: Any
    order: Any
    step: int = 0
    source: Any = None
    unavailable: tuple[str, ...] = ()

    def source_row(self, row: int) -> int:
        """The row of the batch from which a row came."""
        return row if self.source is None else int(self.source[row].as_py())


class Problem(Struct, frozen=True):
    """A row that is not written: its number in the batch, and why."""

    row: int
    reason: str


class StagedPart(Struct, frozen=True):
    """What one attempt staged for one table and set of columns. `place` is where, in the form of the target.

    `schema` is the Arrow schema of the columns, `deletes` the number of rows that delete their key, `first_order` the
    smallest `order` of the rows. `origins` are the partitions of topics whose records the attempt had, such as
    `orders-0`, or None if that is not known. `unavailable` are the columns of `TableRows.unavailable`.
    """

    table: str
    schema: Any
    key: tuple[str, ...]
    step: int
    partition: int
    rows: int
    deletes: int
    first_order: int
    place: str
    origins: frozenset[str] | None = None
    unavailable: tuple[str, ...] = ()


class Stage(Protocol):
    """What one task attempt writes."""

    def add(self, rows: TableRows) -> list[Problem]:
        """Stage rows. They may be kept in memory until `finish`. Returns those that the target does not take, by their
        `source`; they are not staged."""

    def finish(self) -> list[StagedPart]:
        """Make what was staged durable, and name it."""

    def abandon(self) -> None:
        """Remove what was staged, as far as that is possible now. Raises nothing."""


class SinkTarget(Protocol):
    """A database, a lake or a web service."""

    def prepare(self, query_id: str | None) -> None:
        """Check what can be checked before the tasks. With the id of the query, no task of the micro-batch has begun:
        also remove orphaned stages of the query. The id is None if the checkpoint cannot be read, for `df.write`, and
        when Spark only creates the writer."""

    def open_stage(self, attempt: AttemptId) -> Stage:
        """Begin a task attempt."""

    def publish(self, batch: BatchId, parts: Sequence[StagedPart]) -> None:
        """Make the parts visible, once, and remove the stages. Raises BatchConflictError and SinkError."""

    def discard(self, parts: Sequence[StagedPart]) -> None:
        """Remove the parts of a micro-batch that failed."""
