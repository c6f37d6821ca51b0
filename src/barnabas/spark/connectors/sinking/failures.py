"""Shell: the records that a sink leaves out: counted, logged, and written to the dead-letter topic.

A dead letter has Connect's headers of context. Its stage is TASK_PUT if the target of the sink refused the record.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from barnabas.spark.connection import connect, shared
from barnabas.spark.connectors.sinking.options import RowOptions
from barnabas.spark.connectors.sinking.records import RecordReader, Stage
from barnabas.spark.errors import SinkError
from barnabas.spark.records.dead_letter_topic import prepare_dead_letters
from barnabas.spark.records.dead_letters import PREFIX
from barnabas.spark.records.formats import ErrorsTolerance, RecordFormats
from barnabas.spark.records.reading import DeadLetterWriter
from barnabas.spark.sink.tasks import Attempt

log = logging.getLogger("barnabas.spark")

_FLUSH: Final = 1000
_CLASS: Final = "barnabas.spark.connectors.sinking"
_ERROR: Final = "barnabas.spark.errors.SinkError"


class FailedRecords:
    """The failed records of one task attempt."""

    def __init__(self, options: RowOptions, attempt: Attempt) -> None:
        self._options = options
        self._attempt = attempt
        self._pending: list[dict[str, Any]] = []
        self.count = 0

    def add(self, batch: Any, rows: range, reason: str, stage: Stage = "TASK_PUT") -> None:
        """Report these rows of a batch. Raises SinkError if errors.tolerance is none."""
        if self._options.tolerance is ErrorsTolerance.NONE:
            raise SinkError(
                f"{_place(batch, rows.start)}{reason}. Set errors.tolerance=all to go on without such records, and"
                " errors.deadletterqueue.topic.name to keep them"
            )
        self.count += len(rows)
        if self._options.log_errors:
            log.warning("%d records are left out: %s", len(rows), reason)
        if self._options.dead_letters is None:
            return
        for row in batch.slice(rows.start, len(rows)).to_pylist():
            self._pending.append(self._letter(row, reason, stage))
        if len(self._pending) >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Write the dead letters, and wait until the brokers have them."""
        if not self._pending or self._options.dead_letters is None:
            return
        import pyarrow as pa

        header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        columns = {
            "key": pa.binary(),
            "value": pa.binary(),
            "timestamp": pa.timestamp("ms", "UTC"),
            "headers": pa.list_(pa.field("element", header)),
        }
        table = pa.Table.from_pylist(self._pending, pa.schema(columns))
        shared(DeadLetterWriter, self._options.client).write(self._options.dead_letters.topic, table)
        self._pending = []

    def _letter(self, row: dict[str, Any], reason: str, stage: Stage) -> dict[str, Any]:
        value = row["value"] if "value" in row else msgspec.json.encode(row)
        headers = list(row.get("headers") or ())
        letters = self._options.dead_letters
        if letters is not None and letters.context_headers:
            context = self._context(row, reason, stage)
            headers += [{"key": PREFIX + name, "value": text.encode()} for name, text in context]
        place = {"timestamp": row.get("timestamp"), "headers": headers}
        return {"key": _bytes(row.get("key")), "value": _bytes(value), **place}

    def _context(self, row: dict[str, Any], reason: str, stage: Stage) -> list[tuple[str, str]]:
        place = [(name, str(row[name])) for name in ("topic", "partition", "offset") if row.get(name) is not None]
        return [
            *place,
            ("connector.name", self._attempt.query_id or self._attempt.run_id),
            ("task.id", str(self._attempt.partition)),
            ("stage", stage),
            ("class.name", _CLASS),
            ("exception.class.name", _ERROR),
            ("exception.message", reason),
            ("exception.stacktrace", f"{_ERROR}: {reason}"),
        ]


def _place(batch: Any, row: int) -> str:
    """Where a record is in its topic, if its columns say so."""
    if not all(name in batch.schema.names for name in ("topic", "partition", "offset")):
        return ""
    topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    return f"{topic}-{partition} offset {offset}: "


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()


def prepare_topic(options: RowOptions) -> None:
    """Create the dead-letter topic on the driver, if it does not exist. Raises KafkaError."""
    if options.dead_letters is not None:
        prepare_dead_letters(connect(options.client), RecordFormats(dead_letters=options.dead_letters), set())


def read_records(reader: RecordReader, batch: Any, failed: FailedRecords) -> list[Any]:
    """The records of a batch that can be read; the others are reported."""
    decoded, bad = reader.read(batch)
    for each in sorted(bad, key=lambda each: each.row):
        failed.add(batch, range(each.row, each.row + 1), each.reason, each.stage)
    return decoded
