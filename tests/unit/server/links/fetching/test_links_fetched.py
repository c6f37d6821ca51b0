"""Which of the source's batches a mirror appends."""

from __future__ import annotations

import pytest

from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.server.links.fetching.fetched import AppendMirrored, ContradictsLog, plan_append


def batch(base: int, count: int = 2, epoch: int = 3) -> bytes:
    records = [SimpleRecord(b"k", b"%d" % n, 0) for n in range(count)]
    return build_batch(records, base_offset=base, leader_epoch=epoch)


SIZE = len(batch(0))


@pytest.mark.parametrize(
    ("records", "log_start", "log_end", "expected"),
    [
        (b"", 0, 0, AppendMirrored(0, 0)),
        (batch(4) + batch(6), 0, 4, AppendMirrored(0, 2 * SIZE)),
        (batch(4) + batch(9), 0, 4, AppendMirrored(0, 2 * SIZE)),  # compaction left a gap
        (batch(2) + batch(4), 0, 4, AppendMirrored(SIZE, 2 * SIZE)),  # the log has the first batch
        (batch(2), 0, 4, AppendMirrored(SIZE, SIZE)),
        (batch(4) + batch(6)[:30], 0, 4, AppendMirrored(0, SIZE)),  # a response may end inside a batch
        (batch(4), 5, 5, AppendMirrored(0, SIZE, restart_at=4)),  # the log start lies inside a batch
        (batch(4) + batch(6, epoch=9), 0, 4, AppendMirrored(0, SIZE, later_epoch=9)),
        (batch(4, epoch=9), 0, 4, AppendMirrored(0, 0, later_epoch=9)),
    ],
)
def test_what_is_appended(records: bytes, log_start: int, log_end: int, expected: AppendMirrored) -> None:
    assert plan_append(records, log_start, log_end, 5) == expected


@pytest.mark.parametrize(
    ("records", "log_end"), [(batch(3), 4), (batch(4) + batch(4), 4), (batch(4) + batch(5), 4), (b"\x00" * 70, 0)]
)
def test_batches_that_contradict_the_log_are_refused(records: bytes, log_end: int) -> None:
    assert isinstance(plan_append(records, 0, log_end, 5), ContradictsLog)
