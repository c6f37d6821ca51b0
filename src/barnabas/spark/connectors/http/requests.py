"""Machine: records -> requests: their bodies and their idempotency keys.

The key of a request with one record is `topic-partition-offset`, of one with several `topic-partition-first-last`. A
record is in the same request again if Spark repeats the micro-batch, since requests end at offsets that are multiples
of the batch size. Rows that have no topic, partition and offset get keys of the query, the micro-batch, the task and
the number of the row; those stay the same if Spark gives the task the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from barnabas.spark.connectors.http.options import BatchFormat, HttpOptions


class RecordText(msgspec.Struct, frozen=True):
    """One record: the text of its value, and its place, or its place among the rows of the task."""

    text: bytes
    source: str
    """`topic-partition`, or `query-batch-task`."""
    position: int
    """The offset, or the number of the row."""


class Request(msgspec.Struct, frozen=True):
    """One request: its body and key, and which records it has (first, and the one after the last)."""

    body: bytes
    key: str
    first: int
    end: int


class BadText(msgspec.Struct, frozen=True):
    """A record that cannot be part of a request, and why."""

    index: int
    reason: str


def requests_of(records: Sequence[RecordText], options: HttpOptions) -> Iterator[Request | BadText]:
    """Divide records into requests, in their order."""
    start = 0
    size = 0
    for index, record in enumerate(records):
        reason = _unfit(record, options.batch_format)
        if reason is not None:
            if start < index:
                yield _request(records, start, index, options)
            yield BadText(index, reason)
            start, size = index + 1, 0
            continue
        if start < index and (
            not _together(records[index - 1], record, options.batch_records)
            or size + len(record.text) > options.batch_bytes
        ):
            yield _request(records, start, index, options)
            start, size = index, 0
        size += len(record.text) + 1
    if start < len(records):
        yield _request(records, start, len(records), options)


def _together(before: RecordText, record: RecordText, size: int) -> bool:
    """Whether two records that follow one another may be in one request."""
    return (
        before.source == record.source
        and before.position < record.position
        and before.position // size == record.position // size
    )


def _unfit(record: RecordText, batch_format: BatchFormat | None) -> str | None:
    """Why a record cannot be part of a body with several records; None if it can."""
    if batch_format is BatchFormat.JSON_ARRAY:
        try:
            msgspec.json.decode(record.text, type=Any)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return f"its value is not JSON ({error}), which batch.format=json-array needs: set batch.format=lines"
    if batch_format is BatchFormat.LINES and b"\n" in record.text.rstrip(b"\n"):
        return "its value has several lines, and batch.format=lines ends a record with its line: set json-array"
    return None


def _request(records: Sequence[RecordText], first: int, end: int, options: HttpOptions) -> Request:
    texts = [record.text for record in records[first:end]]
    if options.batch_format is BatchFormat.JSON_ARRAY:
        body = b"[" + b",".join(texts) + b"]"
    elif options.batch_format is BatchFormat.LINES:
        body = b"".join(text.rstrip(b"\n") + b"\n" for text in texts)
    else:
        body = texts[0]
    one, last = records[first], records[end - 1]
    key = f"{one.source}-{one.position}"
    return Request(body, key if options.batch_format is None else f"{key}-{last.position}", first, end)
