"""Codec: facts about a partition -> sentences: why readers are held back, why a log is not compacted or shortened.

All sentences of `barnabas topics why` are written in this module. A sentence ends with the remedy, if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.client.explanations.words import ago, counted, duration, moment, percent, size_text

if TYPE_CHECKING:
    from barnabas.client.admin.maintenance import (
        CompactionFacts,
        MaintenanceReport,
        OpenTransactionFacts,
        PartitionFacts,
        RetentionFacts,
    )
    from barnabas.core.ids import TopicPartition

NO_TIMEOUT_MS: Final = 2_147_483_647

LIMITS: Final = {
    "ACTIVE_SEGMENT": "the active segment begins there, and an active segment is never compacted",
    "UNSTABLE": "a segment begins there that ends above the last stable offset",
    "TOO_YOUNG": "a segment begins there that has records younger than min.compaction.lag.ms",
}


def answers(name: TopicPartition, facts: PartitionFacts) -> dict[str, list[str]]:
    """The sentences for each question: `readers`, `compaction`, `retention`."""
    return {
        "readers": list(readers(name, facts)),
        "compaction": list(compaction(name, facts)),
        "retention": list(retention(facts.retention, facts.size_bytes, facts.now_ms)),
    }


# -- the last stable offset ------------------------------------------------------------------------------------------


def readers(name: TopicPartition, facts: PartitionFacts) -> Iterator[str]:
    """Why consumers do not see all records that were written."""
    stable, watermark = facts.last_stable_offset, facts.high_watermark
    if watermark < facts.log_end_offset:
        behind = counted(facts.log_end_offset - watermark, "record")
        yield (
            f"{behind} at the end are not replicated to all in-sync replicas yet; consumers "
            f"cannot read past {watermark}."
        )
    if stable == watermark:
        yield f"No transaction holds readers back: read_committed consumers read up to the high watermark, {watermark}."
        return
    held = counted(watermark - stable, "record")
    yield f"read_committed consumers stop at offset {stable}, {held} before the high watermark, {watermark}."
    if not facts.open_transactions:
        ended = counted(facts.unreplicated_transaction_count, "transaction")
        yield f"{ended} ended, but the marker that says so is not replicated to all in-sync replicas yet."
        return
    yield from _open_transaction(name, facts.open_transactions[0], facts.now_ms)
    others = facts.open_transaction_count - 1
    if others:
        rest = ", ".join(_producer_name(t) + f" since offset {t.first_offset}" for t in facts.open_transactions[1:4])
        yield f"After it, {counted(others, 'more transaction')} {'is' if others == 1 else 'are'} open: {rest}" + (
            ", ..." if others > 3 else "."
        )


def _producer_name(transaction: OpenTransactionFacts) -> str:
    known = transaction.transactional_id
    return f"producer {transaction.producer_id}" + ("" if known is None else f" ({known})")


def _open_transaction(name: TopicPartition, transaction: OpenTransactionFacts, now_ms: int) -> Iterator[str]:
    since = f", begun {ago(transaction.first_timestamp, now_ms)}" if transaction.first_timestamp >= 0 else ""
    silent = f"; it last wrote {ago(transaction.last_timestamp, now_ms)}" if transaction.last_timestamp >= 0 else ""
    yield (
        f"Producer {transaction.producer_id}, epoch {transaction.producer_epoch}, has a transaction open since offset "
        f"{transaction.first_offset}{since}{silent}."
    )
    abort = f"`barnabas transactions abort {name.topic} {name.partition} --start-offset {transaction.first_offset}`"
    known, state = transaction.transactional_id, transaction.transaction_state
    if known is None:
        yield (
            f"No coordinator knows this producer, so none will end the transaction. Abort it "
            f"in this partition: {abort}."
        )
    elif state in ("PrepareCommit", "PrepareAbort"):
        yield (
            f"Its id is {known!r}, and broker {transaction.coordinator_id} has decided its result ({state}): "
            "the marker is being written to this partition."
        )
    elif not transaction.in_transaction:
        yield (
            f"Its id is {known!r}, but in the state of its coordinator, broker "
            f"{transaction.coordinator_id}, this partition "
            f"is in no transaction (state {state}), so the transaction will not be ended "
            f"here. Abort it in this partition: {abort}."
        )
    elif transaction.timeout_ms == NO_TIMEOUT_MS:
        yield (
            f"Its id is {known!r}, state {state}: a transaction of two-phase commit, which "
            f"only the external transaction manager ends, or "
            f"`barnabas transactions fence {known}`."
        )
    else:
        left = transaction.started_ms + transaction.timeout_ms - now_ms
        when = f"in {duration(left)}" if left > 0 else "at any moment"
        yield (
            f"Its id is {known!r}, state {state} at broker {transaction.coordinator_id}, which aborts it {when} "
            f"(after {duration(transaction.timeout_ms)}) unless the producer ends it first; "
            f"`barnabas transactions fence {known}` ends it now."
        )


# -- compaction ------------------------------------------------------------------------------------------------------


def compaction(name: TopicPartition, facts: PartitionFacts) -> Iterator[str]:
    """Why the log cleaner will, or will not, compact the partition in its next pass."""
    found = facts.compaction
    if found.verdict == "NOT_COMPACTED":
        yield f"The log is not compacted: cleanup.policy is {facts.cleanup_policy or 'none'}."
        return
    if not found.enabled:
        yield "The log cleaner is disabled: log.cleaner.enable is false."
    if found.running:
        yield "The log is being compacted now."
    if found.failure is not None:
        failed = found.failure
        yield (
            f"The last {'pass' if failed.count == 1 else f'{failed.count} passes'} failed, since "
            f"{moment(failed.since_ms)}: {failed.reason} The next try is due in "
            f"{duration(failed.retry_ms - facts.now_ms)}."
        )
    yield verdict_sentence(name, found)
    if found.verdict in ("NOT_DIRTY_ENOUGH", "DIRTY_ENOUGH", "LAG_EXCEEDED"):
        clean = f"The log is clean up to offset {found.first_dirty_offset} ({size_text(found.clean_bytes)}); from "
        yield (
            f"{clean if found.clean_bytes else 'From '}offset {found.first_uncleanable_offset} on the log cannot be "
            f"compacted: {LIMITS.get(found.limit, found.limit)}."
        )
    if found.last_pass is not None:
        last = found.last_pass
        yield (
            f"The last pass ended {ago(last.ended_ms, facts.now_ms)}, at offset {last.end_offset}: it kept "
            f"{last.records_kept:,} of {counted(last.records_read, 'record')}, "
            f"{size_text(last.bytes_written)} of {size_text(last.bytes_read)}."
        )


def verdict_sentence(name: TopicPartition, found: CompactionFacts) -> str:
    again = f"`barnabas logs compact --topic {name.topic}:{name.partition}"
    match found.verdict:
        case "DIRTY_ENOUGH":
            return (
                f"The log is due: {percent(found.dirty_ratio)} of the cleanable bytes are dirty, more than "
                f"min.cleanable.dirty.ratio, {percent(found.min_dirty_ratio)}."
            )
        case "LAG_EXCEEDED":
            return (
                "The log is due, whatever its dirty ratio is: the oldest dirty record has waited longer than "
                f"max.compaction.lag.ms, {duration(found.max_lag_ms)}."
            )
        case "NOT_DIRTY_ENOUGH":
            return (
                f"The log is not due: {percent(found.dirty_ratio)} of the cleanable bytes are dirty "
                f"({size_text(found.cleanable_bytes)}), and min.cleanable.dirty.ratio requires more than "
                f"{percent(found.min_dirty_ratio)}. {again} --force` compacts it now."
            )
        case "ACTIVE_SEGMENT":
            return (
                f"All dirty records, from offset {found.first_dirty_offset} on, are in the active segment, which is "
                "never compacted; segment.bytes or segment.ms closes it. "
                f"{again} --roll --force` closes and compacts it now."
            )
        case "UNSTABLE":
            why = found.detail or "an open transaction, or records that are not replicated yet"
            return f"The dirty records, from offset {found.first_dirty_offset} on, are not stable: {why}."
        case "TOO_YOUNG":
            return (
                f"The dirty records, from offset {found.first_dirty_offset} on, are younger than "
                f"min.compaction.lag.ms, {duration(found.min_lag_ms)}."
            )
        case "ALL_CLEAN":
            return f"There is nothing to do: the log is clean up to offset {found.first_dirty_offset}."
        case "MOVING":
            return "Compaction is paused while the replica moves to another log directory (`barnabas logs dirs`)."
        case "EMPTY":
            return "There is nothing to do: the log is empty."
        case "MIRROR":
            return "The log is not compacted: the topic is a mirror, which has the batches of its source as they are."
        case "OFFLINE":
            return f"The log is not compacted: it is offline{': ' if found.detail else ''}{found.detail}."
        case other:
            return f"{other}{': ' if found.detail else ''}{found.detail}."


# -- retention -------------------------------------------------------------------------------------------------------


def retention(found: RetentionFacts, size_bytes: int, now_ms: int) -> Iterator[str]:
    """Why the oldest segment is still kept, and until when."""
    age, volume = _limits(found)
    if found.verdict == "EMPTY":
        yield "There is nothing to delete: the log is empty."
        return
    if found.verdict == "KEPT_BY_POLICY":
        yield "No segment is deleted for its age or size: cleanup.policy does not include delete."
        return
    if found.verdict == "UNLIMITED":
        yield f"No segment is ever deleted: neither {age} nor {volume} sets a limit."
        return
    if found.verdict == "MIRROR":
        yield "No segment is deleted for its age or size: the topic is a mirror, whose log start follows the source."
        return
    if found.verdict == "OFFLINE":
        yield "No segment is deleted: the log is offline."
        return
    which = "the active one" if found.is_active else "closed"
    yield (
        f"The oldest segment, {which}, holds the offsets {found.first_offset} to {found.end_offset - 1}, "
        f"{size_text(found.size)}; its newest record was written at {moment(found.youngest_ms)}."
    )
    looks = f"checked every {duration(found.check_interval_ms)}"
    match found.verdict:
        case "UNREPLICATED":
            yield "The segment is kept until it is replicated to all in-sync replicas."
        case "NOT_COPIED":
            yield "The segment is kept until tiered storage has copied it to the object store."
        case "BELOW_START":
            yield f"The segment is due: all its records are below the log start offset; {looks}."
        case "TOO_OLD":
            yield f"The segment is due: older than {age}, {duration(found.retention_ms)}; {looks}."
        case "TOO_MUCH":
            yield (
                f"The segment is due: even without it, the log, {size_text(size_bytes)}, has {volume}, "
                f"{size_text(found.retention_bytes)}; {looks}."
            )
        case "WITHIN_LIMITS":
            yield from _within(found, size_bytes, now_ms)
        case other:
            yield f"{other}."


def _limits(found: RetentionFacts) -> tuple[str, str]:
    """The names of the configs by which segments are deleted here. In a tiered log, retention.* is for the copies."""
    prefix = "local." if found.is_local else ""
    return f"{prefix}retention.ms", f"{prefix}retention.bytes"


def _within(found: RetentionFacts, size_bytes: int, now_ms: int) -> Iterator[str]:
    age, volume = _limits(found)
    if found.expires_ms >= 0:
        yield (
            f"By its age, the segment is deleted in {duration(found.expires_ms - now_ms)}, "
            f"at {moment(found.expires_ms)} ({age} is {duration(found.retention_ms)})."
        )
    if found.retention_bytes >= 0:
        room = found.size - found.excess_bytes
        yield (
            f"By size, the segment is deleted when the log, now {size_text(size_bytes)}, has grown by "
            f"{size_text(max(room, 0))} ({volume} is {size_text(found.retention_bytes)})."
        )


# -- what a pass did -------------------------------------------------------------------------------------------------

_NOT_COMPACTED: Final = {
    "NOT_COMPACTED": "not compacted: cleanup.policy does not include compact",
    "BEING_CLEANED": "nothing done: the broker's log cleaner is compacting it",
    "EMPTY": "nothing to do: the log is empty",
    "MIRROR": "not compacted: the topic is a mirror, which has the batches of its source",
    "OFFLINE": "nothing done: the log is offline",
    "MOVING": "nothing done: the replica is being moved to another log directory",
    "ALL_CLEAN": "nothing to do: no dirty records",
    "ACTIVE_SEGMENT": "nothing to do: all dirty records are in the active segment (--roll --force)",
    "UNSTABLE": "nothing to do: the dirty records are not stable",
    "TOO_YOUNG": "nothing to do: the dirty records are younger than min.compaction.lag.ms",
    "NOT_DIRTY_ENOUGH": "not dirty enough (--force)",
    "DIRTY_ENOUGH": "would be compacted: dirty enough",
    "LAG_EXCEEDED": "would be compacted: max.compaction.lag.ms is exceeded",
}
_RETENTION_OUTCOMES: Final = {
    "BEING_CLEANED": "nothing done: the log is being compacted",
    "EMPTY": "nothing to delete: the log is empty",
    "KEPT_BY_POLICY": "nothing deleted: cleanup.policy does not include delete",
    "UNLIMITED": "nothing deleted: no limit is set",
    "WITHIN_LIMITS": "nothing deleted: within retention.ms and retention.bytes",
    "UNREPLICATED": "nothing deleted: not replicated yet",
    "NOT_COPIED": "nothing deleted: not copied to the object store yet",
    "MIRROR": "nothing deleted: the topic is a mirror, whose log starts where its source's does",
    "OFFLINE": "nothing deleted: the log is offline",
    "BELOW_START": "would be deleted: below the log start offset",
    "TOO_OLD": "would be deleted: older than retention.ms",
    "TOO_MUCH": "would be deleted: beyond retention.bytes",
}


def compact_outcome(report: MaintenanceReport) -> str:
    return "compacted" if report.done else _NOT_COMPACTED.get(report.verdict, report.verdict)


def retention_outcome(report: MaintenanceReport) -> str:
    return "segments deleted" if report.done else _RETENTION_OUTCOMES.get(report.verdict, report.verdict)
