"""Machine: the interface of the Raft implementation: `RaftMachine.step(event, now_ms)` returns the effects of an event.

A step handles the event, then does what is due at this time, and sets the time of the next step. Only steps change the
machine.
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
"""The limit of state changes in one step. The limit prevents an endless loop of states that lead to each other."""


class QuorumReplicaState(Struct, frozen=True):
    """A replica in the response to DescribeQuorum. Times are in milliseconds, -1 if unknown."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumInfo(Struct, frozen=True):
    """The quorum in the response to DescribeQuorum."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplicaState, ...]
    observers: tuple[QuorumReplicaState, ...]
    voter_set: Voters
    """The voters with their endpoints."""


class RaftMachine:
    """One replica. The caller passes all events in their order, and carries out each `Effects` in order."""

    def __init__(
        self, me: ReplicaKey, config: RaftConfig, election: ElectionState, log: LogSummary, rng: Rng, now_ms: int
    ) -> None:
        self._q = Quorum(me, config, election, log, rng, now_ms)

    # ---- the state, read-only

    @property
    def quorum(self) -> Quorum:
        """The whole state. Callers must not change it."""
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
        """Records below this offset are committed. -1 if unknown."""
        return self._q.high_watermark

    @property
    def voters(self) -> Voters:
        return self._q.voters

    def snapshot_controls(self, end_offset: int) -> tuple[int, Voters | None]:
        """The kraft.version and the voters that a snapshot with this end offset contains; voters only from version 1
        on."""
        version = self._q.history.kraft_version.before(end_offset).value
        entry = self._q.history.voters.before(end_offset)
        return version, entry.value if version >= 1 and entry.offset >= 0 else None

    def snapshot_id(self, end_offset: int) -> OffsetAndEpoch:
        """The id of a snapshot of the records below `end_offset`."""
        return OffsetAndEpoch(self._q.log.epoch_at(end_offset - 1), end_offset)

    def describe(self, now_ms: int) -> QuorumInfo:
        """The quorum for DescribeQuorum. Raises NotRaftLeaderError unless this replica leads."""
        q = self._q
        leader = q.leader
        if leader is None:
            raise NotRaftLeaderError(f"Node {q.leader_id} leads epoch {q.epoch}; send DescribeQuorum to that node.")
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

    # ---- steps

    def step(self, event: Event, now_ms: int) -> Effects:
        """Handle an event and return its effects.

        Raises NotRaftLeaderError (Propose, UpgradeKRaftVersion), after which the machine is unchanged, and
        IllegalRaftStateError, after which the node must stop."""
        q = self._q
        q.now_ms = max(q.now_ms, now_ms)  # if the clock goes back, timeouts must not become longer
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
                    q.requests.on_answered(destination, now_ms=q.now_ms, success=False)
                    if refused:
                        elections.on_connection_refused(q, destination)
            case Propose(payload, count):
                if q.leader is None:
                    raise NotRaftLeaderError(
                        f"Node {q.leader_id} leads epoch {q.epoch}; send the records to that node."
                    )
                q.append(RaftBatch(q.log.end_offset, count, q.epoch, payload))
            case Synced(ticket):
                q.log.synced(ticket)
            case SnapshotTaken():
                snapshots.on_snapshot_taken(q, event)
            case SnapshotStored():
                snapshots.on_snapshot_stored(q, event)
            case Resign(epoch, shutting_down):
                if q.leader is not None and epoch == q.epoch:
                    q.resign(shutting_down=shutting_down)
            case UpgradeKRaftVersion():
                membership.upgrade(q)
            case _:
                assert_never(event)

    def _poll(self, q: Quorum) -> None:
        """Do what is due in the current state, and again after each change of the state."""
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
                membership.on_leadership_lost(q)
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
    elections.send_begin_quorum_epoch(q, leader)
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
    success = response.error == ErrorCode.NONE
    q.requests.on_answered(source, now_ms=q.now_ms, success=success)
    match response:
        case VersionsResponse():
            membership.on_versions_answer(q, source, response)
        case ChangeVoterResponse():
            pass  # the follower repeats the request at its next membership check
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
    """The earliest time at which a step is due without an event."""
    state = q.state
    times: list[int | None] = []
    match state:
        case Unattached():
            times = [state.election_deadline_ms] if q.is_voter else [_ready_again(q)]
        case Prospective():
            times = [state.election_deadline_ms, _ready_again(q, *(key.id for key in state.tally.unrecorded))]
        case Candidate() if state.backoff_until_ms is not None:
            times = [state.backoff_until_ms]
        case Candidate():
            times = [state.election_deadline_ms, _ready_again(q, *(key.id for key in state.tally.unrecorded))]
        case Follower():
            due = state.fetch_deadline_ms
            times = [due if q.is_voter or due > q.now_ms else _ready_again(q), _ready_again(q, q.leader_id)]
        case Leader():
            times = [state.progress.next_check_ms(), *(fetch.deadline_ms for fetch in q.delayed_fetches)]
            times.append(state.next_begin_quorum_epoch_ms if len(q.other_voters) else None)
            times.append(q.pending_change.deadline_ms if q.pending_change else None)
        case Resigned():
            times = [None if state.shutting_down else state.election_deadline_ms]
            times.append(_ready_again(q, *sorted(state.unacknowledged)))
    return min((time for time in times if time is not None), default=None)


def _ready_again(q: Quorum, *node_ids: int) -> int | None:
    """The earliest future time at which a request may be sent to one of `node_ids`, or without ids to one of the nodes
    that may know the leader. None if requests may be sent to all of them now."""
    nodes = node_ids or replication.leader_discovery_nodes(q)
    times = [q.requests.ready_at_ms(node_id) for node_id in nodes]
    later = [time for time in times if time > q.now_ms]
    return min(later, default=None)
