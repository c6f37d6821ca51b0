"""A bit that flips in an index changes nothing: the log is read, appended to, truncated and recovered as before."""

from __future__ import annotations

import pytest

from barnabas.server.storage import names
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
