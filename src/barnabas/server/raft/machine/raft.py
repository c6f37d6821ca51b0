"""Machine: the one door. `RaftMachine.step(event, now_ms)` takes what happened, and says what is to be done.

A step is: the event, then whatever has become due, then when to be woken. Nothing else changes the machine.
"""

from __future__ import annotations

from typing import assert_never

from msgspec import Struct

from barnabas.core.errors import ErrorCode
from barnabas.core.rng import Rng
from barnabas.server.raft.errors import NotRaftLeaderError
from barnabas.server.raft.machine import elections, membership, replication, snapshots
from barnabas.server.raft.machine.events import (
    Answered,
    Effects,
    Event,
    Propose,
    Received,
    Resign,
    SendFailed,
    SnapshotStored,
    SnapshotTaken,
    Synced,
    Tick,
    UpgradeKRaftVersion,
)
from barnabas.server.raft.machine.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChangeVoterResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RaftRequest,
    RaftResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VersionsRequest,
    VersionsResponse,
    VoteRequest,
    VoteResponse,
)
from barnabas.server.raft.machine.quorum import Quorum
from barnabas.server.raft.machine.states import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from barnabas.server.raft.machine.values import (
    ElectionState,
    LogSummary,
    OffsetAndEpoch,
    RaftBatch,
    RaftConfig,
    ReplicaKey,
    Voters,
)

_STEPS_MAX = 8
"""State changes that one step can set off; more would be two states that send each other back and forth."""


class QuorumReplicaState(Struct, frozen=True):
    """One replica, as DescribeQuorum shows it; times in milliseconds, -1 where the leader has not heard."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumInfo(Struct, frozen=True):
    """What DescribeQuorum shows."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplicaState, ...]
    observers: tuple[QuorumReplicaState, ...]
    voter_set: Voters
    """The voters again, with where they are reached."""


class RaftMachine:
    """One replica. Give it every event in the order in which they happen; carry out every `Effects` in order."""

    def __init__(
        self, me: ReplicaKey, config: RaftConfig, election: ElectionState, log: LogSummary, rng: Rng, now_ms: int
    ) -> None:
        self._q = Quorum(me, config, election, log, rng, now_ms)

    # ---- what may be looked at

    @property
    def quorum(self) -> Quorum:
        """Everything, to read."""
        return self._q

    @property
    def epoch(self) -> int:
        return self._q.epoch

    @property
    def leader_id(self) -> int:
        return self._q.leader_id

    @property
    def is_leader(self) -> bool:
        return self._q.leader is not None

    @property
    def high_watermark(self) -> int:
        """Everything before it is committed; -1 while this replica does not know."""
        return self._q.high_watermark

    @property
    def voters(self) -> Voters:
        return self._q.voters

    def snapshot_controls(self, end_offset: int) -> tuple[int, Voters | None]:
        """The kraft.version and the voters that a snapshot with this end has to say (voters from version 1 on)."""
        version = self._q.history.kraft_version.before(end_offset).value
        entry = self._q.history.voters.before(end_offset)
        return version, entry.value if version >= 1 and entry.offset >= 0 else None

    def snapshot_id(self, end_offset: int) -> OffsetAndEpoch:
        """The name of a snapshot of everything before `end_offset`."""
        return OffsetAndEpoch(self._q.log.epoch_at(end_offset - 1), end_offset)

    def describe(self, now_ms: int) -> QuorumInfo:
        """Raises NotRaftLeaderError where this replica does not lead."""
        q = self._q
        leader = q.leader
        if leader is None:
            raise NotRaftLeaderError(f"Node {q.leader_id} leads epoch {q.epoch}; ask it about the quorum.")
        leader.progress.expire_observers(now_ms)

        def view(key: ReplicaKey) -> QuorumReplicaState:
            if key.covers(q.me):
                return QuorumReplicaState(q.me, q.log.end_offset, now_ms, now_ms)
            progress = leader.progress.replica(key)
            return QuorumReplicaState(key, progress.end_offset, progress.last_fetch_ms, progress.last_caught_up_ms)

        return QuorumInfo(
            q.leader_id,
            q.epoch,
            leader.progress.high_watermark,
            tuple(view(key) for key in q.voters.keys),
            tuple(view(key) for key in sorted(leader.progress.observers)),
            q.voters,
        )

    # ---- what happens

    def step(self, event: Event, now_ms: int) -> Effects:
        """Raises NotRaftLeaderError (Propose, UpgradeKRaftVersion) with nothing changed, and IllegalRaftStateError
        when the node must stop."""
        q = self._q
        q.now_ms = max(q.now_ms, now_ms)  # a clock that goes back must not stretch timeouts
        self._handle(q, event)
        self._poll(q)
        fx, q.fx = q.fx, Effects()
        fx.wake_at_ms = _wake_at(q)
        return fx

    def _handle(self, q: Quorum, event: Event) -> None:
        match event:
            case Tick():
                pass
            case Received(token, request):
                _on_request(q, token, request)
            case Answered(source, correlation_id, response):
                if q.requests.expects(source, correlation_id):
                    _on_answer(q, source, response)
            case SendFailed(destination, correlation_id, refused):
                if q.requests.expects(destination, correlation_id):
                    q.requests.on_answered(destination, now_ms=q.now_ms, well=False)
                    if refused:
                        elections.on_refused(q, destination)
            case Propose(payload, count):
                if q.leader is None:
                    raise NotRaftLeaderError(f"Node {q.leader_id} leads epoch {q.epoch}; propose there.")
                q.append(RaftBatch(q.log.end_offset, count, q.epoch, payload))
            case Synced(ticket):
                q.log.synced(ticket)
            case SnapshotTaken():
                snapshots.on_snapshot_taken(q, event)
            case SnapshotStored():
                snapshots.on_snapshot_stored(q, event)
            case Resign(epoch, for_good):
                if q.leader is not None and epoch == q.epoch:
                    q.resign(for_good=for_good)
            case UpgradeKRaftVersion():
                membership.upgrade(q)
            case _:
                assert_never(event)

    def _poll(self, q: Quorum) -> None:
        """Do what the state wants done by now; a new state may want more."""
        for _ in range(_STEPS_MAX):
            before = q.state
            match before:
                case Unattached():
                    elections.poll_unattached(q, before)
                    if q.state is before and not q.is_voter:
                        replication.poll_observer(q, before)
                case Prospective():
                    elections.poll_prospective(q, before)
                case Candidate():
                    elections.poll_candidate(q, before)
                case Follower():
                    replication.poll_follower(q, before)
                case Leader():
                    _poll_leader(q, before)
                case Resigned():
                    elections.poll_resigned(q, before)
            if q.leader is None:
                membership.give_up(q)
            if q.state is before:
                return


def _poll_leader(q: Quorum, leader: Leader) -> None:
    if leader.progress.has_lost_quorum(q.now_ms):
        q.resign()
        return
    if leader.progress.on_local_end(q.log.synced_offset):
        replication.on_progress(q, leader)
        if q.leader is not leader:
            return
    membership.poll(q)
    elections.announce(q, leader)
    replication.answer_delayed_fetches(q, leader)


def _on_request(q: Quorum, token: int, request: RaftRequest) -> None:
    match request:
        case FetchRequest():
            replication.on_fetch(q, token, request)
        case VoteRequest():
            elections.on_vote(q, token, request)
        case BeginQuorumEpochRequest():
            elections.on_begin_epoch(q, token, request)
        case EndQuorumEpochRequest():
            elections.on_end_epoch(q, token, request)
        case FetchSnapshotRequest():
            snapshots.on_fetch_snapshot(q, token, request)
        case VersionsRequest():
            q.reply(token, VersionsResponse(ErrorCode.NONE, q.config.min_version, q.config.max_version))
        case AddVoterRequest():
            membership.on_add_voter(q, token, request)
        case RemoveVoterRequest():
            membership.on_remove_voter(q, token, request)
        case UpdateVoterRequest():
            membership.on_update_voter(q, token, request)
        case _:
            assert_never(request)


def _on_answer(q: Quorum, source: int, response: RaftResponse) -> None:
    well = response.error == ErrorCode.NONE
    q.requests.on_answered(source, now_ms=q.now_ms, well=well)
    match response:
        case VersionsResponse():
            membership.on_versions_answer(q, source, response)
        case ChangeVoterResponse():
            pass  # asked again when it is looked at again
        case _ if elections.maybe_handle_common_response(q, response):
            pass
        case VoteResponse():
            elections.on_vote_answer(q, source, isinstance(q.state, Prospective), response)
        case BeginQuorumEpochResponse() | UpdateVoterResponse():
            pass
        case EndQuorumEpochResponse():
            elections.on_end_epoch_answer(q, source, response)
        case FetchResponse():
            replication.on_fetch_answer(q, response)
        case FetchSnapshotResponse():
            snapshots.on_fetch_snapshot_answer(q, response)


def _wake_at(q: Quorum) -> int | None:
    """The earliest time at which there is something to do even if nothing happens."""
    state = q.state
    times: list[int | None] = []
    match state:
        case Unattached():
            times = [state.election_deadline_ms] if q.is_voter else [_ready_again(q)]
        case Prospective():
            times = [state.election_deadline_ms, _ready_again(q, *(key.id for key in state.tally.silent))]
        case Candidate() if state.backoff_until_ms is not None:
            times = [state.backoff_until_ms]
        case Candidate():
            times = [state.election_deadline_ms, _ready_again(q, *(key.id for key in state.tally.silent))]
        case Follower():
            due = state.fetch_deadline_ms
            times = [due if q.is_voter or due > q.now_ms else _ready_again(q), _ready_again(q, q.leader_id)]
        case Leader():
            times = [state.progress.next_check_ms(), *(fetch.deadline_ms for fetch in q.delayed_fetches)]
            times.append(state.next_announcement_ms if len(q.other_voters) else None)
            times.append(q.pending_change.deadline_ms if q.pending_change else None)
        case Resigned():
            times = [None if state.for_good else state.election_deadline_ms]
            times.append(_ready_again(q, *sorted(state.unacknowledged)))
    return min((time for time in times if time is not None), default=None)


def _ready_again(q: Quorum, *node_ids: int) -> int | None:
    """When one of these nodes (or, without any, of those an observer may ask) may be sent a request again."""
    asked = node_ids or replication.leader_discovery_nodes(q)
    times = [q.requests.ready_at_ms(node_id) for node_id in asked]
    later = [time for time in times if time > q.now_ms]
    return min(later, default=None)
