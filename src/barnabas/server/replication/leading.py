"""Shell: what a leader does for its followers: serves their fetches, and keeps the in-sync replicas.

A fetch of a follower says what it has; that may let it join the ISR, and may commit records. Who may join or must
leave is decided in `rules/isr.py`; proposals go through `Host.propose` to the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.replication.purgatory import COMPLETE_NOW
from barnabas.server.replication.reading import PartitionRead, read
from barnabas.server.replication.rules.isr import CommittedIsr, Next, on_outcome, try_expand, try_shrink
from barnabas.server.replication.rules.leader import (
    UNKNOWN_BROKER_EPOCH,
    UNKNOWN_OFFSET,
    IsrProposal,
    LeaderState,
    is_stale_fetch,
)

if TYPE_CHECKING:
    from barnabas.server.replication.partition import Partition


class FollowerFetch(Struct, frozen=True):
    """One partition of a follower's Fetch."""

    replica_id: int
    broker_epoch: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


def read_by_follower(
    self: Partition, fetch: FollowerFetch, *, min_one_batch: bool, first: bool = True
) -> PartitionRead:
    """Batches up to the log's end. `first`: the fetch has just come, and says how far the follower is.

    Raises KafkaError: not leader, other epoch, a broker that is no replica or has registered again since, out of range.
    """
    log = self.require_log(fetch.current_leader_epoch)
    leader = self.leader
    assert leader is not None
    _admit(self, leader, fetch)
    found = read(
        self,
        fetch.fetch_offset,
        fetch.max_bytes,
        min_one_batch=min_one_batch,
        current_leader_epoch=fetch.current_leader_epoch,
        last_fetched_epoch=fetch.last_fetched_epoch,
        replica_id=fetch.replica_id,
    )
    if found.diverging is not None or not first:
        return found
    self.leader = leader.on_fetch(
        fetch.replica_id,
        fetch.fetch_offset,
        log.log_end_offset,
        self.host.now_ms(),
        broker_epoch=fetch.broker_epoch,
        log_start_offset=fetch.log_start_offset,
    )
    if fetch.log_start_offset > leader.progress(fetch.replica_id).log_start_offset:
        self.delayed_deletes.notify(COMPLETE_NOW)
    if len(leader.isr) < len(leader.replicas):
        _expand_isr(self, self.leader)
    self.advance()
    return replace(found, high_watermark=self.high_watermark)


def was_caught_up(self: Partition, replica_id: int, at_ms: int) -> None:
    """A follower had everything at `at_ms`, when its session asked and had nothing to say of this partition. Written
    down when it matters: before there is something it does not have."""
    leader = self.leader
    known = None if leader is None else leader.followers.get(replica_id)
    if leader is None or known is None or known.log_end_offset == UNKNOWN_OFFSET or at_ms <= known.last_fetch_ms:
        return
    end = known.log_end_offset
    self.leader = leader.on_fetch(
        replica_id, end, end, at_ms, broker_epoch=known.broker_epoch, log_start_offset=known.log_start_offset
    )


def _admit(self: Partition, leader: LeaderState, fetch: FollowerFetch) -> None:
    replica = fetch.replica_id
    if replica not in leader.replicas or replica == leader.local_id:
        # With the epoch of now, its image is newer than ours: it will ask again (Partition.followerReplicaOrThrow).
        known = fetch.current_leader_epoch >= 0
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH if known else ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Broker {replica} is no replica of {self.name}.",
        )
    newest = max(self.host.active.get(replica, UNKNOWN_BROKER_EPOCH), leader.progress(replica).broker_epoch)
    if is_stale_fetch(fetch.broker_epoch, newest):
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Broker {replica} fetched with epoch {fetch.broker_epoch}, and has registered again with {newest}.",
        )


# -- in-sync replicas --------------------------------------------------------------------------------------------------


def _expand_isr(self: Partition, leader: LeaderState) -> None:
    grown = try_expand(leader, self.high_watermark, self.host.active)
    if grown is not None:
        self.leader, proposal = grown
        self.host.propose(self, proposal)


def shrink_isr(self: Partition) -> None:
    """Now and then: propose to go on without those that lag for longer than replica.lag.time.max.ms."""
    leader, log, host = self.leader, self.log, self.host
    if leader is None or log is None or len(leader.replicas) == 1:
        return
    shrunk = try_shrink(leader, log.log_end_offset, host.active, host.lag_max_ms, host.now_ms())
    if shrunk is not None:
        self.leader, proposal = shrunk
        host.propose(self, proposal)
    self.advance()  # whoever was waited for out of courtesy may not be, by now


def on_isr_outcome(self: Partition, proposal: IsrProposal, error: ErrorCode, answer: CommittedIsr | None) -> Next:
    """The controller's answer to a proposal."""
    if self.leader is None:
        return Next.DONE
    self.leader, todo = on_outcome(self.leader, proposal, error, answer)
    self.follower_fetches.mark_changed()
    if todo is Next.DONE:
        self.advance()
    return todo


def preferred_read_replica(self: Partition, fetch_offset: int, near: frozenset[int]) -> int | None:
    """KIP-392: of the in-sync followers in `near` that have `fetch_offset`, the one that is farthest; None: read here.

    Ties go to who was caught up last, then to the smaller id (`ReplicaView.comparator`).
    """
    if self.leader is None or self.leader.local_id in near:
        return None
    self.follower_fetches.record_caught_up()
    leader = self.leader
    having = [
        (progress.log_end_offset, progress.caught_up_ms, -replica)
        for replica in near & leader.isr
        if (progress := leader.progress(replica)).log_start_offset <= fetch_offset <= progress.log_end_offset
    ]
    return -max(having)[2] if having else None
