"""Shell: stages the rows of one task attempt. A row that its table cannot take is returned, and not staged."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.connectors.sinking.fields import UNTYPED
from barnabas.spark.connectors.sinking.ports import AttemptId, Problem, StagedPart, TableRows
from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.connectors.sql.sinks.column_types import created_column
from barnabas.spark.connectors.sql.sinks.debezium_types import meant
from barnabas.spark.connectors.sql.sinks.errors import DatabaseSinkError, RefusedRowsError
from barnabas.spark.connectors.sql.sinks.naming import column_name, stage_name, table_path
from barnabas.spark.connectors.sql.sinks.opening import open_session
from barnabas.spark.connectors.sql.sinks.options import SqlSinkOptions
from barnabas.spark.connectors.sql.sinks.planning import (
    check_rows,
    missing_table,
    new_columns,
    optional_column,
    wanted_columns,
)
from barnabas.spark.connectors.sql.sinks.ports import (
    DELETED,
    ORDER,
    STEP,
    ColumnKind,
    SinkSession,
    SqlTable,
    StageTable,
    stage_column,
)
from barnabas.spark.connectors.sql.sinks.values import TextOptions, texts_of

log = logging.getLogger("barnabas.spark")


class _Counts(msgspec.Struct):
    """The rows of one step in a stage."""

    rows: int = 0
    deletes: int = 0
    first_order: int | None = None


class _Staged:
    """The rows of one attempt for one table and one schema."""

    def __init__(
        self,
        table: str,
        schema: Any,
        key: tuple[str, ...],
        unavailable: tuple[str, ...],
        stage: StageTable,
        found: SqlTable | None,
    ) -> None:
        self.table = table
        self.schema = schema
        self.key = key
        self.unavailable = unavailable
        self.stage = stage
        self.target = found
        self.steps: dict[int, _Counts] = {}

    def parts(self, partition: int) -> list[StagedPart]:
        place = msgspec.json.encode(self.stage).decode()
        return [
            StagedPart(
                self.table,
                self.schema,
                self.key,
                step,
                partition,
                count.rows,
                count.deletes,
                count.first_order or 0,
                place,
                unavailable=self.unavailable,
            )
            for step, count in self.steps.items()
            if count.rows
        ]


class SqlStage:
    """What one task attempt stages."""

    def __init__(self, options: SqlSinkOptions, attempt: AttemptId) -> None:
        self._options = options
        self._attempt = attempt
        self._session: SinkSession | None = None
        self._tables: dict[tuple[str, ...], SqlTable | None] = {}
        self._staged: dict[Any, _Staged] = {}

    def add(self, rows: TableRows) -> list[Problem]:
        if not rows.rows.num_rows:
            return []
        names = self._names(rows.table, rows.rows.schema.names)
        fields = [field.with_name(name) for field, name in zip(rows.rows.schema, names, strict=True)]
        columns = [
            meant(field, array, self._options.dialect) for field, array in zip(fields, rows.rows.columns, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(
            [array for _, array in columns], schema=pa.schema([one for one, _ in columns])
        )
        key = tuple(names[: len(rows.key)])
        unavailable = tuple(self._names(rows.table, rows.unavailable))
        identity = (rows.table, key, batch.schema, unavailable)
        staged = self._staged.get(identity)
        if staged is None:
            staged = self._staged[identity] = self._begin(rows.table, batch.schema, key, unavailable)
        if staged.target is not None:
            inserts = rows.deleted is None or not pc.all(rows.deleted).as_py()
            check_rows(self._options, staged.target, staged.stage.names, key, inserts=inserts)
        texts, problems = self._texts(staged, batch, rows)
        problems += self._load(staged, texts)
        return [Problem(rows.source_row(problem.row), problem.reason) for problem in problems]

    def finish(self) -> list[StagedPart]:
        if self._session is None:
            return []
        self._session.finish_stages()
        self._session.close()
        return [part for staged in self._staged.values() for part in staged.parts(self._attempt.partition)]

    def abandon(self) -> None:
        if self._session is None:
            return
        self._session.close()
        try:
            with contextlib.closing(open_session(self._options, attempts=1)) as session:
                session.drop_stages([staged.stage.name for staged in self._staged.values()])
        except DatabaseSinkError as error:  # the next micro-batch of the query drops them
            log.info("staging tables of a failed task are not dropped now: %s", error)

    def _names(self, table: str, names: Sequence[str]) -> list[str]:
        """The names of columns in the case that the table has, where the database does not distinguish them."""
        target = self._target(table)
        folded = [column_name(self._options, name) for name in names]
        if target is None or self._options.dialect is Dialect.POSTGRES:
            return folded
        known = {column.name.lower(): column.name for column in target.columns}
        return [known.get(name.lower(), name) for name in folded]

    def _target(self, table: str) -> SqlTable | None:
        path = table_path(self._options, table)
        if self._session is None:
            self._session = open_session(self._options)
        if path not in self._tables:
            self._tables[path] = self._session.describe(path)
        return self._tables[path]

    def _begin(self, table: str, schema: Any, key: tuple[str, ...], unavailable: tuple[str, ...]) -> _Staged:
        """Check that the table can take rows with these columns, and create a stage."""
        options = self._options
        path = table_path(options, table)
        target, session = self._target(table), self._session
        assert session is not None, "the table was described"
        wanted = wanted_columns(options.dialect, [schema], key, session.key_collation)
        if target is None:
            if not options.create:
                raise DatabaseSinkError(missing_table(options, path, wanted, key))
        else:
            new_columns(options, target, wanted)
        columns = []
        for index, field in enumerate(schema):
            column = (None if target is None else target.column(field.name)) or wanted.get(field.name)
            if column is None:
                column = created_column(options.dialect, field)
            columns.append(msgspec.structs.replace(column, name=stage_column(index), nullable=True))
        name = stage_name(self._attempt.query_id, int(time.time()), random.getrandbits(32))
        stage = StageTable(name, tuple(schema.names), tuple(columns))
        session.create_stage(stage)
        return _Staged(table, schema, key, unavailable, stage, target)

    def _texts(self, staged: _Staged, batch: Any, rows: TableRows) -> tuple[_Texts, list[Problem]]:
        """The rows as texts, without those that the table cannot take."""
        options = TextOptions(self._options.dialect, self._options.time_zone)
        deleted = pa.repeat(0, batch.num_rows) if rows.deleted is None else rows.deleted.cast(pa.int64())
        problems: dict[int, str] = {}
        arrays = []
        for name, column, array in zip(staged.stage.names, staged.stage.columns, batch.columns, strict=True):
            shown = msgspec.structs.replace(column, name=name)
            if column.kind is ColumnKind.BYTES and UNTYPED in (batch.schema.field(name).metadata or {}):
                raise DatabaseSinkError(
                    f"the column {name} is {column.type}, and the records have texts for it, in JSON without a schema,"
                    " where bytes are base64: send the records with their schema (schemas.enable=true, on both sides),"
                    " write the value under another name, or leave it out with fields.include"
                )
            texts, bad = texts_of(array, shown, options)
            for problem in [*bad, *self._nulls(staged, name, array, deleted)]:
                problems.setdefault(problem.row, problem.reason)
            arrays.append(texts)
        step = pa.repeat(rows.step, batch.num_rows).cast(pa.int64())
        columns = [rows.order.cast(pa.int64()), deleted, step, *arrays]
        names = [ORDER, DELETED, STEP, *(column.name for column in staged.stage.columns)]
        table = pa.RecordBatch.from_arrays(columns, names)
        index = np.arange(batch.num_rows)
        if problems:
            index = np.delete(index, sorted(problems))
            table = table.take(pa.array(index))
        return _Texts(table, index), [Problem(row, reason) for row, reason in sorted(problems.items())]

    def _nulls(self, staged: _Staged, name: str, array: Any, deleted: Any) -> list[Problem]:
        target = None if staged.target is None else staged.target.column(name)
        if target is None or target.nullable or not array.null_count or staged.target is None:
            return []
        rows = pc.indices_nonzero(pc.and_(array.is_null(), pc.equal(deleted, 0))).to_pylist()
        run = optional_column(self._options.dialect, staged.target, name)
        reason = f"its value for the column {name} is null, and the column is NOT NULL: exclude such rows, or run {run}"
        return [Problem(row, reason) for row in rows]

    def _load(self, staged: _Staged, texts: _Texts) -> list[Problem]:
        """Stage rows. If the database refuses them, each half is tried, down to the rows that it refuses."""
        if not texts.table.num_rows:
            return []
        assert self._session is not None, "there is a stage"
        try:
            self._session.load(staged.stage, texts.table)
        except RefusedRowsError as error:
            count = texts.table.num_rows
            if count == 1:
                return [Problem(int(texts.index[0]), _with_names(str(error), staged.stage))]
            half = count // 2
            return self._load(staged, texts.slice(0, half)) + self._load(staged, texts.slice(half, count - half))
        _count(staged, texts.table)
        return []


class _Texts(msgspec.Struct):
    """Rows as texts, and which rows of the batch they are."""

    table: Any
    index: Any

    def slice(self, start: int, length: int) -> _Texts:
        return _Texts(self.table.slice(start, length), self.index[start : start + length])


def _with_names(message: str, stage: StageTable) -> str:
    """A message of the database with the names of the rows' columns, where it names those of the stage."""
    for column, name in zip(stage.columns, stage.names, strict=True):
        for quote in "'`\"":
            message = message.replace(f"{quote}{column.name}{quote}", f"{quote}{name}{quote}")
    return message


def _count(staged: _Staged, table: Any) -> None:
    step = table.column(STEP)[0].as_py()
    counts = staged.steps.setdefault(step, _Counts())
    counts.rows += table.num_rows
    counts.deletes += pc.sum(table.column(DELETED)).as_py()
    first = pc.min(table.column(ORDER)).as_py()
    counts.first_order = first if counts.first_order is None else min(first, counts.first_order)
