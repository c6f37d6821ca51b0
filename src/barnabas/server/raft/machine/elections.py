"""Machine: votes and pre-votes, and the beginning and end of a leader's epoch (KIP-595, KIP-996)."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.server.raft.errors import IllegalRaftStateError
from barnabas.server.raft.machine.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    QuorumResponse,
    VoteRequest,
    VoteResponse,
)
from barnabas.server.raft.machine.quorum import Quorum
from barnabas.server.raft.machine.states import Candidate, Follower, Leader, Prospective, Resigned, Tally, Unattached
from barnabas.server.raft.machine.values import NO_NODE, Endpoints, ReplicaKey

_BACKOFF_BASE_MS = 50


# ---- the leader and epoch that a message contains


def maybe_transition(q: Quorum, epoch: int, leader_id: int, endpoints: Endpoints) -> None:
    """Another replica reports that `leader_id` leads `epoch` (Kafka's maybeTransition). A later epoch replaces the
    current one, and each epoch has at most one leader."""
    if epoch < q.epoch:
        return
    if leader_id == q.me.id:
        if epoch == q.epoch and not isinstance(q.state, (Leader, Resigned)):
            raise IllegalRaftStateError(
                f"Other voters report that node {q.me.id} leads epoch {epoch}, but this node does not lead it. If the "
                "disk of this node was emptied, start the node again once another leader has been elected. If another "
                "process runs with the same node.id, change the node.id of one of them."
            )
        if epoch > q.epoch:
            # The file quorum-state was lost, with the vote. In that epoch this node has voted for itself.
            q.become_unattached(epoch, voted=q.me)
        return
    if leader_id != NO_NODE and q.leader_id not in (NO_NODE, leader_id) and epoch == q.epoch:
        q.become_follower(epoch, leader_id, endpoints)  # raises IllegalRaftStateError
    elif leader_id == NO_NODE:
        if epoch > q.epoch:
            q.become_unattached(epoch)
    elif epoch > q.epoch or q.leader_id == NO_NODE or _adds_information(q, endpoints):
        q.become_follower(epoch, leader_id, endpoints)


def _adds_information(q: Quorum, endpoints: Endpoints) -> bool:
    """Whether to follow the known leader anew: this replica is Unattached or Prospective, or a Follower that
    knows fewer addresses of the leader than `endpoints` contains."""
    waiting = isinstance(q.state, (Unattached, Prospective))
    return not isinstance(q.state, (Leader, Resigned)) and (waiting or len(endpoints) > len(q.leader_endpoints))


def maybe_handle_common_response(q: Quorum, response: QuorumResponse) -> bool:
    """Handle the epoch, leader and error of a response (Kafka's maybeHandleCommonResponse). Returns whether the
    response needs no further handling."""
    endpoints = response.endpoints or q.endpoints_of(response.leader_id)
    if response.epoch < q.epoch or response.error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        return True
    if q.follower is not None and (response.epoch, response.leader_id) == (q.epoch, q.leader_id):
        q.follower.refused = False  # another replica follows this leader, so it may be running: ask it again
    leaderless = q.leader_id == NO_NODE or isinstance(q.state, Unattached)
    knows_more = response.epoch > q.epoch or (response.leader_id != NO_NODE and leaderless)
    refused = response.error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if knows_more or refused:
        maybe_transition(q, response.epoch, response.leader_id, endpoints)
        return True
    return response.error in (
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.INVALID_VOTER_KEY,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )


def check_sender(q: Quorum, node_id: int, epoch: int) -> ErrorCode:
    """The error of a request with an old epoch or without the id of its sender, NONE otherwise. The sender need not be
    in this replica's voter set, because this replica's log may be behind (KIP-853)."""
    if epoch < q.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if node_id < 0 else ErrorCode.NONE


def is_addressed(q: Quorum, key: ReplicaKey) -> bool:
    """Whether a request is for this replica, and not for one with the same node id and another directory."""
    return key.covers(q.me)


# ---- votes


def on_vote(q: Quorum, token: int, request: VoteRequest) -> None:
    error = check_sender(q, request.candidate.id, request.epoch)
    behind = request.last.epoch - (1 if request.pre_vote else 0)
    if request.last.offset < 0 or request.last.epoch < 0 or behind >= request.epoch:
        error = error or ErrorCode.INVALID_REQUEST
    granted = False
    if not error:
        if request.epoch > q.epoch:
            q.become_unattached(request.epoch)
        if not is_addressed(q, request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        else:
            granted = can_grant_vote(q, request)
            if granted and not request.pre_vote and q.voted is None:
                q.vote_for(request.candidate)
    q.reply(token, VoteResponse(error, q.epoch, q.leader_id, granted, q.leader_endpoints))


def can_grant_vote(q: Quorum, request: VoteRequest) -> bool:
    """Whether to grant a vote. The candidate's log must not be behind this replica's log, since a leader's log must
    contain all committed records (section 5.4.1 of the Raft paper)."""
    up_to_date = request.last >= q.log.end
    match q.state:
        case Leader():
            return False
        case Candidate() | Resigned():
            return request.pre_vote and up_to_date
        case Follower() if request.pre_vote:
            return up_to_date and not q.state.has_fetched
        case Follower():
            return _has_vote(q, request.candidate)
        case Unattached() | Prospective():
            if request.pre_vote:
                return up_to_date
            if q.voted is not None:
                return _has_vote(q, request.candidate)
            return up_to_date and q.leader_id == NO_NODE


def _has_vote(q: Quorum, candidate: ReplicaKey) -> bool:
    """Whether this replica has already voted for the candidate in this epoch. The candidate requests the vote again if
    the first response was lost."""
    return q.voted is not None and q.voted.covers(candidate)


def on_vote_answer(q: Quorum, source: int, request_was_pre_vote: bool, response: VoteResponse) -> None:
    if response.error:
        return
    state = q.state
    if isinstance(state, Prospective) and request_was_pre_vote:
        state.tally.record(source, response.granted)
        if state.tally.is_won:
            q.become_candidate()
        elif state.tally.is_lost:
            lose_pre_vote(q, state)
    elif isinstance(state, Candidate) and not request_was_pre_vote and state.backoff_until_ms is None:
        state.tally.record(source, response.granted)
        if state.tally.is_won:
            q.become_leader()
        elif state.tally.is_lost:
            state.backoff_until_ms = q.now_ms + _election_backoff_ms(q, state.retries)


def lose_pre_vote(q: Quorum, state: Prospective) -> None:
    """The pre-vote is lost: follow the known leader again, or wait for a leader."""
    if q.leader_id != NO_NODE and q.leader_endpoints:
        q.become_follower(q.epoch, q.leader_id, q.leader_endpoints)
    elif q.leader_id != NO_NODE and q.voters.get(q.leader_id) is not None:
        q.become_follower(q.epoch, q.leader_id, ())
    else:
        q.become_leaderless(_election_backoff_ms(q, state.retries) if state.retries else 0)


def _election_backoff_ms(q: Quorum, retries: int) -> int:
    """A random backoff whose limit doubles with each lost election (Kafka's binaryExponentialElectionBackoffMs)."""
    spread = 2 << min(20, retries - 1)
    return min(_BACKOFF_BASE_MS * q.rng.randrange(spread), q.config.controller_quorum_election_backoff_max_ms)


def poll_unattached(q: Quorum, state: Unattached) -> None:
    if q.is_voter and q.now_ms >= state.election_deadline_ms:
        q.become_prospective()


def poll_prospective(q: Quorum, state: Prospective) -> None:
    if not q.is_voter:
        q.become_leaderless()
    elif q.now_ms >= state.election_deadline_ms:
        lose_pre_vote(q, state)
    else:
        _ask_for_votes(q, state.tally, pre_vote=True)


def poll_candidate(q: Quorum, state: Candidate) -> None:
    if not q.is_voter:
        q.become_leaderless()
    elif state.backoff_until_ms is not None:
        if q.now_ms >= state.backoff_until_ms:
            q.become_prospective()
    elif q.now_ms >= state.election_deadline_ms:
        state.backoff_until_ms = q.now_ms + _election_backoff_ms(q, state.retries)
    else:
        _ask_for_votes(q, state.tally, pre_vote=False)


def _ask_for_votes(q: Quorum, tally: Tally, *, pre_vote: bool) -> None:
    for key in tally.unrecorded:
        if q.is_ready(key.id):
            q.send(key.id, VoteRequest(q.epoch, q.me, key, q.log.end, pre_vote))


# ---- the beginning and the end of a leader's epoch


def on_begin_epoch(q: Quorum, token: int, request: BeginQuorumEpochRequest) -> None:
    error = check_sender(q, request.leader_id, request.epoch)
    if not error:
        maybe_transition(q, request.epoch, request.leader_id, request.endpoints or q.endpoints_of(request.leader_id))
        if not is_addressed(q, request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
    q.reply(token, BeginQuorumEpochResponse(error, q.epoch, q.leader_id, q.leader_endpoints))


def on_end_epoch(q: Quorum, token: int, request: EndQuorumEpochRequest) -> None:
    error = check_sender(q, request.leader_id, request.epoch)
    if not error:
        maybe_transition(q, request.epoch, request.leader_id, request.endpoints or q.endpoints_of(request.leader_id))
        state = q.follower
        if state is not None and q.leader_id == request.leader_id:
            state.fetch_deadline_ms = q.now_ms + _succession_backoff_ms(q, request.successors)
            state.has_fetched = False  # the leader has resigned: grant pre-votes to its successors
    q.reply(token, EndQuorumEpochResponse(error, q.epoch, q.leader_id, q.leader_endpoints))


def _succession_backoff_ms(q: Quorum, successors: tuple[ReplicaKey, ...]) -> int:
    """How long this replica waits before it starts an election, after the leader has resigned (Kafka's
    strictExponentialElectionBackoffMs). The first successor does not wait. From the second successor on, the delay
    doubles. A replica that is not in `successors` waits for the longest delay."""
    limit = q.config.controller_quorum_election_backoff_max_ms
    position = next((i for i, key in enumerate(successors) if key.covers(q.me)), len(successors))
    if position == 0:
        return 0
    if position >= len(successors):
        return limit
    return min(limit, (limit >> (len(successors) - 1)) << (position - 1))


def on_end_epoch_answer(q: Quorum, source: int, response: EndQuorumEpochResponse) -> None:
    if isinstance(q.state, Resigned) and not response.error:
        q.state.unacknowledged.discard(source)


def on_connection_refused(q: Quorum, node_id: int) -> None:
    """The host of a node refused the connection, because the node's process does not run. If the node is the leader,
    this follower's fetch timeout ends after a short random time.

    A leader does not lead its epoch again after a restart. So a voter need not wait for
    controller.quorum.fetch.timeout.ms before it starts an election, and an observer asks the other voters for the
    leader. If the leader's process runs after all, the voters that fetch from the leader reject the pre-vote."""
    state = q.follower
    if state is not None and node_id == q.leader_id:
        spread = (
            min(q.config.controller_quorum_election_timeout_ms, q.config.controller_quorum_fetch_timeout_ms) // 8
        )  # replicas wait for different times, so that few start an election at once
        state.fetch_deadline_ms = min(state.fetch_deadline_ms, q.now_ms + q.rng.randrange(spread + 1))
        state.has_fetched = False
        state.refused = True


def poll_resigned(q: Quorum, state: Resigned) -> None:
    for node_id in sorted(state.unacknowledged):
        if q.is_ready(node_id):
            request = EndQuorumEpochRequest(q.epoch, q.me.id, state.successors, q.config.endpoints)
            q.send(node_id, request)
    if q.now_ms >= state.election_deadline_ms and not state.shutting_down:
        # A resigned leader may neither lead nor vote in its epoch, so it begins the next one.
        q.become_unattached(q.epoch + 1)


def send_begin_quorum_epoch(q: Quorum, state: Leader) -> None:
    """Send BeginQuorumEpoch to the voters that do not fetch, because they may not know the leader."""
    period_ms = q.config.controller_quorum_fetch_timeout_ms // 2
    if q.now_ms < state.next_begin_quorum_epoch_ms:
        return
    state.next_begin_quorum_epoch_ms = q.now_ms + period_ms
    for key in q.other_voters:
        progress = state.progress.voters[key.id]
        silent = progress.last_fetch_ms < 0 or q.now_ms - progress.last_fetch_ms >= period_ms
        if silent and q.is_ready(key.id):
            q.send(key.id, BeginQuorumEpochRequest(q.epoch, q.me.id, key, q.config.endpoints))
