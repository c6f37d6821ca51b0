"""Machine: what a micro-batch of a capture query reads: staged files of the snapshot, or changes, never both.

Snapshot files are read in their order, so many per micro-batch as `bytes_max` allows and at least one.

A query whose position is lost starts anew with failOnDataLoss=false: the next micro-batch goes from the lost position
to the files of a new snapshot, and reads no changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from barnabas.spark.connectors.capture.errors import LostPositionError, StagingError
from barnabas.spark.connectors.capture.manifest import Manifest
from barnabas.spark.connectors.capture.offsets import CaptureOffset, SnapshotProgress


class Ranges(Struct, frozen=True):
    """What the micro-batch from one offset to another reads: staged files [first_file, end_file), changes, a heartbeat.

    `changes` is (start, end) of the source's positions, or None. `heartbeat` is a time in ms, or None.
    """

    first_file: int
    end_file: int
    changes: tuple[dict[str, Any], dict[str, Any]] | None
    heartbeat: int | None


def begin_snapshot(manifest: Manifest) -> CaptureOffset:
    """The offset before the first file of a staged snapshot."""
    return CaptureOffset(SnapshotProgress(manifest.id, 0, len(manifest.files)), manifest.position)


def next_files(start: CaptureOffset, file_bytes: Sequence[int], bytes_max: int | None) -> CaptureOffset:
    """The offset after the next files of the snapshot; `file_bytes` has the sizes of all its files."""
    assert start.snapshot is not None
    stop, size = start.snapshot.read, 0
    while stop < len(file_bytes) and (bytes_max is None or not size or size + file_bytes[stop] <= bytes_max):
        size += max(1, file_bytes[stop])
        stop += 1
    progress = SnapshotProgress(start.snapshot.id, stop, len(file_bytes) - stop)
    return structs.replace(start, snapshot=progress)


def ranges_between(start: CaptureOffset, end: CaptureOffset) -> Ranges:
    """What is read to get from `start` to `end`, two offsets of one query with start before end."""
    first = 0 if start.snapshot is None or starts_anew(start, end) else start.snapshot.read
    stop = first if end.snapshot is None else end.snapshot.read
    heartbeat = end.heartbeat if end.heartbeat != start.heartbeat else None
    if start.position is None or start.position == end.position or starts_anew(start, end):
        return Ranges(first, stop, None, heartbeat)
    assert end.position is not None
    return Ranges(first, stop, (start.position, end.position), heartbeat)


def starts_anew(start: CaptureOffset, end: CaptureOffset) -> bool:
    """Whether the position of `start` was lost, so that `end` is in another snapshot."""
    return start.snapshot is not None and end.snapshot is not None and start.snapshot.id != end.snapshot.id


def new_start(error: LostPositionError, *, fails: bool, rows: bool = True) -> str:
    """The warning with which a query starts anew, whose position is lost. Without `rows`, the new snapshot has only a
    position. Raises the error if the query is to stop (failOnDataLoss).
    """
    if fails:
        raise error
    anew = (
        "with a new snapshot; there are no deletes of rows that only the old one had"
        if rows
        else "with the changes from now on (snapshot.mode=no_data); those before are lost"
    )
    return f"{error}. The query starts anew, since failOnDataLoss=false, {anew}"


def era(starts: int) -> str:
    """The prefix of places after the query has continued `starts` times in another history of the database, whose
    positions begin anew. Small letters sort after digits and capitals, so these places follow those before.
    """
    return f"e{starts:04d}." if starts else ""


def check_manifest(offset: CaptureOffset, manifest: Manifest | None) -> Manifest:
    """The staged snapshot of which the query has read a part. Raises StagingError if it is another one or gone."""
    assert offset.snapshot is not None
    if manifest is None or manifest.id != offset.snapshot.id:
        found = "is gone" if manifest is None else f"was replaced by the snapshot {manifest.id}"
        raise StagingError(
            f"the query has read {offset.snapshot.read} files of the staged snapshot {offset.snapshot.id}, which"
            f" {found}: restore stagingLocation, or start the query over with a new checkpoint and an empty"
            " stagingLocation"
        )
    return manifest


def heartbeat_due(start: CaptureOffset, now_ms: int, interval_ms: int) -> bool:
    """Whether a heartbeat record is to be written now. A clock that was set back does not stop the heartbeats."""
    return interval_ms > 0 and not 0 <= now_ms - start.heartbeat < interval_ms
