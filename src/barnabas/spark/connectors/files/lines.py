"""Shell: one text file as a sink (Connect's FileStreamSink): each row is a line at the end of the file.

    <file>                   the lines
    <file>.barnabas.json     the ledger: the last micro-batch of each query, and the one that is being appended

The ledger is written before the lines, and again after them. If the driver dies in between, the next one cuts the file
to the size in the ledger, and appends the micro-batch again. Nothing else may write the file.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

import msgspec

from barnabas.spark.connectors.files.errors import FileWriteError
from barnabas.spark.connectors.files.options import FileSinkOptions
from barnabas.spark.connectors.files.ports import query_directory
from barnabas.spark.connectors.files.target import FileStage
from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId, Stage, StagedPart
from barnabas.spark.delivery.identity import LedgerEntry, Standing, decode_entry, encode_entry


class Appending(msgspec.Struct, frozen=True):
    """A micro-batch whose lines are being appended at `start`, the file's size before it."""

    query_id: str
    batch_id: int
    start: int


class LineLedger(msgspec.Struct, frozen=True):
    """The last micro-batch of each query that is in the file as a whole, and what identifies it (`LedgerEntry`)."""

    batches: dict[str, int] = {}
    identities: dict[str, str] = {}
    appending: Appending | None = None

    def entry(self, query_id: str) -> LedgerEntry | None:
        """The last micro-batch of a query."""
        return decode_entry(self.identities.get(query_id), self.batches.get(query_id))


class LineFileTarget(msgspec.Struct, frozen=True):
    """A SinkTarget: one file of lines. Tasks stage the lines beside it."""

    options: FileSinkOptions

    def prepare(self, query_id: str | None) -> None:
        if self.options.rows.changes_keys:
            raise FileWriteError("lines are only appended: set insert.mode=insert and delete.enabled=false")
        Path(self.options.place).parent.mkdir(parents=True, exist_ok=True)

    def open_stage(self, attempt: AttemptId) -> Stage:
        return FileStage(self.options, attempt, self._staging())

    def publish(self, batch: BatchId, parts: Sequence[StagedPart]) -> None:
        if not parts:
            return
        lines = LineFile(Path(self.options.place))
        directory = Path(self._staging())
        staged = [directory / path for part in sorted(parts, key=lambda part: part.partition) for path in _paths(part)]
        lines.append(batch, staged)
        self._sweep(batch)

    def discard(self, parts: Sequence[StagedPart]) -> None:
        """Removes nothing: Spark writes the micro-batch again, and that commit removes what was staged."""

    def _sweep(self, batch: BatchId) -> None:
        """Remove what was staged for this micro-batch and earlier ones of the query."""
        directory = Path(self._staging()) / query_directory(batch.query_id)
        for staged in list(directory.glob("*")):
            if staged.name.isdecimal() and int(staged.name) <= batch.batch_id:
                shutil.rmtree(staged, ignore_errors=True)

    def _staging(self) -> str:
        """The directory in which tasks stage lines."""
        return f"{self.options.place}.barnabas"


class LineFile:
    """A file of lines, and its ledger."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ledger = path.with_name(path.name + ".barnabas.json")

    def append(self, batch: BatchId, staged: Sequence[Path]) -> None:
        """Append the contents of files, unless the micro-batch is in the file. Raises DeliveryError."""
        ledger = self._read_ledger()
        if batch.standing(ledger.entry, str(self._path)) is Standing.PUBLISHED:
            return
        start = self._path.stat().st_size if self._path.exists() else 0
        if ledger.appending is not None:  # the driver of that batch died: its lines are cut off
            start = min(start, ledger.appending.start)
        appending = Appending(batch.query_id, batch.batch_id, start)
        self._write_ledger(LineLedger(ledger.batches, ledger.identities, appending))
        with self._path.open("r+b" if self._path.exists() else "wb") as file:
            file.truncate(start)
            file.seek(start)
            for path in staged:
                file.write(path.read_bytes())
            file.flush()
            os.fsync(file.fileno())
        done, identities = ledger.batches, ledger.identities
        if not batch.is_job:
            done = {**done, batch.query_id: batch.batch_id}
            identities = {**identities, batch.query_id: encode_entry(batch.entry())}
        self._write_ledger(LineLedger(done, identities))

    def _read_ledger(self) -> LineLedger:
        if not self._ledger.exists():
            return LineLedger()
        return msgspec.json.decode(self._ledger.read_bytes(), type=LineLedger)

    def _write_ledger(self, ledger: LineLedger) -> None:
        part = self._ledger.with_name(f".{self._ledger.name}.{uuid.uuid4().hex}")
        with part.open("wb") as file:
            file.write(msgspec.json.encode(ledger))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._ledger)


def _paths(part: StagedPart) -> list[str]:
    return msgspec.json.decode(part.place, type=list[str])
