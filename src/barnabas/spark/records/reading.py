"""Shell: runs in a worker: the typed batches of a range, and what becomes of records that cannot be read.

Dead letters are acknowledged before the rows that follow them are passed to Spark, so none is lost. A task that Spark
repeats reports its bad records again: a source is not told which of its attempts counts, so dead letters are written at
least once. `count_letters` counts each bad record once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from barnabas.client.config import PRODUCER_CONFIGS
from barnabas.client.producer.producer import AsyncProducer
from barnabas.core.ids import TopicPartition
from barnabas.spark.connection import BlockingClient, shared
from barnabas.spark.errors import RecordError
from barnabas.spark.records.dead_letters import TaskIdentity, letters
from barnabas.spark.records.decoding import PartDecoder
from barnabas.spark.records.formats import DeadLetterOptions, ErrorsTolerance, PartFormat
from barnabas.spark.records.typed_read import TypedRead

log = logging.getLogger("barnabas.spark")

DECODERS_MAX = 100
"""The largest number of decoders that a process keeps. A decoder has compiled programs, which cost milliseconds."""

Bad = Mapping[int, tuple[PartFormat, str]]
"""Row -> the part that cannot be read, and why."""


def typed_batches(raw: Iterator[Any], wanted: TypedRead, tp: TopicPartition) -> Iterator[Any]:
    """The typed rows of raw batches of one partition. Raises RecordError for a bad record (errors.tolerance=none), and
    SchemaChangedError as `schema.evolution` says.
    """
    decoders = [(part, _decoder(part, wanted)) for part in wanted.formats.typed if part.part in wanted.target.names]
    report = BadRecords(wanted, tp)
    for batch in raw:
        columns = {name: batch.column(name) for name in wanted.target.names}
        bad: dict[int, tuple[PartFormat, str]] = {}
        for part, decoder in decoders:
            columns[part.part], failures = decoder.decode(columns[part.part], tp.topic)
            for row, problem in failures.items():
                bad.setdefault(row, (part, problem))
        typed = pa.RecordBatch.from_arrays(list(columns.values()), schema=wanted.target)
        if bad:
            report.handle(batch, bad)
            keep = [row not in bad for row in range(batch.num_rows)]
            typed = typed.filter(pa.array(keep))
        if typed.num_rows:
            yield typed
    report.finish()


class BadRecords:
    """Handles the bad records of one range as the options say, and counts them."""

    def __init__(self, wanted: TypedRead, tp: TopicPartition) -> None:
        self._formats = wanted.formats
        self._client = wanted.client
        self._tp = tp
        self.count = 0
        self._first: tuple[int, str] | None = None

    def handle(self, batch: Any, bad: Bad) -> None:
        """Raise RecordError, or write dead letters, or only count the bad rows of a raw batch."""
        row = min(bad)
        part, problem = bad[row]
        offset = batch.column("offset")[row].as_py()
        if self._formats.tolerance is ErrorsTolerance.NONE:
            raise RecordError(
                f"the {part.part} of the record at offset {offset} of {self._tp.topic}, partition"
                f" {self._tp.partition}, cannot be read as {part.format.value}: {problem}. To leave such records out,"
                " set errors.tolerance=all, and errors.deadletterqueue.topic.name to keep them"
            )
        self.count += len(bad)
        self._first = self._first or (offset, problem)
        if self._formats.dead_letters is not None:
            self._write(batch, bad, self._formats.dead_letters)

    def _write(self, batch: Any, bad: Bad, options: DeadLetterOptions) -> None:
        table = letters(batch, bad, self._tp, _task() if options.context_headers else None)
        shared(DeadLetterWriter, self._client).write(options.topic, table)

    def finish(self) -> None:
        """Log how many records were left out."""
        if self._first is not None:
            offset, problem = self._first
            letters_topic = self._formats.dead_letters
            where = "left out" if letters_topic is None else f"written to {letters_topic.topic}"
            log.warning("%d bad records of %s are %s; offset %d: %s", self.count, self._tp, where, offset, problem)


class DeadLetterWriter(BlockingClient):
    """A producer for dead letters."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        known = {name: value for name, value in settings.items() if name in PRODUCER_CONFIGS.keys}
        self._producer: AsyncProducer = self.run(self._open(known))

    async def _open(self, settings: Mapping[str, str]) -> AsyncProducer:
        return AsyncProducer(settings)

    async def disconnect(self) -> None:
        await self._producer.shut(timeout_ms=0)

    def write(self, topic: str, table: Any) -> None:
        """Write the letters, and wait until they are acknowledged. Raises KafkaError."""
        self.run(self._producer.send_arrow(topic, table, key="key", timestamp="timestamp", headers="headers"))


_decoders: dict[object, PartDecoder] = {}
_decoders_of = os.getpid()


def _decoder(part: PartFormat, wanted: TypedRead) -> PartDecoder:
    """This process's decoder; created at the first call, and kept for later micro-batches."""
    global _decoders_of
    target = wanted.target.field(part.part).type
    key = part, wanted.formats, wanted.pinned.get(part.part), str(target)
    if _decoders_of != os.getpid() or len(_decoders) >= DECODERS_MAX:
        _decoders.clear()
        _decoders_of = os.getpid()
    found = _decoders.get(key)
    if found is None:
        found = _decoders[key] = PartDecoder(part, wanted.formats, wanted.pinned.get(part.part), target)
    return found


def _task() -> TaskIdentity:
    context = TaskContext.get()
    if context is None:
        return TaskIdentity("", "0")
    return TaskIdentity(context.getLocalProperty("sql.streaming.queryId") or "", str(context.partitionId()))
