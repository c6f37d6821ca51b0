"""Shell: what a cluster link does to the log of a partition that this broker leads.

Each function is complete when it returns, and raises KafkaError if this broker does not lead the partition any more.
Appended batches keep their offsets and leader epochs; the followers of this broker copy them as usual.
"""

from __future__ import annotations

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.protocol.records.validate import Origin
from barnabas.server.links.fetching.fetched import AppendMirrored
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.purgatory import COMPLETE_NOW
from barnabas.server.replication.roles.leader import LeaderRole
from barnabas.server.replication.rules.leader import UNKNOWN_OFFSET, on_truncated

log = get_logger("barnabas.server.replication")


def append(partition: Partition, records: Buffer, plan: AppendMirrored, now_ms: int) -> int:
    """Append the source's batches as `plan` says. Returns the number of bytes. Raises KafkaError for a wrong CRC and
    for an error of the disk."""
    leader, target = _leader(partition), partition.open_log
    if plan.restart_at is not None:
        target.truncate_fully_and_start_at(plan.restart_at, target.log_start_offset, now_ms=now_ms)
    if plan.begin == plan.end:
        return 0
    info = target.append_as_follower(memoryview(records)[plan.begin : plan.end], now_ms=now_ms)
    size = 0 if info is None else info.size
    if size:
        leader.on_appended(size)
    return size


def advance_log_start(partition: Partition, offset: int) -> None:
    """Follow the source's log start offset, as far as the records below are committed here."""
    leader, target = _leader(partition), partition.open_log
    offset = min(offset, partition.high_watermark)
    if offset > target.log_start_offset:
        target.advance_log_start(offset)
        leader.advance()


def restart_at(partition: Partition, offset: int, now_ms: int) -> None:
    """Delete all records, and continue at `offset`: the source has no older records."""
    leader, target = _leader(partition), partition.open_log
    target.truncate_fully_and_start_at(offset, now_ms=now_ms)
    partition.high_watermark = max(partition.high_watermark, offset)
    _announce(partition, leader)


def truncate(partition: Partition, offset: int, now_ms: int) -> None:
    """Cut off the records from `offset` on, also committed ones. Followers do so when they fetch next."""
    leader, target = _leader(partition), partition.open_log
    log.warning(
        "a mirror is truncated to what its source has; the records were saved before",
        partition=str(partition.name),
        log_end_offset=target.log_end_offset,
        high_watermark=partition.high_watermark,
        truncated_to=offset,
    )
    target.truncate_to(offset, now_ms=now_ms)
    leader.state = on_truncated(leader.state, target.log_end_offset)
    partition.high_watermark = max(min(partition.high_watermark, target.log_end_offset), target.log_start_offset)
    _announce(partition, leader)


def forget_empty_epochs(partition: Partition, now_ms: int) -> None:
    """Forget the leader epochs in which nothing was written: those of local leaders before the topic became a mirror.
    The source does not know them, and would report that the logs diverge."""
    target = partition.open_log
    target.truncate_to(target.log_end_offset, now_ms=now_ms)


def has_converged(partition: Partition, offset: int) -> bool:
    """Whether every assigned replica has fetched in this leader epoch from `offset` or below."""
    state = _leader(partition).state
    fetched = [state.progress(broker).log_end_offset for broker in state.replicas if broker != state.local_id]
    return all(UNKNOWN_OFFSET < end <= offset for end in fetched)


def largest_producer_id(partition: Partition) -> int:
    """The largest producer id whose state the log keeps, or -1."""
    return max((entry.producer_id for entry in partition.producers()), default=-1)


def abort_open_transactions(partition: Partition, now_ms: int) -> int:
    """Append an abort marker for each transaction that the source has left open. Returns their number."""
    leader, target = _leader(partition), partition.open_log
    hanging = target.producers.open_transactions
    for entry in hanging:
        marker = build_end_txn_marker(
            EndTxn(commit=False, coordinator_epoch=max(entry.coordinator_epoch, 0)),
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            timestamp=now_ms,
        )
        info = target.append_as_leader(
            marker, leader_epoch=leader.state.leader_epoch, now_ms=now_ms, origin=Origin.COORDINATOR
        )
        leader.on_appended(info.size)
    return len(hanging)


def _leader(partition: Partition) -> LeaderRole:
    role = partition.role
    if not isinstance(role, LeaderRole) or partition.log is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return role


def _announce(partition: Partition, leader: LeaderRole) -> None:
    """Wake up the requests that wait for what has changed."""
    partition.mark_changed()
    leader.advance()
    partition.follower_fetches.notify(COMPLETE_NOW)
    partition.consumer_fetches.notify(COMPLETE_NOW)
    partition.context.flush(partition.open_log)  # until then, the checkpointed high watermark is bounded
