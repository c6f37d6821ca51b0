"""Shell: a directory of files as a sink. Tasks stage whole files; the driver renames those of the committed attempts.

A reader of the directory finds rows of committed micro-batches only, without a list of files as Spark's own file sink
needs it (`_spark_metadata`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from barnabas.spark.connectors.files.errors import FileWriteError
from barnabas.spark.connectors.files.formats import SUFFIXES, write_rows
from barnabas.spark.connectors.files.options import FileSinkOptions
from barnabas.spark.connectors.files.ports import (
    DIRECTORY,
    Decision,
    decided_batches,
    decision_path,
    final_name,
    query_directory,
)
from barnabas.spark.connectors.files.storage import FileDirectory
from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId, Problem, Stage, StagedPart, TableRows
from barnabas.spark.delivery.identity import LedgerEntry, Standing, decode_entry, encode_entry

DECISIONS_KEPT: Final = 2
"""Spark repeats the last micro-batch only. One more decision is kept for those who look for a fault."""


class DirectoryTarget(msgspec.Struct, frozen=True):
    """A SinkTarget: the directories of one query."""

    options: FileSinkOptions

    def prepare(self, query_id: str | None) -> None:
        """Refuse what files cannot do. Nothing is removed: a task of an earlier driver may still run."""
        if self.options.rows.changes_keys:
            raise FileWriteError("files are only appended to: set insert.mode=insert and delete.enabled=false")

    def open_stage(self, attempt: AttemptId) -> Stage:
        return FileStage(self.options, attempt)

    def publish(self, batch: BatchId, parts: Sequence[StagedPart]) -> None:
        for place in dict.fromkeys(part.table for part in parts):
            batch = msgspec.structs.replace(batch, alone=place == self.options.rows.table_format)
            self._publish(batch, place, [part for part in parts if part.table == place])

    def discard(self, parts: Sequence[StagedPart]) -> None:
        """Removes nothing: Spark also calls this after a commit that raised, whose files may be decided. The next
        commit of the query removes what does not count."""

    def _publish(self, batch: BatchId, place: str, parts: Sequence[StagedPart]) -> None:
        directory = self._directory(place)
        decided = decided_batches(directory.list(query_directory(batch.query_id)), batch.query_id)
        if batch.standing(lambda query_id: _newest(directory, query_id), place) is Standing.PUBLISH:
            for number in decided[-1:]:  # its driver may have died before the files had their names
                _carry_out(directory, BatchId(batch.query_id, number))
            later = [number for number in decided if number >= batch.batch_id]  # a repair writes these again
            directory.delete([decision_path(BatchId(batch.query_id, number)) for number in sorted(later, reverse=True)])
            # If another driver of the query decides at the same moment, its decision counts.
            directory.create_once(decision_path(batch), msgspec.json.encode(self._decide(batch, parts)))
            _carry_out(directory, batch)
        else:
            parents = () if batch.history is None else batch.history.parents
            for query_id in (batch.query_id, *parents):  # its driver may have died before the files had their names
                if batch.batch_id in decided_batches(directory.list(query_directory(query_id)), query_id):
                    _carry_out(directory, BatchId(query_id, batch.batch_id))
                    break
        self._sweep(directory, batch)

    def _decide(self, batch: BatchId, parts: Sequence[StagedPart]) -> Decision:
        moves = []
        for part in sorted(parts, key=lambda part: part.partition):
            for number, path in enumerate(_staged(part)):
                moves.append((path, final_name(batch, part.partition, number, SUFFIXES[self.options.format])))
        assert len({name for _, name in moves}) == len(moves), "a task stages one part for each table"
        return Decision(tuple(moves), encode_entry(batch.entry()))

    def _sweep(self, directory: FileDirectory, batch: BatchId) -> None:
        """Remove the staged files of this micro-batch and earlier ones, which have no part in their decisions."""
        below = query_directory(batch.query_id) + "/"
        paths = directory.list(below.rstrip("/"))
        old = decided_batches(paths, batch.query_id)[:-DECISIONS_KEPT]
        directory.delete([decision_path(BatchId(batch.query_id, number)) for number in old])
        # The directory of this micro-batch exists, also if its files have their final names.
        staged = {int(path.split("/")[2]) for path in paths if path.count("/") == 3}
        for number in sorted({batch.batch_id} | {number for number in staged if number <= batch.batch_id}):
            directory.delete_directory(f"{below}{number}")

    def _directory(self, place: str) -> FileDirectory:
        return FileDirectory.open(place, self.options.storage)


class FileStage:
    """The files of one task attempt. A file ends when its rows have the size of a file or another schema."""

    def __init__(self, options: FileSinkOptions, attempt: AttemptId, directory: str | None = None) -> None:
        """All rows are staged in `directory`, or those of each table in the table's own."""
        self._options = options
        self._directory = directory
        self._attempt = attempt
        self._name = uuid.uuid4().hex
        self._pending: dict[str, list[Any]] = {}
        self._bytes: dict[str, int] = {}
        self._staged: dict[str, list[str]] = {}
        self._schemas: dict[str, Any] = {}
        self._rows: dict[str, int] = {}

    def add(self, rows: TableRows) -> list[Problem]:
        place, batch = self._directory or rows.table, rows.rows
        if not batch.num_rows:
            return []
        if self._pending.get(place) and self._pending[place][0].schema != batch.schema:
            self._flush(place)
        self._pending.setdefault(place, []).append(batch)
        self._schemas[place] = batch.schema
        self._bytes[place] = self._bytes.get(place, 0) + batch.nbytes
        self._rows[place] = self._rows.get(place, 0) + batch.num_rows
        if self._bytes[place] >= self._options.file_bytes:
            self._flush(place)
        return []

    def _flush(self, place: str) -> None:
        import pyarrow as pa

        pending = self._pending.pop(place, [])
        self._bytes[place] = 0
        if not pending:
            return
        attempt, staged = self._attempt, self._staged.setdefault(place, [])
        suffix = SUFFIXES[self._options.format]
        path = f"{DIRECTORY}/{attempt.query_id}/{attempt.batch_id}/{self._name}-{len(staged)}{suffix}"
        content = write_rows(pa.Table.from_batches(pending), self._options.format)
        FileDirectory.open(place, self._options.storage).write(path, content)
        staged.append(path)

    def finish(self) -> list[StagedPart]:
        for place in list(self._pending):
            self._flush(place)
        partition = self._attempt.partition
        return [
            StagedPart(
                place,
                self._schemas[place],
                (),
                0,
                partition,
                self._rows[place],
                0,
                0,
                msgspec.json.encode(paths).decode(),
            )
            for place, paths in self._staged.items()
        ]

    def abandon(self) -> None:
        for place, paths in self._staged.items():
            try:
                FileDirectory.open(place, self._options.storage).delete(paths)
            except OSError:  # the next commit of the query removes them
                continue


def _newest(directory: FileDirectory, query_id: str) -> LedgerEntry | None:
    """The newest micro-batch of a query that is decided."""
    decided = decided_batches(directory.list(query_directory(query_id)), query_id)
    if not decided:
        return None
    return decode_entry(_decision(directory, BatchId(query_id, decided[-1])).identity, decided[-1])


def _decision(directory: FileDirectory, batch: BatchId) -> Decision:
    return msgspec.json.decode(directory.read(decision_path(batch)), type=Decision)


def _staged(part: StagedPart) -> list[str]:
    return msgspec.json.decode(part.place, type=list[str])


def _carry_out(directory: FileDirectory, batch: BatchId) -> None:
    """Give the files of a decided micro-batch their names. May be repeated."""
    for source, target in _decision(directory, batch).moves:
        directory.move(source, target)
