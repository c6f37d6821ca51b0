"""Shell: the leader of a partition: appends, serves followers' fetches, keeps the ISR, advances the high watermark.

A follower has all records below the offset of its fetch. A fetch may therefore admit the follower to the ISR and may
commit records. The machines `rules/leader.py`, `rules/isr.py` and `rules/watermark.py` decide; ISR proposals go
to the controller through the `propose_isr` callable.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.validate import Checked, Origin
from barnabas.server.metadata.image.cluster import PartitionImage
from barnabas.server.replication.local_replica import FLUSH_EVERY_MESSAGE, NEWS_S, LocalReplica
from barnabas.server.replication.purgatory import COMPLETE_NOW
from barnabas.server.replication.reading import PartitionRead, read_batches
from barnabas.server.replication.rules.isr import (
    CommittedIsr,
    Next,
    joining_soon,
    on_outcome,
    try_expand,
    try_shrink,
)
from barnabas.server.replication.rules.leader import (
    UNKNOWN_BROKER_EPOCH,
    UNKNOWN_OFFSET,
    IsrProposal,
    LeaderState,
    acknowledge,
    is_stale_fetch,
    lacks_follower,
    refuse_append,
)
from barnabas.server.replication.rules.watermark import high_watermark
from barnabas.server.storage.values import AppendInfo

log = get_logger("barnabas.server.replication")


class FollowerFetch(Struct, frozen=True):
    """One partition of a follower's Fetch request."""

    replica_id: int
    broker_epoch: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class LeaderRole:
    """The role of a partition that this broker leads. Methods raise KafkaError with the code for the wire."""

    __slots__ = ("_context", "_propose_isr", "_replica", "state")

    def __init__(self, replica: LocalReplica, state: LeaderState, propose_isr: Callable[[IsrProposal], None]) -> None:
        """`propose_isr` sends an ISR proposal to the controller; the answer arrives in `on_isr_outcome`."""
        self.state = state
        self._replica = replica
        self._context = replica.context
        self._propose_isr = propose_isr

    def on_image(self, image: PartitionImage) -> None:
        """Apply an image of the same leader epoch: the replicas or the ISR changed."""
        before = self.state.isr
        self.state = self.state.on_image(image.partition_epoch, image.replicas, image.isr)
        self._on_isr(before)
        self._replica.mark_changed()
        self.advance()
        self._replica.delayed_deletes.notify(COMPLETE_NOW)

    def _on_isr(self, before: frozenset[int]) -> None:
        """Count and log a change of the ISR."""
        isr, traffic = self.state.isr, self._context.traffic
        if isr == before:
            return
        if before - isr:
            traffic.isr_shrinks += 1
        if isr - before:
            traffic.isr_expands += 1
        log.info(
            "the ISR shrank" if before - isr else "the ISR grew",
            partition=str(self._replica.name),
            isr=sorted(isr),
            replicas=len(self.state.replicas),
        )

    def on_durable(self) -> None:
        """A flush of the log has finished."""
        self.advance()

    # -- producers -----------------------------------------------------------------------------------------------------

    def append(
        self, records: Buffer, acks: int, now_ms: int, origin: Origin, checked: Checked | None = None
    ) -> AppendInfo:
        """Append record batches. Raises KafkaError if too few replicas are in sync, the records are invalid, or the
        disk fails."""
        replica, state = self._replica, self.state
        target = replica.log
        assert target is not None, "a leader has a log"
        config = target.config
        if config.mirror_name:
            self._check_writable()
        if acks == -1:
            refusal = refuse_append(state, acks, config.min_insync_replicas)
            if refusal is not ErrorCode.NONE:
                raise KafkaError(
                    refusal,
                    f"{len(state.isr)} replicas of {replica.name} are in sync, "
                    f"min.insync.replicas is {config.min_insync_replicas}.",
                )
            if self._context.silence_max_ms is not None and origin is Origin.CLIENT and self.is_cut_off():
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"This leader of {replica.name} is cut off from the controller and from an in-sync follower: "
                    "another broker may lead by now.",
                )
        info = target.append_as_leader(
            records, leader_epoch=state.leader_epoch, now_ms=now_ms, origin=origin, checked=checked
        )
        if not info.duplicate:
            traffic = replica.traffic
            traffic.appends += 1
            traffic.messages_in += info.last_offset - info.first_offset + 1
            traffic.bytes_in += info.size
            self.on_appended(info.size)
        return info

    def is_cut_off(self) -> bool:
        """Whether neither the controller nor every in-sync follower is in contact with this leader.

        Nothing can be committed then, and another broker may lead. Writes with acks=all are rejected, so that their
        clients look for that broker (clients of Kafka's leader wait for their time-outs). Without a controller, a
        leader goes on as long as its followers fetch.
        """
        silence_max_ms = self._context.silence_max_ms
        if silence_max_ms is None:
            return False
        self._replica.follower_fetches.record_caught_up()
        return lacks_follower(self.state, self._context.now_ms(), silence_max_ms)

    def on_appended(self, size: int) -> None:
        """Commit what was appended, if no follower is needed for that, and wake up the requests that wait for it."""
        replica = self._replica
        replica.add_unannounced(size)
        if replica.log is not None and replica.log.must_flush:
            replica.flush_if_due()
        self.advance()
        if replica.follower_fetches:
            replica.follower_fetches.notify(size)

    def _check_writable(self) -> None:
        """Raises KafkaError POLICY_VIOLATION while the partition is a mirror."""
        config = self._replica.open_log.config
        if config.is_mirror:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self._replica.name} is a mirror: only the cluster link {config.mirror_name} writes it. Promote the "
                f"topic first (barnabas links promote {config.mirror_name}).",
            )

    def try_committed(self, offset: int) -> ErrorCode | None:
        """The acks=all answer for the records below `offset`, or None while those records are not committed."""
        watermark = self._replica.high_watermark
        if watermark < offset:
            return None
        least = self._replica.open_log.config.min_insync_replicas
        return acknowledge(self.state, offset, watermark, least)

    def advance(self) -> None:
        """Raise the high watermark as far as the replicas' progress allows, and wake up the requests that wait."""
        replica, context, leader = self._replica, self._context, self.state
        target = replica.log
        assert target is not None, "a leader has a log"
        config = target.config
        end = target.log_end_offset
        counted = target.durable_offset if config.flush_messages <= FLUSH_EVERY_MESSAGE else end
        joining = (
            joining_soon(leader, end, context.active_brokers, context.replica_lag_time_max_ms, context.now_ms())
            if len(leader.isr) < len(leader.replicas)
            else ()
        )
        before = replica.high_watermark
        after = high_watermark(leader, counted, before, min_insync_replicas=config.min_insync_replicas, joining=joining)
        if after > before:
            replica.high_watermark = after
            if replica.delayed_produces:
                replica.delayed_produces.complete(after, lambda offset: self.try_committed(offset) or ErrorCode.NONE)
            replica.announce_high_watermark(end)

    # -- DeleteRecords -------------------------------------------------------------------------------------------------

    def delete_records(self, before_offset: int, now_ms: int) -> int:
        """Move the log start to `before_offset` (-1: the high watermark). Returns the low watermark, which followers
        may still hold back."""
        replica, target = self._replica, self._replica.open_log
        self._check_writable()
        if target.config.compact and not target.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {replica.name} cannot be deleted: its cleanup.policy does not include delete.",
            )
        offset = replica.high_watermark if before_offset == -1 else before_offset
        if offset < 0 or offset > replica.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {replica.name} is not within 0 and the high watermark {replica.high_watermark}.",
            )
        target.delete_records(offset, replica.high_watermark, now_ms=now_ms)
        replica.follower_fetches.complete_within(NEWS_S)
        return self.low_watermark()

    def low_watermark(self) -> int:
        """The smallest log start offset among this replica and the active followers (`lowWatermarkIfLeader`)."""
        leader, active = self.state, self._context.active_brokers
        starts = [
            leader.progress(broker).log_start_offset
            for broker in leader.replicas
            if broker != leader.local_id and broker in active
        ]
        return min([self._replica.open_log.log_start_offset, *starts])

    # -- followers -----------------------------------------------------------------------------------------------------

    def read_by_follower(self, fetch: FollowerFetch, *, min_one_batch: bool, first: bool) -> PartitionRead:
        """Batches up to the log end offset. `first` is True for the first read of a request: the fetch offset then
        counts as the follower's progress.

        Raises KafkaError for a broker that is not a replica or has registered again, and for an offset out of range.
        """
        replica, leader = self._replica, self.state
        target = replica.open_log
        self._check_follower(fetch)
        found = read_batches(
            replica,
            target,
            fetch.fetch_offset,
            fetch.max_bytes,
            upper_offset=target.log_end_offset,
            min_one_batch=min_one_batch,
            last_fetched_epoch=fetch.last_fetched_epoch,
        )
        if found.diverging is not None:
            return found
        if found.remote is not None:
            raise KafkaError(
                ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
                f"Offset {fetch.fetch_offset} of {replica.name} lies below the local log start offset "
                f"{target.local_log_start_offset}.",
            )
        if not first:
            return found
        self.state = leader.on_fetch(
            fetch.replica_id,
            fetch.fetch_offset,
            target.log_end_offset,
            self._context.now_ms(),
            broker_epoch=fetch.broker_epoch,
            log_start_offset=fetch.log_start_offset,
        )
        replica.on_progress()
        if fetch.log_start_offset > leader.progress(fetch.replica_id).log_start_offset:
            replica.delayed_deletes.notify(COMPLETE_NOW)
        if len(leader.isr) < len(leader.replicas):
            self._expand_isr()
        self.advance()
        return replace(found, high_watermark=replica.high_watermark)

    def was_caught_up(self, replica_id: int, at_ms: int) -> None:
        """Record that a follower was caught up at `at_ms`, when its incremental fetch session sent a request that did
        not name this partition. Fetch sessions call this before the partition changes, not for each request."""
        leader = self.state
        known = leader.followers.get(replica_id)
        if known is None or known.log_end_offset == UNKNOWN_OFFSET or at_ms <= known.last_fetch_ms:
            return
        end = known.log_end_offset
        self.state = leader.on_fetch(
            replica_id, end, end, at_ms, broker_epoch=known.broker_epoch, log_start_offset=known.log_start_offset
        )

    def _check_follower(self, fetch: FollowerFetch) -> None:
        broker, leader = fetch.replica_id, self.state
        if broker not in leader.replicas or broker == leader.local_id:
            # A broker that knows the current leader epoch has a newer image than this one and will send the fetch
            # again (Partition.followerReplicaOrThrow).
            known = fetch.current_leader_epoch >= 0
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if known else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker {broker} is not a replica of {self._replica.name}.",
            )
        registered = self._context.active_brokers.get(broker, UNKNOWN_BROKER_EPOCH)
        newest = max(registered, leader.progress(broker).broker_epoch)
        if is_stale_fetch(fetch.broker_epoch, newest):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker {broker} fetched with broker epoch {fetch.broker_epoch} but has registered again with "
                f"{newest}.",
            )

    def preferred_read_replica(self, fetch_offset: int, near: frozenset[int]) -> int | None:
        """The replica in `near` that a consumer should read from (KIP-392), or None for the leader.

        The result is the in-sync follower that has `fetch_offset` and the largest log end offset. Ties go to the
        follower that was caught up last, then to the smaller id (`ReplicaView.comparator`).
        """
        if self.state.local_id in near:
            return None
        self._replica.follower_fetches.record_caught_up()
        leader = self.state
        having = [
            (progress.log_end_offset, progress.caught_up_ms, -broker)
            for broker in near & leader.isr
            if (progress := leader.progress(broker)).log_start_offset <= fetch_offset <= progress.log_end_offset
        ]
        return -max(having)[2] if having else None

    # -- in-sync replicas ----------------------------------------------------------------------------------------------

    def _expand_isr(self) -> None:
        grown = try_expand(self.state, self._replica.high_watermark, self._context.active_brokers)
        if grown is not None:
            self.state, proposal = grown
            self._propose_isr(proposal)

    def shrink_isr(self) -> None:
        """Propose an ISR without the followers that have lagged for longer than replica.lag.time.max.ms."""
        leader, context = self.state, self._context
        if len(leader.replicas) == 1:
            return
        shrunk = try_shrink(
            leader,
            self._replica.open_log.log_end_offset,
            context.active_brokers,
            context.replica_lag_time_max_ms,
            context.now_ms(),
        )
        if shrunk is not None:
            self.state, proposal = shrunk
            self._propose_isr(proposal)
        self.advance()  # a follower outside the ISR that held the watermark back may have fallen behind by now

    def on_isr_outcome(self, proposal: IsrProposal, error: ErrorCode, answer: CommittedIsr | None) -> Next:
        """Apply the controller's answer to a proposal."""
        before = self.state.isr
        self.state, todo = on_outcome(self.state, proposal, error, answer)
        self._on_isr(before)
        if todo is Next.DONE and error is not ErrorCode.NONE:
            self._context.traffic.failed_isr_updates += 1
        self._replica.follower_fetches.mark_changed()
        if todo is Next.DONE:
            self.advance()
        return todo
