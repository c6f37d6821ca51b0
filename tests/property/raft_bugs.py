"""Bugs that are planted into the Raft machine. The simulation must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from msgspec import structs

from barnabas.core.errors import ErrorCode
from barnabas.server.raft.machine import elections, membership, replication, snapshots
from barnabas.server.raft.machine.events import SnapshotStored, StartLogAt
from barnabas.server.raft.machine.history import LogHistory
from barnabas.server.raft.machine.log_offsets import OffsetValidity, RaftLogOffsets, ValidOffsetAndEpoch
from barnabas.server.raft.machine.messages import FetchResponse, VoteRequest
from barnabas.server.raft.machine.progress import EpochProgress
from barnabas.server.raft.machine.quorum import Quorum
from barnabas.server.raft.machine.states import Unattached
from barnabas.server.raft.machine.values import NO_NODE, ElectionState, OffsetAndEpoch, Voters
from tests.property.raft_chaos import Plan
from tests.property.raft_world import Node, World

STORMY = Plan(duration_ms=8_000, fault_rate=0.12, period_ms=30, crash_in_step=0.005)
CHANGING = replace(STORMY, observers=2, membership=10)
CROWDED = replace(STORMY, voters=5, election_timeout_ms=60, fetch_timeout_ms=600, crash_leader=10)
SLOW_DISKS = replace(STORMY, sync_ms=300)
SNAPPY = replace(STORMY, voters=5, snapshot=30, partition=8, crash=1, crash_all=0, store_ms=5_000, duration_ms=15_000)


@contextmanager
def vote_is_not_synced() -> Iterator[None]:
    """quorum-state is written without a sync: a power failure restores the previous one."""
    write, crash = World.write_election, World.crash

    def write_unsynced(world: World, node: Node, election: ElectionState) -> None:
        node.disk.before = node.disk.election  # type: ignore[attr-defined]
        write(world, node, election)

    def crash_and_forget(world: World, node: Node) -> None:
        node.disk.election = getattr(node.disk, "before", node.disk.election)
        crash(world, node)

    with patch.object(World, "write_election", write_unsynced), patch.object(World, "crash", crash_and_forget):
        yield


def old_epochs_count_as_committed() -> AbstractContextManager[Any]:
    """The high watermark advances over records of earlier epochs alone (Raft, figure 8)."""
    build = EpochProgress.__init__

    def from_the_start(self: EpochProgress, me: Any, voters: Any, start: int, config: Any, now_ms: int) -> None:
        build(self, me, voters, -1, config, now_ms)

    return patch.object(EpochProgress, "__init__", from_the_start)


@contextmanager
def two_votes_in_one_epoch() -> Iterator[None]:
    """A voter grants a vote to every candidate."""

    def generous(q: Quorum, request: VoteRequest) -> bool:
        if not request.pre_vote and isinstance(q.state, Unattached) and request.last >= q.log.end:
            q.voted, q.leader_id = None, NO_NODE
            return True
        return can_grant(q, request)

    can_grant = elections.can_grant_vote
    with patch.object(elections, "can_grant_vote", generous):
        yield


def no_divergence_check() -> AbstractContextManager[Any]:
    """A diverging follower's position is accepted if the leader's log is as long."""
    compare = RaftLogOffsets.validate_offset_and_epoch

    def trusting(self: RaftLogOffsets, offset: int, epoch: int) -> ValidOffsetAndEpoch:
        valid = compare(self, offset, epoch)
        if valid.kind is OffsetValidity.DIVERGING and offset <= self.end_offset:
            return ValidOffsetAndEpoch(OffsetValidity.VALID, OffsetAndEpoch(epoch, offset))
        return valid

    return patch.object(RaftLogOffsets, "validate_offset_and_epoch", trusting)


def followers_acknowledge_before_sync() -> AbstractContextManager[Any]:
    return patch.object(replication, "_may_fetch", lambda q: True)


def leader_counts_itself_before_sync() -> AbstractContextManager[Any]:
    count = EpochProgress.on_local_end

    def hasty(self: EpochProgress, synced_offset: int) -> bool:
        furthest = max((replica.last_fetch_leader_end for replica in self.voters.values()), default=0)
        return count(self, max(synced_offset, furthest))

    return patch.object(EpochProgress, "on_local_end", hasty)


@contextmanager
def votes_for_shorter_logs() -> Iterator[None]:
    """The candidate's log is not compared with the voter's log."""
    can_grant = elections.can_grant_vote

    def blind(q: Quorum, request: VoteRequest) -> bool:
        return can_grant(q, structs.replace(request, last=OffsetAndEpoch(1 << 30, 1 << 30)))

    with patch.object(elections, "can_grant_vote", blind):
        yield


def leader_comes_back_and_votes_again() -> AbstractContextManager[Any]:
    """A restart loses the leader and the vote of the current epoch."""
    initial = Quorum._initial_state

    def forgetful(self: Quorum, election: ElectionState) -> Any:
        self.voted, self.leader_id = None, NO_NODE
        return initial(self, ElectionState(election.epoch))

    return patch.object(Quorum, "_initial_state", forgetful)


def one_replica_is_enough() -> AbstractContextManager[Any]:
    """The high watermark is the end offset of the furthest replica."""
    return patch("barnabas.server.raft.machine.progress.majority_offset", max)


def half_is_a_majority() -> AbstractContextManager[Any]:
    """Elections are won with one vote too few."""
    return patch.object(Voters, "majority", property(lambda self: max(len(self.members) // 2, 1)))


def follower_believes_any_high_watermark() -> AbstractContextManager[Any]:
    """The high watermark of a follower is not limited to its log."""
    on_answer = replication.on_fetch_answer

    def believing(q: Quorum, response: FetchResponse) -> None:
        on_answer(q, response)
        if q.follower is not None and not response.error:
            q.raise_high_watermark(response.high_watermark)

    return patch.object(replication, "on_fetch_answer", believing)


def truncate_to_the_high_watermark() -> AbstractContextManager[Any]:
    """A new follower truncates to its high watermark before it fetches (the bug that KIP-101 fixed)."""
    become = Quorum.become_follower

    def dropping(self: Quorum, epoch: int, leader_id: int, endpoints: Any) -> None:
        become(self, epoch, leader_id, endpoints)
        keep = max(self.high_watermark, self.log.start.offset)
        if keep < self.log.end_offset:
            self.truncate(keep)

    return patch.object(Quorum, "become_follower", dropping)


def voters_change_two_at_a_time() -> AbstractContextManager[Any]:
    """A change of voters begins although the previous one is not committed."""
    return patch.object(membership, "_refusal", lambda q, leader: (ErrorCode.NONE, ""))


def truncated_voters_stay() -> AbstractContextManager[Any]:
    """Voters whose record was truncated stay in force."""
    return patch.object(LogHistory, "truncate", lambda self, offset: None)


def any_snapshot_replaces_the_log() -> AbstractContextManager[Any]:
    """A snapshot that was stored late replaces a log that is longer by then."""

    def eager(q: Quorum, event: SnapshotStored) -> None:
        if q.leader is not None:
            return
        q.fx.sync_ticket = q.log.start_at(event.snapshot_id)
        q.fx.log_ops.append(StartLogAt(event.snapshot_id))
        q.fx.load_snapshot = event.snapshot_id
        q.history.start_at(event.snapshot_id, event.kraft_version, event.voters)
        q.high_watermark = event.snapshot_id.offset

    return patch.object(snapshots, "on_snapshot_stored", eager)


Bug = Callable[[], AbstractContextManager[Any]]

BUGS: tuple[tuple[Bug, Plan, int], ...] = (
    (vote_is_not_synced, STORMY, 15),
    (old_epochs_count_as_committed, STORMY, 15),
    (two_votes_in_one_epoch, CROWDED, 15),
    (no_divergence_check, STORMY, 15),
    (followers_acknowledge_before_sync, STORMY, 15),
    (leader_counts_itself_before_sync, SLOW_DISKS, 15),
    (votes_for_shorter_logs, STORMY, 15),
    (leader_comes_back_and_votes_again, STORMY, 15),
    (one_replica_is_enough, STORMY, 15),
    (half_is_a_majority, STORMY, 15),
    (follower_believes_any_high_watermark, STORMY, 15),
    (truncate_to_the_high_watermark, STORMY, 15),
    (voters_change_two_at_a_time, CHANGING, 60),
    (truncated_voters_stay, CHANGING, 120),
    (any_snapshot_replaces_the_log, SNAPPY, 15),
)
"""Each bug, the plan that triggers it, and the number of seeds within which it must be found."""
