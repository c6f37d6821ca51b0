"""Machine: the facts about one log behind the questions why it is held back, not compacted, or not trimmed.

Only facts: numbers, names, verdicts of the rules themselves (`cleaner.cleanable`, `retention`). Whoever shows them to
people finds the words.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from barnabas.server.storage.cleaner.cleanable import CleanableLog, assess
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.log import Log
from barnabas.server.storage.retention import RetentionStatus

OPEN_SHOWN: Final = 10
"""How many open transactions are told one by one: the oldest hold the others' readers back anyway."""


class OpenTransaction(Struct, frozen=True):
    """What the log knows of a transaction that nobody has ended yet."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp: int


class LogFacts(Struct, frozen=True):
    """One log at one moment."""

    config: LogConfig
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segments: int
    producers: int
    open_count: int
    unreplicated_count: int
    """Ended transactions whose marker is not committed: they hold the last stable offset back, too."""
    open_transactions: tuple[OpenTransaction, ...]
    """The oldest ones, oldest first."""
    compaction: CleanableLog
    retention: RetentionStatus


def explain_log(log: Log, high_watermark: int, now_ms: int) -> LogFacts:
    """Looks at everything, changes nothing. Raises StorageError when a segment's timestamps cannot be read."""
    open_ones = log.producers.open_transactions
    return LogFacts(
        log.config,
        log.log_start_offset,
        log.last_stable_offset(high_watermark),
        high_watermark,
        log.log_end_offset,
        log.size_bytes,
        len(log.segments),
        len(log.producers),
        len(open_ones),
        log.producers.unreplicated_count(high_watermark),
        tuple(
            OpenTransaction(entry.producer_id, entry.epoch, entry.txn_first_offset, entry.last_timestamp)
            for entry in open_ones[:OPEN_SHOWN]
        ),
        assess(log, high_watermark, now_ms),
        log.explain_retention(high_watermark, now_ms),
    )
