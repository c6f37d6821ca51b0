"""Codec: bad records as records of the dead-letter topic, with the headers of Connect's `DeadLetterQueueReporter`.

A dead letter has the key, the value, the timestamp and the headers of the bad record as they were, and then, unless
`errors.deadletterqueue.context.headers.enable` is false:

    __connect.errors.topic, .partition, .offset     where the bad record is
    __connect.errors.connector.name, .task.id       the query's id, and the number of the task's partition
    __connect.errors.stage                          KEY_CONVERTER or VALUE_CONVERTER
    __connect.errors.class.name                     the decoder
    __connect.errors.exception.class.name, .exception.message, .exception.stacktrace

All of them are text. There is no stack trace in a decoder of whole columns; that header has the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from barnabas.core.ids import TopicPartition
from barnabas.spark.records.formats import PartFormat
from barnabas.spark.records.typed_read import LETTER_COLUMNS

PREFIX: Final = "__connect.errors."
EXCEPTION: Final = "barnabas.client.errors.SerializationError"
DECODER: Final = "barnabas.spark.records.decoding.PartDecoder"
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The query and the task that reports a bad record."""

    query: str
    task: str


def letters(
    batch: Any,
    bad: Mapping[int, tuple[PartFormat, str]],
    tp: TopicPartition,
    task: TaskIdentity | None,
) -> Any:
    """A table of dead letters for the bad rows of a raw batch. `task` is None without context headers."""
    rows = batch.select(list(LETTER_COLUMNS)).take(pa.array(sorted(bad), pa.int64()))
    if task is None:
        return pa.Table.from_batches([rows])
    headers = []
    for row, offset, own in zip(sorted(bad), rows["offset"].to_pylist(), rows["headers"].to_pylist(), strict=True):
        part, message = bad[row]
        context = context_headers(tp, offset, task, part, message)
        headers.append([*(own or []), *({"key": name, "value": value} for name, value in context)])
    index = rows.schema.get_field_index("headers")
    column = pa.array(headers, pa.list_(pa.field("element", _HEADER)))
    return pa.Table.from_batches([rows.set_column(index, "headers", column)])


def context_headers(
    tp: TopicPartition, offset: int, task: TaskIdentity, part: PartFormat, message: str
) -> list[tuple[str, bytes]]:
    """The headers that say where a bad record is, and why it is bad."""
    found = {
        "topic": tp.topic,
        "partition": str(tp.partition),
        "offset": str(offset),
        "connector.name": task.query,
        "task.id": task.task,
        "stage": f"{part.part.upper()}_CONVERTER",
        "class.name": DECODER,
        "exception.class.name": EXCEPTION,
        "exception.message": message,
        "exception.stacktrace": f"{EXCEPTION}: {message}",
    }
    return [(PREFIX + name, value.encode()) for name, value in found.items()]


def count_letters(headers: Iterable[Iterable[tuple[str, bytes | None]]]) -> dict[TopicPartition, int]:
    """The number of different bad records of each partition, from the headers of dead letters. A bad record that was
    reported more than once counts once.
    """
    found: dict[TopicPartition, set[int]] = {}
    for one in headers:
        texts = {name: (value or b"").decode() for name, value in one if name.startswith(PREFIX)}
        try:
            tp = TopicPartition(texts[PREFIX + "topic"], int(texts[PREFIX + "partition"]))
            found.setdefault(tp, set()).add(int(texts[PREFIX + "offset"]))
        except (KeyError, ValueError):
            continue  # a record that something else wrote
    return {tp: len(offsets) for tp, offsets in sorted(found.items())}
