"""Shell: a lake table as a sink: tasks write files, the driver commits the files of the attempts that Spark reports.

    insert    a task writes data files into the table's directory; the commit adds them
    upsert    a task stages its rows as Parquet files; the commit merges one change for each key

The identity of the micro-batch is part of the commit (`delta.py`, `iceberg.py`), so that a repeated micro-batch is not
committed again. A table belongs to one commit: with several tables in one query (${topic}), each has its own.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from barnabas.spark.connectors.lake.changes import KeyedRows, fold, from_staged, to_staged
from barnabas.spark.connectors.lake.columns import fit, lake_schema, new_columns
from barnabas.spark.connectors.lake.delta import open_delta
from barnabas.spark.connectors.lake.errors import LakeError
from barnabas.spark.connectors.lake.iceberg import open_iceberg
from barnabas.spark.connectors.lake.options import LakeKind, LakeOptions
from barnabas.spark.connectors.lake.ports import Commit, LakeTable
from barnabas.spark.connectors.lake.sweeping import attempt_note, staged_path, sweep
from barnabas.spark.connectors.sinking.options import InsertMode
from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId, Problem, Stage, StagedPart, TableRows
from barnabas.spark.connectors.sinking.presence import has_no_column
from barnabas.spark.delivery.identity import Standing

log = logging.getLogger("barnabas.spark")


class Place(msgspec.Struct, frozen=True):
    """What an attempt wrote for a table: data files, or staged files of rows to merge (StagedPart.place, as JSON)."""

    attempt: str
    files: tuple[str, ...] = ()
    staged: tuple[str, ...] = ()


class LakeTarget(msgspec.Struct, frozen=True):
    """A SinkTarget: the tables of one query."""

    options: LakeOptions

    def prepare(self, query_id: str | None) -> None:
        """Check that the package is installed and the storage can be reached. Nothing is removed: a task of an earlier
        driver of the query, which may still run, could have its files committed."""
        name = self.options.rows.table_format
        if "${topic}" not in name:
            self._open(name, None)

    def open_stage(self, attempt: AttemptId) -> Stage:
        return LakeStage(self, attempt)

    def publish(self, batch: BatchId, parts: Sequence[StagedPart]) -> None:
        for name in dict.fromkeys(part.table for part in parts):
            self._publish(batch, name, [part for part in parts if part.table == name])

    def discard(self, parts: Sequence[StagedPart]) -> None:
        """Removes nothing: Spark also calls this after a commit that raised, whose files may be in the table. The next
        commit of the query removes what does not count."""

    def open_table(self, name: str, schema: Any) -> LakeTable:
        """The table for rows of this schema, created or with new columns if it needs them. Raises LakeError."""
        table = self._open(name, schema)
        assert table is not None, "a table is created if there is a schema"
        self.fit_table(table, name, schema)
        return table

    def fit_table(self, table: LakeTable, name: str, schema: Any) -> None:
        """Add the columns that the table does not have. Raises LakeError if that is not allowed or not possible."""
        added = new_columns(table.schema(), schema)
        if not added:
            return
        if not self.options.evolve:
            raise LakeError(
                f"the table {name} has no column {added[0].name}, and auto.evolve is false: add it, leave it out"
                " of the rows, or set auto.evolve=true"
            )
        table.add_columns(added)
        log.info("the table %s has new columns: %s", name, ", ".join(field.name for field in added))

    def _open(self, name: str, schema: Any | None) -> LakeTable | None:
        if self.options.kind is LakeKind.DELTA:
            return open_delta(self.options, name, schema)
        return open_iceberg(self.options, name, schema)

    def _publish(self, batch: BatchId, name: str, parts: Sequence[StagedPart]) -> None:
        table = self._open(name, None)
        if table is None:
            raise LakeError(
                f"the table {name} was deleted while it was written. Start the query again with its checkpoint:"
                " the micro-batch is written again, into a new table"
            )
        identity = (
            None if batch.is_job else msgspec.structs.replace(batch, alone=name == self.options.rows.table_format)
        )
        places = [msgspec.json.decode(part.place, type=Place) for part in parts]
        attempts = tuple(place.attempt for place in places)
        committed = False
        if identity is None or identity.standing(table.committed_batch, table.name) is Standing.PUBLISH:
            if self.options.rows.changes_keys:
                attempts = (str(uuid.uuid4()),)
                committed = self._merge(table, name, parts, Commit(identity, attempts))
            else:
                files = [file for place in places for file in place.files]
                committed = table.append(files, Commit(identity, attempts))
        if not committed:
            log.info("micro-batch %d of %s is in the table %s already", batch.batch_id, batch.query_id, name)
            _remove(table, parts)
        try:
            sweep(table, batch, attempts if committed else ())
        except OSError as error:  # the micro-batch is in the table; the next commit removes what is left
            log.warning("files that do not belong to %s are not removed now: %s", name, error)

    def _merge(self, table: LakeTable, name: str, parts: Sequence[StagedPart], commit: Commit) -> bool:
        for part in parts:
            self.fit_table(table, name, part.schema)
        names = table.schema().names
        for part in parts:
            absent = [column for column in part.unavailable if column not in names]
            if absent and part.rows > part.deletes:
                raise LakeError(f"the table {name} {has_no_column(absent)}")
        rows = [
            from_staged(table.storage.read_parquet(path), part.unavailable)
            for part in parts
            for path in msgspec.json.decode(part.place, type=Place).staged
        ]
        inserts = self.options.rows.insert_mode is not InsertMode.UPDATE
        changes = fold(rows, parts[0].key, table.schema(), inserts)
        if commit.batch is not None:
            table.storage.write(attempt_note(commit.batch, commit.attempts[0]), b"")
        return table.merge(changes, commit)


class LakeStage:
    """What one task attempt writes."""

    def __init__(self, target: LakeTarget, attempt: AttemptId) -> None:
        self._target = target
        self._batch = BatchId(attempt.query_id, attempt.batch_id, attempt.is_job)
        self._partition = attempt.partition
        self._writers: dict[Any, _AppendWriter | _KeyedWriter] = {}

    def add(self, rows: TableRows) -> list[Problem]:
        if not rows.rows.num_rows:
            return []
        keyed = self._target.options.rows.changes_keys
        key: Any = (rows.table, rows.rows.schema, rows.unavailable) if keyed else rows.table
        writer = self._writers.get(key)
        if writer is None:
            table = self._target.open_table(rows.table, rows.rows.schema)
            made = _KeyedWriter if keyed else _AppendWriter
            writer = self._writers[key] = made(self._target, rows.table, table, self._batch)
        writer.add(rows)
        return []

    def finish(self) -> list[StagedPart]:
        return [writer.finish(self._partition) for writer in self._writers.values()]

    def abandon(self) -> None:
        for writer in self._writers.values():
            try:
                writer.remove()
            except OSError as error:  # the next commit of the query removes them
                log.info("files of a failed task are not removed now: %s", error)


class _Writer:
    """The rows of one attempt for one table. Rows are kept until they have the size of a file."""

    def __init__(self, target: LakeTarget, name: str, table: LakeTable, batch: BatchId) -> None:
        self._target = target
        self._name = name
        self._table = table
        self._batch = batch
        self._attempt = str(uuid.uuid4())
        self._pending: list[Any] = []
        self._bytes = 0
        self._rows = 0
        self._noted = False
        self._number = 0

    def _note(self) -> None:
        """Write a marker file before the first data file, by which files that were not committed are found."""
        if not self._noted:
            self._table.storage.write(attempt_note(self._batch, self._attempt), b"")
            self._noted = True

    def _keep(self, rows: Any, size: int) -> None:
        self._pending.append(rows)
        self._bytes += size
        if self._bytes >= self._target.options.file_bytes:
            self._flush()

    def _flush(self) -> None:
        raise NotImplementedError


class _AppendWriter(_Writer):
    """Rows as data files."""

    def __init__(self, target: LakeTarget, name: str, table: LakeTable, batch: BatchId) -> None:
        super().__init__(target, name, table, batch)
        self._files: list[str] = []
        self._schema = table.schema()
        self._seen: list[Any] = []

    def add(self, rows: TableRows) -> None:
        if rows.rows.schema not in self._seen:
            self._target.fit_table(self._table, self._name, rows.rows.schema)
            schema = self._table.schema()
            if schema != self._schema:
                self._flush()
                self._schema = schema
            self._seen.append(rows.rows.schema)
        self._rows += rows.rows.num_rows
        self._keep(fit(rows.rows, self._schema), rows.rows.nbytes)

    def _flush(self) -> None:
        import pyarrow as pa

        if self._pending:
            self._note()
            self._files += self._table.write(pa.concat_tables(self._pending), self._attempt)
            self._pending, self._bytes = [], 0

    def finish(self, partition: int) -> StagedPart:
        self._flush()
        place = msgspec.json.encode(Place(self._attempt, files=tuple(self._files))).decode()
        return StagedPart(self._name, self._schema, (), 0, partition, self._rows, 0, 0, place)

    def remove(self) -> None:
        self._table.remove(self._files)
        self._table.storage.delete([attempt_note(self._batch, self._attempt)])


class _KeyedWriter(_Writer):
    """Rows with one set of columns, and what they delete, as staged files."""

    def __init__(self, target: LakeTarget, name: str, table: LakeTable, batch: BatchId) -> None:
        super().__init__(target, name, table, batch)
        self._paths: list[str] = []
        self._first: TableRows | None = None
        self._deletes = 0

    def add(self, rows: TableRows) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._first = self._first or rows
        deleted = pa.repeat(False, rows.rows.num_rows) if rows.deleted is None else rows.deleted
        self._deletes += pc.sum(deleted).as_py()
        self._rows += rows.rows.num_rows
        table = fit(rows.rows, lake_schema(rows.rows.schema))  # a struct that is null has null in its required fields
        self._keep(to_staged(KeyedRows(table, deleted, rows.order)), rows.rows.nbytes)

    def _flush(self) -> None:
        import pyarrow as pa

        if self._pending:
            path = staged_path(self._batch, self._attempt, self._number)
            self._table.storage.write_parquet(path, pa.concat_tables(self._pending))
            self._paths.append(path)
            self._number += 1
            self._pending, self._bytes = [], 0

    def finish(self, partition: int) -> StagedPart:
        self._flush()
        first = self._first
        assert first is not None, "a writer is made for its first rows"
        place = msgspec.json.encode(Place(self._attempt, staged=tuple(self._paths))).decode()
        order = int(first.order[0].as_py())
        return StagedPart(
            self._name,
            first.rows.schema,
            first.key,
            first.step,
            partition,
            self._rows,
            self._deletes,
            order,
            place,
            unavailable=first.unavailable,
        )

    def remove(self) -> None:
        self._table.storage.delete(self._paths)


def _remove(table: LakeTable, parts: Iterable[StagedPart]) -> None:
    """Delete the files of attempts that are not committed and will not be."""
    for part in parts:
        place = msgspec.json.decode(part.place, type=Place)
        table.remove(place.files)
        table.storage.delete(place.staged)
