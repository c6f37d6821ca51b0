"""Shell: one partition that this broker hosts: a local replica, and the role that the cluster image gives the broker.

    LocalReplica        log, high watermark, waiting requests            local_replica.py
    role                LeaderRole     appends, followers, ISR           roles/leader.py
                        FollowerRole   fetches from the leader           roles/follower.py
                        OfflineRole    rejects every request             roles/offline.py

`Partition` changes the role and checks it, then delegates to the role or to the functions in `reading.py`. The
machines in `rules` decide; `storage.log` stores. Only `wait_committed` and `read_from_disk` are asynchronous, so a
request makes its changes before its first await. Every rejection is a `KafkaError` with the code for the wire.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Protocol

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import CONSUMER_REPLICA_ID, TopicId, TopicPartition
from barnabas.protocol.records.validate import Checked, Origin, ValidationRules
from barnabas.server.metadata.image.cluster import PartitionImage
from barnabas.server.replication import reading
from barnabas.server.replication.context import ReplicationContext
from barnabas.server.replication.local_replica import NEWS_S, LocalReplica
from barnabas.server.replication.purgatory import COMPLETE_NOW
from barnabas.server.replication.reading import Isolation, PartitionRead, SpecialTimestamp
from barnabas.server.replication.roles.follower import FollowerRole
from barnabas.server.replication.roles.leader import FollowerFetch, LeaderRole
from barnabas.server.replication.roles.offline import NO_ROLE, OfflineRole
from barnabas.server.replication.rules.follower import (
    BoundsRequest,
    FetchAnswer,
    FetchFrom,
    FollowerState,
    TieredRequest,
    follow,
)
from barnabas.server.replication.rules.isr import CommittedIsr, Next
from barnabas.server.replication.rules.leader import (
    IsrProposal,
    LeaderState,
    begin_leadership,
    check_leader_epoch,
    latest_is_known,
)
from barnabas.server.storage.listener import LogListener
from barnabas.server.storage.log import Log
from barnabas.server.storage.producers.state import ProducerEntry
from barnabas.server.storage.values import AppendInfo, EpochEndOffset, TimestampOffset
from barnabas.server.tiering.values import CopiedState

__all__ = [
    "NEWS_S",
    "FollowerFetch",
    "Isolation",
    "Partition",
    "PartitionListener",
    "PartitionRead",
    "SpecialTimestamp",
]


class PartitionListener(Protocol):
    """Port: the components that act when a partition changes. Called on the event loop; the methods return at once."""

    def propose_isr(self, partition: Partition, proposal: IsrProposal) -> None:
        """Send the proposal to the controller; the answer goes to `Partition.on_isr_outcome`."""
        ...

    def on_role_changed(self, partition: Partition) -> None:
        """The partition has another leader, another leader epoch, or no role any more."""
        ...

    def on_fetchable(self, partition: Partition) -> None:
        """A flush of the follower's log has finished; with flush.messages=1 the next fetch waited for the flush."""
        ...


class Partition(LocalReplica, LogListener):
    """One partition that this broker hosts."""

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        log: Log | None,
        context: ReplicationContext,
        listener: PartitionListener,
        high_watermark: int,
    ) -> None:
        """`log` is None if the log directory is offline; `high_watermark` is the checkpointed one, or 0."""
        super().__init__(name, topic_id, log, context, high_watermark)
        self._listener = listener
        self.role: LeaderRole | FollowerRole | OfflineRole = NO_ROLE if log is not None else self._log_dir_offline()
        if log is not None:
            log.add_listener(self)

    # -- role ----------------------------------------------------------------------------------------------------------

    @property
    def leader(self) -> LeaderState | None:
        """The leader's state, or None if this broker does not lead the partition."""
        role = self.role
        return role.state if isinstance(role, LeaderRole) else None

    @property
    def follower(self) -> FollowerState | None:
        """The state of the follower role, or None in another role. If there is no leader, the role is follower."""
        role = self.role
        return role.state if isinstance(role, FollowerRole) else None

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, LeaderRole)

    @property
    def is_mirror(self) -> bool:
        """Whether a cluster link writes the partition, and no one else."""
        return self.log is not None and self.log.config.is_mirror

    def apply_image(self, image: PartitionImage) -> bool:
        """Take the role that the image gives. Returns True if this broker now leads in a new leader epoch."""
        if image.leader_epoch < self.leader_epoch:
            return False
        moved = (image.leader, image.leader_epoch) != (self.leader_id, self.leader_epoch)
        self.leader_id, self.leader_epoch = image.leader, image.leader_epoch
        log, role = self.log, self.role
        if log is None:
            return False
        if image.leader != self.context.node_id:
            electable = self.context.node_id in (*image.isr, *image.elr)
            if isinstance(role, FollowerRole):
                role.state = follow(role.state, image.leader, image.leader_epoch, electable=electable)
            else:
                state = follow(None, image.leader, image.leader_epoch, electable=electable)
                role = FollowerRole(self, state, self._on_fetchable)
            if moved:
                self._leave_role(role, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                self.role = role
            return False
        if moved or not isinstance(role, LeaderRole):
            return self._lead(image, log)
        role.on_image(image)
        return False

    def _lead(self, image: PartitionImage, log: Log) -> bool:
        """Begin a leadership, unless the log fails when the new leader epoch is written. Requests that wait for the
        high watermark keep waiting if this broker led before: the log still has their records."""
        if not log.config.is_mirror:  # the epochs of a mirror's log are those of the source
            log.assign_epoch(image.leader_epoch, log.log_end_offset)
        if log.failure is not None:  # `on_log_dir_failed` has been called
            return False
        state = begin_leadership(
            self.context.node_id,
            image.leader_epoch,
            image.partition_epoch,
            image.replicas,
            image.isr,
            log.log_end_offset,
            self.context.now_ms(),
        )
        self.role = LeaderRole(self, state, self._propose_isr)
        self.flush_if_due()
        self.role.advance()
        self.follower_fetches.notify(COMPLETE_NOW)  # the waiting fetches carry the previous leader epoch
        self.consumer_fetches.mark_changed()
        self._listener.on_role_changed(self)
        return True

    def on_log_dir_failed(self) -> None:
        """The disk failed: waiting and future requests are answered with KAFKA_STORAGE_ERROR."""
        self.log = None
        self._leave_role(self._log_dir_offline(), ErrorCode.KAFKA_STORAGE_ERROR)

    def close(self, reason: ErrorCode) -> None:
        """The partition is removed from this broker, or the broker stops. Waiting requests are answered with
        `reason`."""
        if self.log is not None:
            self.log.remove_listener(self)
        role = self.role if isinstance(self.role, OfflineRole) else NO_ROLE
        self._leave_role(role, reason)

    def _leave_role(self, role: FollowerRole | OfflineRole, reason: ErrorCode) -> None:
        """Take a role other than leader. Waiting produce requests are answered with `reason`, other waiting requests
        are woken up."""
        self.role = role
        self.delayed_produces.complete_all(reason)
        self.consumer_fetches.notify(COMPLETE_NOW)
        self.follower_fetches.notify(COMPLETE_NOW)
        self.delayed_deletes.notify(COMPLETE_NOW)
        self._listener.on_role_changed(self)

    def _log_dir_offline(self) -> OfflineRole:
        return OfflineRole(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {self.name} is offline.")

    def replace_log(self, log: Log) -> None:
        """Continue in a copy of the present log in another directory. Both logs have the same records and end."""
        present = self.log
        assert present is not None
        assert log.log_end_offset == present.log_end_offset, "a copy replaces the log only when it is complete"
        present.remove_listener(self)
        self.log = log
        log.add_listener(self)
        self.flush_if_due()
        self.on_durable()  # otherwise requests might wait for a flush of the log that was replaced

    def on_config(self) -> None:
        """The topic's configs changed: min.insync.replicas and flush.messages affect the high watermark. Without tiered
        storage the log starts with its local segments; the controller accepts this only with
        remote.log.delete.on.disable."""
        log = self.open_log
        if not log.config.tiered and log.log_start_offset < log.local_log_start_offset:
            log.advance_log_start(log.local_log_start_offset)
        if not log.config.tiered:
            log.highest_copied_offset = -1
        self.flush_if_due()
        if isinstance(self.role, LeaderRole):
            self.role.advance()

    def on_log_start_advanced(self) -> None:
        self.mark_changed()

    def on_durable(self) -> None:
        role = self.role
        if not isinstance(role, OfflineRole):
            role.on_durable()

    def _on_fetchable(self) -> None:
        self._listener.on_fetchable(self)

    def _propose_isr(self, proposal: IsrProposal) -> None:
        self._listener.propose_isr(self, proposal)

    def require_log(self, current_leader_epoch: int = -1, *, leader_only: bool = True) -> Log:
        """The log, if this broker may answer a request from it.

        `current_leader_epoch` is the leader epoch of the request, -1 if unknown. With `leader_only` False a follower
        may answer. Raises KafkaError.
        """
        if not leader_only and isinstance(self.role, FollowerRole):
            self._check_epoch(current_leader_epoch)
        else:
            self._require_leader(current_leader_epoch)
        return self.open_log

    def _require_leader(self, current_leader_epoch: int = -1) -> LeaderRole:
        role = self.role
        if self.log is not None:
            self._check_epoch(current_leader_epoch)
        match role:
            case LeaderRole():
                return role
            case FollowerRole():
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            case OfflineRole():
                raise KafkaError(role.reason, role.message)

    def _check_epoch(self, current_leader_epoch: int) -> None:
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            raise KafkaError(check_leader_epoch(self.leader_epoch, current_leader_epoch))

    # -- producers -----------------------------------------------------------------------------------------------------

    @property
    def client_rules(self) -> ValidationRules | None:
        """The rules by which `append` checks a client's batch. None if this broker does not lead."""
        return self.open_log.client_rules if isinstance(self.role, LeaderRole) else None

    def append(
        self,
        records: Buffer,
        acks: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        *,
        checked: Checked | None = None,
    ) -> AppendInfo:
        """Append as leader. Raises KafkaError if this broker does not lead, too few replicas are in sync, the records
        are invalid, or the disk fails. With `checked` the records have been checked by `client_rules`."""
        role = self.role
        leader = role if type(role) is LeaderRole else self._require_leader()
        return leader.append(records, acks, now_ms, origin, checked)

    async def wait_committed(self, offset: int, deadline: float, *, for_client: bool = False) -> ErrorCode:
        """Wait until all records below `offset` are committed. Returns NONE, or the error: time-out, leadership lost,
        too few in-sync replicas. With `for_client` the wait ends, too, when this leader is cut off."""
        answer = self.try_committed(offset)
        if answer is not None:
            return answer
        outcome = await self.delayed_produces.wait(offset, deadline, for_client=for_client)
        return ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome

    def release_clients(self) -> None:
        """Answer the clients that wait for a commit with NOT_LEADER_OR_FOLLOWER, if this leader is cut off. Their
        records may still be committed, as after any other lost leadership."""
        if self.delayed_produces and isinstance(self.role, LeaderRole) and self.role.is_cut_off():
            self.delayed_produces.complete_clients(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def try_committed(self, offset: int) -> ErrorCode | None:
        """The answer of `wait_committed`, or None if that method would wait."""
        match self.role:
            case LeaderRole() as leader:
                return leader.try_committed(offset)
            case FollowerRole():
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            case OfflineRole(reason=reason):
                return reason

    def producers(self) -> list[ProducerEntry]:
        """The state of all idempotent and transactional producers, as this replica has it; a follower's may be older
        than the leader's. Raises KafkaError if the log is offline."""
        return self.require_log(leader_only=False).producers.entries

    def producer(self, producer_id: int) -> ProducerEntry | None:
        """The state of one producer. Raises KafkaError if this broker does not lead."""
        return self.require_log().producers.get(producer_id)

    def delete_records(self, before_offset: int, now_ms: int) -> int:
        """Move the log start offset to `before_offset`, or to the high watermark for -1 (DeleteRecords).

        Returns the low watermark. Raises KafkaError.
        """
        return self._require_leader().delete_records(before_offset, now_ms)

    def low_watermark(self) -> int:
        """The smallest log start offset among this replica and the active followers."""
        return self._require_leader().low_watermark()

    # -- consumers -----------------------------------------------------------------------------------------------------

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        *,
        isolation: int = Isolation.READ_UNCOMMITTED,
        min_one_batch: bool = True,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        replica_id: int = CONSUMER_REPLICA_ID,
        leader_only: bool = True,
    ) -> PartitionRead:
        """Batches from `fetch_offset` on, at most about `max_bytes`; an empty result is not an error.

        Consumers get committed batches. Another replica (`replica_id` >= 0) gets batches up to the log end offset.
        Raises KafkaError.
        """
        log = self.require_log(current_leader_epoch, leader_only=leader_only)
        committed = isolation == Isolation.READ_COMMITTED
        if replica_id >= 0:
            upper = log.log_end_offset
        else:
            upper = log.last_stable_offset(self.high_watermark) if committed else self.high_watermark
        return reading.read_batches(
            self,
            log,
            fetch_offset,
            max_bytes,
            upper_offset=upper,
            min_one_batch=min_one_batch,
            last_fetched_epoch=last_fetched_epoch,
            with_aborted=committed,
        )

    async def read_from_disk(self, read: PartitionRead, executor: Executor) -> PartitionRead:
        """Run a pending read in an executor. Raises KafkaError on a disk error."""
        return await reading.read_from_disk(self.log, read, executor)

    @property
    def is_remote_throttled(self) -> bool:
        """Whether the object store must not be read now, because of remote.log.manager.fetch.max.bytes.per.second."""
        return reading.is_remote_throttled(self)

    async def read_remote(self, read: PartitionRead) -> PartitionRead:
        """Run a read of the object store. Raises KafkaError."""
        return await reading.read_remote(self, self.open_log, read)

    async def list_offset(
        self,
        timestamp: int,
        *,
        isolation: int | None = Isolation.READ_UNCOMMITTED,
        current_leader_epoch: int = -1,
        leader_only: bool = True,
        find: reading.FindInBatch | None = None,
    ) -> TimestampOffset:
        """The answer to ListOffsets for one timestamp, which may be a `SpecialTimestamp`.

        `isolation` is None if the request comes from another replica. With `leader_only` False a follower may answer.
        A batch of many records is searched by `find`; None stands for a thread of the event loop's own executor.
        Raises KafkaError.
        """
        log = self.require_log(current_leader_epoch, leader_only=leader_only)
        leader = self.leader
        known = leader is None or latest_is_known(leader, self.high_watermark)
        return await reading.list_offset(self, log, timestamp, isolation=isolation, is_latest_known=known, find=find)

    def epoch_end_offset(self, epoch: int, current_leader_epoch: int = -1) -> EpochEndOffset:
        """OffsetForLeaderEpoch: the offset at which `epoch` ended in this log."""
        return self.require_log(current_leader_epoch).epoch_end_offset(epoch)

    def preferred_read_replica(self, fetch_offset: int, near: frozenset[int]) -> int | None:
        """The replica that a consumer should read from (KIP-392), or None if it should read from the leader.

        `near` contains the replicas in the consumer's rack.
        """
        role = self.role
        return role.preferred_read_replica(fetch_offset, near) if isinstance(role, LeaderRole) else None

    # -- a leader's followers ------------------------------------------------------------------------------------------

    def read_by_follower(self, fetch: FollowerFetch, *, min_one_batch: bool, first: bool = True) -> PartitionRead:
        """Batches for a follower, up to the log end offset.

        `first` is True for the first read of a request: the fetch offset then counts as the follower's progress.
        Raises KafkaError.
        """
        leader = self._require_leader(fetch.current_leader_epoch)
        return leader.read_by_follower(fetch, min_one_batch=min_one_batch, first=first)

    def was_caught_up(self, replica_id: int, at_ms: int) -> None:
        """Record that a follower was caught up at `at_ms`. No effect on a partition that this broker does not lead."""
        if isinstance(self.role, LeaderRole):
            self.role.was_caught_up(replica_id, at_ms)

    def shrink_isr(self) -> None:
        """Propose an ISR without lagging followers. No effect on a partition that this broker does not lead."""
        if isinstance(self.role, LeaderRole):
            self.role.shrink_isr()

    def on_isr_outcome(self, proposal: IsrProposal, error: ErrorCode, answer: CommittedIsr | None) -> Next:
        """Apply the controller's answer to an ISR proposal. Returns what the sender of the proposal has to do next."""
        role = self.role
        return role.on_isr_outcome(proposal, error, answer) if isinstance(role, LeaderRole) else Next.DONE

    # -- a follower's leader -------------------------------------------------------------------------------------------

    @property
    def waits_for_flush(self) -> bool:
        """Whether this broker is a follower whose next fetch must wait for an fsync (flush.messages=1)."""
        return isinstance(self.role, FollowerRole) and self.role.waits_for_flush

    def next_fetch(self, now_ms: int) -> FetchFrom | BoundsRequest | TieredRequest | None:
        """The next request to the leader. None if this broker does not follow, or must wait before the next request."""
        return self.role.next_fetch(now_ms) if isinstance(self.role, FollowerRole) else None

    def on_fetched(
        self, request: FetchFrom, answer: FetchAnswer, records: Buffer, now_ms: int, *, backoff_ms: int
    ) -> int:
        """Apply the leader's answer to a fetch. Returns the number of bytes appended."""
        role = self.role
        if not isinstance(role, FollowerRole):
            return 0
        return role.on_fetched(request, answer, records, now_ms, backoff_ms=backoff_ms)

    def on_leader_bounds(
        self, request: BoundsRequest, leader_start: int, leader_end: int, now_ms: int, *, backoff_ms: int
    ) -> None:
        """Apply the leader's log start and end offsets."""
        if isinstance(self.role, FollowerRole):
            self.role.on_leader_bounds(request, leader_start, leader_end, now_ms, backoff_ms=backoff_ms)

    def on_tiered(self, request: TieredRequest, leader_start: int, copied: CopiedState, now_ms: int) -> None:
        """Continue with the state at the end of the leader's copies in the object store. Raises StorageError."""
        if isinstance(self.role, FollowerRole):
            self.role.on_tiered(request, leader_start, copied, now_ms)

    def on_fetch_failed(
        self, request: FetchFrom | BoundsRequest | TieredRequest, error: ErrorCode, now_ms: int, *, backoff_ms: int
    ) -> None:
        """Choose the next step after the leader has rejected `request`, or has not answered (REQUEST_TIMED_OUT)."""
        if isinstance(self.role, FollowerRole):
            self.role.on_fetch_failed(request, error, now_ms, backoff_ms=backoff_ms)
