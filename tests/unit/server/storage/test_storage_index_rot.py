"""A bit that flips in an index changes nothing: the log is read, appended to, truncated and recovered as before."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.server.storage import names
from barnabas.server.storage.segments import segment_files
from barnabas.server.storage.segments.segment import Segment
from tests.configs import log_config
from tests.unit.server.storage.logs import PATH, LogHarness, batch
from tests.unit.server.storage.memory_disk import MemoryDisk

SIZE = len(batch())
BATCHES = 8
RECORDS = 2


def harness() -> LogHarness:
    """A log of two segments that was closed; every batch but the first of a segment has entries in the indexes."""
    logs = LogHarness(
        disk=MemoryDisk(), config=log_config(internal_segment_bytes=6 * SIZE, index_interval_bytes=0), now_ms=0
    )
    for i in range(BATCHES):
        logs.append(batch(RECORDS, timestamp=1_000 + 10 * i))
    return logs


def indexes() -> list[tuple[str, int]]:
    """Every index file of `harness`, with its size."""
    logs = harness()
    logs.log.close()
    assert isinstance(logs.disk, MemoryDisk)
    kinds = (names.OFFSET_INDEX, names.TIME_INDEX)
    found = [(path, len(logs.disk.data(path))) for path in logs.disk.paths() if path.endswith(kinds)]
    assert len(found) == 4 and all(size for _, size in found)
    return found


def base_offsets(logs: LogHarness) -> list[int]:
    return [header.base_offset for header in logs.headers()]


@pytest.mark.parametrize(("path", "size"), indexes(), ids=lambda value: str(value).removeprefix(f"{PATH}/"))
@pytest.mark.parametrize("truncated_to", [None, RECORDS * (BATCHES - 1), RECORDS])
def test_flipped_bit_in_an_index_changes_nothing(path: str, size: int, truncated_to: int | None) -> None:
    for byte in range(size):
        for bit in (0, 2, 5, 7):
            logs = harness()
            disk, end = logs.disk, logs.log.log_end_offset
            assert isinstance(disk, MemoryDisk)
            logs.log.close()
            disk.flip_bit(path, byte, bit)
            logs.open(clean=True, recovery_point=end)
            if truncated_to is not None:
                end = truncated_to
                logs.log.truncate_to(end, now_ms=0)
            expected = list(range(0, end, RECORDS))
            assert base_offsets(logs) == expected, (byte, bit)
            logs.fill(7, start_timestamp=2_000)
            expected += range(end, end + 7)
            assert base_offsets(logs) == expected, (byte, bit)
            assert not logs.failures, (byte, bit)
            logs.kill(recovery_point=end)
            assert base_offsets(logs) == expected, (byte, bit)


@pytest.mark.parametrize("target", [(segment_files, "read_file"), (Segment, "_lookup_entry")], ids=["load", "look-up"])
@pytest.mark.parametrize("offset", [2, 4, 6])
def test_a_truncation_during_a_cold_read_leaves_the_index(
    target: tuple[Any, str], offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read, in another thread, has found the entry of a batch that is not there any more. It used to delete the
    index of what is the active segment now, and the next append or truncation took the log offline."""
    logs = harness()
    log, end = logs.log, logs.log.log_end_offset
    log.close()
    log = logs.open(clean=True, recovery_point=end)
    plan = log.plan_read(8, 100)
    owner, name = target
    original = getattr(owner, name)
    calls: list[int] = []

    def truncate_then(*arguments: Any, **named: Any) -> object:
        found: object = original(*arguments, **named)
        calls.append(1)
        if len(calls) == 1:
            log.truncate_to(offset, now_ms=0)
        return found

    monkeypatch.setattr(owner, name, truncate_then)
    plan.run()
    monkeypatch.undo()
    assert calls
    segment = log.segments.active
    assert segment.base_offset == 0
    assert segment.offset_index.last_offset < offset
    assert logs.disk.exists(segment.file_path(names.OFFSET_INDEX))
    logs.fill(2, start_timestamp=2_000)
    log.truncate_to(offset + 1, now_ms=0)
    assert base_offsets(logs) == [*range(0, offset, RECORDS), offset]
    assert not logs.failures
