"""Shell: one partition on this node: its log, its role, and who waits for it.

What is decided (watermark, acknowledgement, epochs, who is in sync) is decided in `rules`; what is kept is kept by
`storage.log`. Here the two meet. Nothing but the two waiting methods is asynchronous, so whatever a request changes it
changes before its first await. Every refusal is a `KafkaError` with the code for the wire.

This file keeps the role, appends and moves the watermark; `reading.py` reads, `leading.py` serves followers and keeps
the ISR, `following.py` copies from a leader.
"""

from __future__ import annotations

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId, TopicPartition
from barnabas.protocol.records.validate import Origin
from barnabas.server.metadata.image.cluster import PartitionImage
from barnabas.server.replication import following, leading, reading
from barnabas.server.replication.host import Host
from barnabas.server.replication.purgatory import COMPLETE_NOW, CommitPurgatory, Purgatory
from barnabas.server.replication.reading import Isolation, PartitionRead, SpecialTimestamp
from barnabas.server.replication.rules.follower import FollowerState, follow
from barnabas.server.replication.rules.isr import joining_soon
from barnabas.server.replication.rules.leader import (
    LeaderState,
    acknowledge,
    begin_leadership,
    check_leader_epoch,
    refuse_append,
)
from barnabas.server.replication.rules.watermark import high_watermark
from barnabas.server.storage.listener import LogListener
from barnabas.server.storage.log import Log
from barnabas.server.storage.producers.state import ProducerEntry
from barnabas.server.storage.values import AppendInfo

__all__ = ["Isolation", "Partition", "PartitionRead", "SpecialTimestamp"]

FLUSH_FIRST = 1
"""flush.messages=1: nothing counts as written before it is on the disk, at leaders and at followers."""
NEWS_S = 0.05
"""A follower that waits for records hears of a new watermark or log start after so long: others wait for it."""


class Partition(LogListener):
    """One replica that this node hosts. `log` is None once its disk has failed."""

    def __init__(
        self, name: TopicPartition, topic_id: TopicId, log: Log | None, host: Host, watermark: int = 0
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.host = host
        self.leader: LeaderState | None = None
        """Set while this node leads the partition."""
        self.follower: FollowerState | None = None
        """Set while another broker leads it, or nobody."""
        self.leader_id = -1
        self.leader_epoch = -1
        self.high_watermark = 0 if log is None else min(max(watermark, log.log_start_offset), log.log_end_offset)
        self.consumer_fetches = Purgatory()
        """Fetches of consumers: woken by the watermark."""
        self.follower_fetches = Purgatory()
        """Fetches of followers: woken by appends."""
        self.delayed_deletes = Purgatory()
        """Those who wait until every replica has deleted what they wanted deleted."""
        self._committed: CommitPurgatory[ErrorCode] = CommitPurgatory()
        self._untold_bytes = 0
        """Bytes appended since `consumer_fetches` was last notified that the whole log can be read."""
        if log is not None:
            log.add_listener(self)

    def on_log_start_advanced(self) -> None:
        self.mark_changed()

    def mark_changed(self) -> None:
        """Something is different that nobody need wake for: an in-sync replica, where the log starts."""
        self.consumer_fetches.mark_changed()
        self.follower_fetches.mark_changed()

    @property
    def watermark_to_remember(self) -> int:
        """For the next process: what a power failure could bring back from before a cut was never committed."""
        cut = None if self.log is None else self.log.unsynced_truncation
        return self.high_watermark if cut is None else min(self.high_watermark, cut)

    # ---- role

    def apply_image(self, image: PartitionImage) -> bool:
        """Take the role the cluster gives. True when this begins a leadership (a new epoch with us as leader)."""
        if image.leader_epoch < self.leader_epoch:
            return False
        moved = (image.leader, image.leader_epoch) != (self.leader_id, self.leader_epoch)
        self.leader_id, self.leader_epoch = image.leader, image.leader_epoch
        log = self.log
        if log is None:
            return False
        if image.leader != self.host.node_id:
            self.follower = follow(self.follower, image.leader, image.leader_epoch)
            if moved:
                self._resign(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return False
        if self.leader is None or moved:
            return self._lead(image, log)
        self.leader = self.leader.on_image(image.partition_epoch, image.replicas, image.isr)
        self.mark_changed()
        self.advance()
        self.delayed_deletes.notify(COMPLETE_NOW)
        return False

    def _lead(self, image: PartitionImage, log: Log) -> bool:
        """Begin a leadership, unless its epoch cannot be written. Who waits for a commit goes on waiting if this node
        led before: what it has appended is still there."""
        self.follower = None
        log.assign_epoch(image.leader_epoch, log.log_end_offset)
        if log.failure is not None:  # `fail` has been called
            return False
        self.leader = begin_leadership(
            self.host.node_id,
            image.leader_epoch,
            image.partition_epoch,
            image.replicas,
            image.isr,
            log.log_end_offset,
            self.host.now_ms(),
        )
        self.flush_if_due()
        self.advance()
        self.follower_fetches.notify(COMPLETE_NOW)  # they fetch in an epoch that is over
        self.consumer_fetches.mark_changed()
        self.host.on_role(self)
        return True

    def fail(self) -> None:
        """The disk is gone: everyone who waits is told, everyone who comes gets KAFKA_STORAGE_ERROR."""
        self.log = self.follower = None
        self._resign(ErrorCode.KAFKA_STORAGE_ERROR)

    def go_on_in(self, log: Log) -> None:
        """The same records in another directory: `log` ends where the present one does, in every respect."""
        present = self.log
        assert present is not None
        assert log.log_end_offset == present.log_end_offset, "a copy takes over when it is whole"
        present.remove_listener(self)
        self.log = log
        log.add_listener(self)
        self.flush_if_due()
        self.on_durable()  # nobody goes on waiting for the log that is left behind

    def close(self) -> None:
        """The partition leaves this node."""
        if self.log is not None:
            self.log.remove_listener(self)
        self.follower = None
        self._resign(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    def _resign(self, reason: ErrorCode) -> None:
        self.leader = None
        self._committed.complete_all(reason)
        self.consumer_fetches.notify(COMPLETE_NOW)
        self.follower_fetches.notify(COMPLETE_NOW)
        self.delayed_deletes.notify(COMPLETE_NOW)
        self.host.on_role(self)

    def require_log(self, current_leader_epoch: int = -1, *, leader_only: bool = True) -> Log:
        """The log, if this node may answer from it. Raises KafkaError."""
        if not leader_only and self.leader is None and self.follower is not None and self.log is not None:
            self._check_epoch(current_leader_epoch)
            return self.log
        return self._require_leader(current_leader_epoch)[1]

    def _require_leader(self, current_leader_epoch: int = -1) -> tuple[LeaderState, Log]:
        log, leader = self.log, self.leader
        if log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {self.name} is offline.")
        self._check_epoch(current_leader_epoch)
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return leader, log

    def _check_epoch(self, current_leader_epoch: int) -> None:
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            raise KafkaError(check_leader_epoch(self.leader_epoch, current_leader_epoch))

    # ---- writing

    def append(self, records: Buffer, acks: int, now_ms: int, origin: Origin = Origin.CLIENT) -> AppendInfo:
        """Append as leader. Raises KafkaError: not leader, too few in sync, refused records, disk."""
        leader, log = self._require_leader()
        if acks == -1:
            refusal = refuse_append(leader, acks, log.config.min_insync_replicas)
            if refusal is not ErrorCode.NONE:
                raise KafkaError(
                    refusal,
                    f"{len(leader.isr)} replicas of {self.name} are in sync, "
                    f"min.insync.replicas wants {log.config.min_insync_replicas}.",
                )
        info = log.append_as_leader(records, leader_epoch=leader.leader_epoch, now_ms=now_ms, origin=origin)
        if not info.duplicate:
            self._untold_bytes += info.size
            self.flush_if_due()
            self.advance()
            if len(self.follower_fetches):
                self.follower_fetches.notify(info.size)
        return info

    @property
    def must_flush(self) -> bool:
        """flush.messages asks for an fsync before what was appended is acknowledged."""
        log = self.log
        return log is not None and log.unflushed_messages >= log.config.flush_messages

    def flush_if_due(self) -> None:
        """flush.messages asks for an fsync, and nobody need wait for it."""
        if self.must_flush and self.log is not None:
            self.host.flush(self.log)

    @property
    def flushes_first(self) -> bool:
        """Only what is on the disk counts: a power cut of every node at once loses nothing that was committed."""
        log = self.log
        return log is not None and log.config.flush_messages <= FLUSH_FIRST

    @property
    def waits_for_flush(self) -> bool:
        """A follower that may not say yet what it has."""
        log = self.log
        return (
            self.follower is not None
            and log is not None
            and self.flushes_first
            and log.durable_offset < log.log_end_offset
        )

    def on_config(self) -> None:
        """The log has got other settings: min.insync.replicas and flush.messages bear on what is committed."""
        self.flush_if_due()
        if self.leader is not None and self.log is not None:
            self.advance()

    def on_durable(self) -> None:
        if self.leader is not None and self.log is not None:
            self.advance()
        elif self.follower is not None:
            self.host.on_fetchable(self)

    async def wait_committed(self, offset: int, deadline: float) -> ErrorCode:
        """Until everything below `offset` is committed: NONE, or why it cannot be said (time-out, leadership lost)."""
        answer = self.try_committed(offset)
        if answer is not None:
            return answer
        outcome = await self._committed.wait(offset, deadline)
        return ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome

    def try_committed(self, offset: int) -> ErrorCode | None:
        """The answer of `wait_committed` if it need not wait."""
        if self.log is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return acknowledge(self.leader, offset, self.high_watermark, self.log.config.min_insync_replicas)

    def advance(self) -> None:
        """Something may have become committed: tell those who wait."""
        leader, log, host = self.leader, self.log, self.host
        assert leader is not None
        assert log is not None
        end = log.log_end_offset
        counted = log.durable_offset if self.flushes_first else end
        joining = (
            joining_soon(leader, end, host.active, host.lag_max_ms, host.now_ms())
            if len(leader.isr) < len(leader.replicas)
            else ()
        )
        before = self.high_watermark
        after = high_watermark(
            leader, counted, before, min_insync_replicas=log.config.min_insync_replicas, joining=joining
        )
        if after > before:
            self._raise_watermark(after, end)

    def _raise_watermark(self, watermark: int, end: int) -> None:
        self.high_watermark = watermark
        if len(self._committed):
            self._committed.complete(watermark, lambda offset: self.try_committed(offset) or ErrorCode.NONE)
        if len(self.consumer_fetches):
            self.consumer_fetches.notify(self._untold_bytes or COMPLETE_NOW)
        if watermark >= end:
            self._untold_bytes = 0
        if len(self.follower_fetches):
            self.follower_fetches.complete_within(NEWS_S)

    def add_untold(self, size: int) -> None:
        """So many bytes were copied; readers hear of them when they are known to be committed."""
        self._untold_bytes += size

    def follow_watermark(self, watermark: int) -> None:
        """A follower learned what is committed, or lost it again by a cut."""
        log = self.log
        assert log is not None
        if watermark > self.high_watermark:
            self._raise_watermark(watermark, log.log_end_offset)
        self.high_watermark = watermark

    def delete_records(self, before_offset: int, now_ms: int) -> int:
        """DeleteRecords: the log now starts at `before_offset` (-1: the high watermark). Gives the low watermark, which
        followers may still hold back."""
        _, log = self._require_leader()
        if log.config.compact and not log.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {self.name} cannot be deleted: its cleanup.policy does not include delete.",
            )
        target = self.high_watermark if before_offset == -1 else before_offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {target} of {self.name} is not within 0 and the high watermark {self.high_watermark}.",
            )
        log.delete_records(target, self.high_watermark, now_ms=now_ms)
        self.follower_fetches.complete_within(NEWS_S)
        return self.low_watermark()

    def low_watermark(self) -> int:
        """Where the log starts at every replica that is well: nobody has anything below (`lowWatermarkIfLeader`)."""
        leader, log = self._require_leader()
        starts = [
            leader.progress(replica).log_start_offset
            for replica in leader.replicas
            if replica != leader.local_id and replica in self.host.active
        ]
        return min([log.log_start_offset, *starts])

    # ---- reading

    def producers(self) -> list[ProducerEntry]:
        """What the leader remembers of idempotent and transactional producers."""
        _, log = self._require_leader()
        return log.producers.entries

    def producer(self, producer_id: int) -> ProducerEntry | None:
        """What it remembers of one of them."""
        _, log = self._require_leader()
        return log.producers.get(producer_id)

    read = reading.read
    read_from_disk = reading.read_from_disk
    list_offset = reading.list_offset
    epoch_end_offset = reading.epoch_end_offset

    # ---- replicas

    read_by_follower = leading.read_by_follower
    was_caught_up = leading.was_caught_up
    preferred_read_replica = leading.preferred_read_replica
    shrink_isr = leading.shrink_isr
    on_isr_outcome = leading.on_isr_outcome
    next_fetch = following.next_fetch
    on_fetched = following.on_fetched
    on_leader_bounds = following.on_leader_bounds
    on_fetch_failed = following.on_fetch_failed
