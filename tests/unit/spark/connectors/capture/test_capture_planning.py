"""Offsets and micro-batches of capture queries: the snapshot first, file by file, then changes."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.spark.connectors.capture.errors import CaptureError, StagingError
from barnabas.spark.connectors.capture.manifest import Manifest, StagedFile
from barnabas.spark.connectors.capture.offsets import START, CaptureOffset, SnapshotProgress
from barnabas.spark.connectors.capture.planning import (
    Ranges,
    begin_snapshot,
    check_manifest,
    heartbeat_due,
    next_files,
    ranges_between,
)

P0: dict[str, Any] = {"lsn": "0/1"}
P1: dict[str, Any] = {"lsn": "0/2"}


def staged(*sizes: int) -> Manifest:
    files = tuple(StagedFile(f"s/{n}.arrow", "t", 1, size, n, False) for n, size in enumerate(sizes))
    return Manifest(1, "db", "s", P0, 0, files)


def reading(read: int, left: int, position: dict[str, Any] = P0) -> CaptureOffset:
    return CaptureOffset(SnapshotProgress("s", read, left), position)


def test_the_first_offset_is_constant_and_survives_json() -> None:
    assert START.to_json() == {"snapshot": None, "position": None}
    assert CaptureOffset.from_json(START.to_json()) == START


def test_an_offset_survives_json() -> None:
    offset = CaptureOffset(SnapshotProgress("s", 2, 3), P0, 17)
    assert CaptureOffset.from_json(offset.to_json()) == offset
    assert "heartbeat" not in reading(1, 2).to_json()


@pytest.mark.parametrize("value", [{"topic": {"0": 3}, "position": 3}, {"snapshot": None, "position": P0}])
def test_an_offset_of_another_source_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(CaptureError, match="checkpoint"):
        CaptureOffset.from_json(value)


def test_a_batch_takes_files_up_to_the_limit_and_at_least_one() -> None:
    manifest = staged(60, 60, 200, 10)
    sizes = [file.bytes for file in manifest.files]
    offset = begin_snapshot(manifest)
    steps = []
    while offset.snapshot is not None and offset.snapshot.left:
        offset = next_files(offset, sizes, 100)
        steps.append(offset.snapshot.read if offset.snapshot else 0)
    assert steps == [1, 2, 3, 4]
    assert next_files(begin_snapshot(manifest), sizes, 120) == reading(2, 2)
    assert next_files(begin_snapshot(manifest), sizes, None) == reading(4, 0)


def test_the_first_batch_reads_files_from_the_first_on() -> None:
    assert ranges_between(START, reading(2, 3)) == Ranges(0, 2, None, None)


def test_a_later_batch_reads_the_files_between_its_offsets() -> None:
    assert ranges_between(reading(2, 3), reading(5, 0)) == Ranges(2, 5, None, None)


def test_changes_follow_the_snapshot() -> None:
    assert ranges_between(reading(5, 0), reading(5, 0, P1)) == Ranges(5, 5, (P0, P1), None)


def test_a_batch_with_only_a_heartbeat_reads_no_changes() -> None:
    end = CaptureOffset(SnapshotProgress("s", 5, 0), P0, 99)
    assert ranges_between(reading(5, 0), end) == Ranges(5, 5, None, 99)


def test_an_empty_snapshot_is_read_at_once() -> None:
    assert begin_snapshot(staged()) == reading(0, 0)
    assert ranges_between(START, reading(0, 0)) == Ranges(0, 0, None, None)


@pytest.mark.parametrize("found", [None, Manifest(1, "db", "other", P0, 0, ())])
def test_a_staged_snapshot_that_is_gone_is_named(found: Manifest | None) -> None:
    with pytest.raises(StagingError, match="the staged snapshot s, which"):
        check_manifest(reading(2, 3), found)


def test_a_heartbeat_is_due_after_its_interval_and_when_the_clock_was_set_back() -> None:
    offset = CaptureOffset(SnapshotProgress("s", 0, 0), P0, 1000)
    assert not heartbeat_due(offset, 1400, 500)
    assert heartbeat_due(offset, 1500, 500)
    assert heartbeat_due(offset, 900, 500)
    assert not heartbeat_due(offset, 9000, 0)
