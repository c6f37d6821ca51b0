"""`explain_log` and `explain_retention`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.server.storage.cleaner.cleanable import CleaningVerdict
from barnabas.server.storage.explain import OPEN_SHOWN, UnfinishedTransaction, explain_log
from barnabas.server.storage.retention import RetentionStatus, RetentionVerdict
from tests.configs import log_config
from tests.unit.server.storage.logs import LogHarness, batch

SMALL = log_config(internal_segment_bytes=200, retention_ms=1_000)


def open_transaction(logs: LogHarness, producer_id: int) -> None:
    logs.append(batch(producer_id=producer_id, producer_epoch=3, base_sequence=0, transactional=True, timestamp=7_000))


def test_open_transactions_oldest_first() -> None:
    logs = LogHarness()
    logs.append(batch())
    for producer_id in range(20, 5, -1):
        open_transaction(logs, producer_id)
    end = logs.log.log_end_offset
    facts = explain_log(logs.log, end, logs.now_ms)
    assert (facts.last_stable_offset, facts.high_watermark, facts.log_end_offset) == (1, 16, 16)
    assert (facts.open_count, facts.unreplicated_count, facts.producers) == (15, 0, 15)
    assert facts.open_transactions == tuple(UnfinishedTransaction(20 - i, 3, 1 + i, 7_000) for i in range(OPEN_SHOWN))
    assert facts.compaction.verdict is CleaningVerdict.NOT_COMPACTED
    logs.marker(20, 3, commit=True)
    assert explain_log(logs.log, end, logs.now_ms).last_stable_offset == 1, "the marker is above the high watermark"
    facts = explain_log(logs.log, end, logs.now_ms)
    assert (facts.open_count, facts.unreplicated_count) == (14, 1)
    facts = explain_log(logs.log, end + 1, logs.now_ms)
    assert (facts.open_count, facts.unreplicated_count, facts.last_stable_offset) == (14, 0, 2)


def fill(logs: LogHarness, *timestamps: int) -> None:
    for timestamp in timestamps:
        logs.append(batch(timestamp=timestamp, value=b"x" * 100))


def test_explain_retention_agrees_with_delete_old_segments() -> None:
    logs = LogHarness(config=SMALL)
    fill(logs, 9_000, 9_500, 9_900)
    assert len(logs.log.segments) == 3
    end = logs.log.log_end_offset
    facts = logs.log.explain_retention(end, 10_000)
    size = logs.log.segments.first.size
    assert facts == RetentionStatus(RetentionVerdict.WITHIN_LIMITS, 0, 1, size, False, 9_000, 10_001, 0)
    assert logs.log.enforce_retention(10_000, end) == 0
    assert logs.log.explain_retention(end, facts.expires_ms).verdict is RetentionVerdict.TOO_OLD
    assert logs.log.explain_retention(0, facts.expires_ms).verdict is RetentionVerdict.UNREPLICATED
    assert logs.log.enforce_retention(facts.expires_ms, end) == 1
    assert logs.log.explain_retention(end, 10_001).first_offset == 1


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"cleanup_policy": ("compact",)}, RetentionVerdict.KEPT_BY_POLICY),
        ({"retention_ms": -1}, RetentionVerdict.UNLIMITED),
        ({"retention_ms": -1, "retention_bytes": 10_000}, RetentionVerdict.WITHIN_LIMITS),
        ({"retention_ms": -1, "retention_bytes": 100}, RetentionVerdict.TOO_MUCH),
        ({"retention_ms": 0}, RetentionVerdict.TOO_OLD),
    ],
)
def test_verdicts(change: dict[str, object], verdict: RetentionVerdict) -> None:
    logs = LogHarness(config=replace(SMALL, **change))  # type: ignore[arg-type]  # the fields of a LogConfig
    assert logs.log.explain_retention(0, 10_000).verdict is RetentionVerdict.EMPTY
    fill(logs, 9_000, 9_000)
    end = logs.log.log_end_offset
    facts = logs.log.explain_retention(end, 10_000)
    assert facts.verdict is verdict
    assert (logs.log.enforce_retention(10_000, end) > 0) == verdict.due
