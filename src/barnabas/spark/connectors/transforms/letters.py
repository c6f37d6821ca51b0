"""Codec: records that a transform could not be applied to, as dead letters with the headers of Kafka Connect.

A dead letter has the bytes of the record as it was read. `spark/records/dead_letters.py` lists the headers; here the
stage is TRANSFORMATION, and the class is that of the transform.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from barnabas.spark.connectors.transforms.errors import RowFailure
from barnabas.spark.connectors.transforms.records import append_headers
from barnabas.spark.records.dead_letters import PREFIX, TaskIdentity


def transform_letters(batch: Any, failures: Sequence[RowFailure], task: TaskIdentity | None) -> Any:
    """The dead letters for rows of a batch of records as bytes, with the columns topic, partition and offset.

    `task` is None if `errors.deadletterqueue.context.headers.enable` is false.
    """
    rows = batch.take(pa.array([failure.row for failure in failures], pa.int64()))
    if task is None or not failures:
        return rows
    places = zip(*(rows.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    found = [_context(failure, place, task) for failure, place in zip(failures, places, strict=True)]
    columns = [pa.array([row[name].encode() for row in found], pa.binary()) for name in found[0]]
    return append_headers(rows, [PREFIX + name for name in found[0]], columns)


def _context(failure: RowFailure, place: tuple[str, int, int], task: TaskIdentity) -> dict[str, str]:
    topic, partition, offset = place
    return {
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "connector.name": task.query,
        "task.id": task.task,
        "stage": "TRANSFORMATION",
        "class.name": failure.class_name,
        "exception.class.name": failure.error,
        "exception.message": failure.message,
        "exception.stacktrace": f"{failure.error}: {failure.message}",
    }
