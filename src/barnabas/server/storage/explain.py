"""Machine: the state of one log that explains its last stable offset, its compaction and its retention.

The result consists of numbers and of the verdicts of `cleaner.cleanable` and `retention`. The command line turns them
into text.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from barnabas.server.storage.cleaner.cleanable import CleanableLog, assess
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.log import Log
from barnabas.server.storage.retention import RetentionStatus

OPEN_SHOWN: Final = 10
"""The maximum number of open transactions in `LogFacts.open_transactions`. The oldest determines the last stable
offset."""


class UnfinishedTransaction(Struct, frozen=True):
    """An open transaction of one producer."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp: int


class LogFacts(Struct, frozen=True):
    """The offsets, size, transactions, compaction and retention of one log at one moment."""

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
    """The number of ended transactions whose marker is not committed, which also limit the last stable offset."""
    open_transactions: tuple[UnfinishedTransaction, ...]
    """The oldest open transactions, in the order of their first offsets."""
    compaction: CleanableLog
    retention: RetentionStatus


def explain_log(log: Log, high_watermark: int, now_ms: int) -> LogFacts:
    """Collect the facts without changing the log. Raises StorageError if a segment's timestamps cannot be read."""
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
            UnfinishedTransaction(entry.producer_id, entry.epoch, entry.txn_first_offset, entry.last_timestamp)
            for entry in open_ones[:OPEN_SHOWN]
        ),
        assess(log, high_watermark, now_ms),
        log.explain_retention(high_watermark, now_ms),
    )
