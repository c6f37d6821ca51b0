"""Machine: changes of the voters, one at a time (KIP-853).

A change adds or removes one voter, so each majority of the old voters overlaps with each majority of the new ones. A
change begins only when the previous change and a record of the leader's own epoch are committed. The new voters are in
force once their record is in the log. A leader that is removed leads until the removal is committed.
"""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode
from barnabas.server.raft.errors import NotRaftLeaderError
from barnabas.server.raft.machine.messages import (
    AddVoterRequest,
    ChangeVoterResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VersionsRequest,
    VersionsResponse,
)
from barnabas.server.raft.machine.quorum import PendingChange, Quorum
from barnabas.server.raft.machine.states import Leader
from barnabas.server.raft.machine.values import NO_DIRECTORY, KRaftVersionControl, RaftBatch, VoterNode, Voters


def _refusal(q: Quorum, leader: Leader) -> tuple[ErrorCode, str]:
    """The error and message if no change can begin now; NONE if a change can begin."""
    if q.pending_change is not None:
        return ErrorCode.REQUEST_TIMED_OUT, "Another change of the voters is under way; try again when it is done."
    if leader.progress.high_watermark < 0:
        return ErrorCode.REQUEST_TIMED_OUT, "The leader has not committed a record of its epoch yet; try again."
    if q.kraft_version < 1:
        return (
            ErrorCode.UNSUPPORTED_VERSION,
            f"kraft.version is {q.kraft_version}; the voters can change from 1 on: upgrade the feature first.",
        )
    if q.history.voters.last.offset >= leader.progress.high_watermark:
        return ErrorCode.REQUEST_TIMED_OUT, "The last change of the voters is not committed yet; try again."
    return ErrorCode.NONE, ""


def on_add_voter(q: Quorum, token: int, request: AddVoterRequest) -> None:
    leader = q.leader
    if leader is None:
        q.reply(token, ChangeVoterResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return
    key = request.voter
    error, message = _refusal(q, leader)
    if not error and (key.id < 0 or key.directory_id == NO_DIRECTORY or not request.endpoints):
        error, message = ErrorCode.INVALID_REQUEST, "A voter needs an id, a directory id and endpoints."
    elif not error and q.voters.get(key.id) is not None:
        error = ErrorCode.DUPLICATE_VOTER
        message = f"{q.voters} has a voter {key.id}; to replace it by one on another disk, remove it first."
    if error:
        q.reply(token, ChangeVoterResponse(error, message))
        return
    timeout_ms = request.timeout_ms or q.config.controller_quorum_request_timeout_ms
    voter = VoterNode(key, request.endpoints)
    q.pending_change = PendingChange(token, q.now_ms + timeout_ms, voter, acknowledged=not request.ack_when_committed)
    q.send(key.id, VersionsRequest(), request.endpoints)


def on_versions_answer(q: Quorum, source: int, response: VersionsResponse) -> None:
    """Add the new voter, which has answered with its versions, if its log has caught up."""
    leader, change = q.leader, q.pending_change
    if leader is None or change is None or change.voter is None or change.offset is not None:
        return
    voter = change.voter
    if voter.key.id != source:
        return
    if response.error:
        _finish(q, ErrorCode.REQUEST_TIMED_OUT, f"The new voter answered ApiVersions with {response.error.name}.")
    elif not response.min_version <= q.kraft_version <= response.max_version:
        text = f"The new voter does not support kraft.version {q.kraft_version}."
        _finish(q, ErrorCode.INVALID_REQUEST, text)
    elif not leader.progress.is_caught_up(voter.key, q.now_ms):
        _finish(q, ErrorCode.REQUEST_TIMED_OUT, f"The new voter {voter.key} has not caught up yet; try again.")
    else:
        voter = replace(voter, min_version=response.min_version, max_version=response.max_version)
        voters = q.voters.add(voter)
        assert voters is not None
        change.offset = _append_voters(q, voters)
        if change.acknowledged:
            q.reply(change.token, ChangeVoterResponse(ErrorCode.NONE))


def on_remove_voter(q: Quorum, token: int, request: RemoveVoterRequest) -> None:
    leader = q.leader
    if leader is None:
        q.reply(token, ChangeVoterResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return
    error, message = _refusal(q, leader)
    voters = q.voters.remove(request.voter)
    if not error and voters is None:
        error = ErrorCode.VOTER_NOT_FOUND
        message = f"{request.voter} cannot be removed from the voters {q.voters}."
    if error or voters is None:
        q.reply(token, ChangeVoterResponse(error, message))
        return
    offset = _append_voters(q, voters)
    q.pending_change = PendingChange(token, q.now_ms + q.config.controller_quorum_request_timeout_ms, offset=offset)


def on_update_voter(q: Quorum, token: int, request: UpdateVoterRequest) -> None:
    """Update a voter's endpoints and versions. The response does not wait for the commit, because the voter repeats the
    request until the voters in the log are right."""
    leader = q.leader
    voter = request.voter
    if leader is None or request.epoch != q.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH if request.epoch < q.epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif voter.key.directory_id == NO_DIRECTORY or not voter.endpoints or voter.max_version < voter.min_version:
        error = ErrorCode.INVALID_REQUEST
    elif q.kraft_version < 1:
        error = ErrorCode.NONE if q.voters.get(voter.key.id) else ErrorCode.VOTER_NOT_FOUND
        q.updated_voters[voter.key.id] = voter
    else:
        error, _ = _refusal(q, leader)
        voters = q.voters.update(voter)
        if not error and not voter.min_version <= q.kraft_version <= voter.max_version:
            error = ErrorCode.INVALID_REQUEST
        elif not error and voters is None:
            error = ErrorCode.VOTER_NOT_FOUND
        elif not error and voters is not None and voters != q.voters:
            _append_voters(q, voters)
    q.reply(token, UpdateVoterResponse(error, q.epoch, q.leader_id, q.leader_endpoints))


def upgrade(q: Quorum) -> None:
    """Change kraft.version from 0 to 1. Raises NotRaftLeaderError until all voters have sent their directory ids."""
    leader = q.leader
    if leader is None or leader.progress.high_watermark < 0:
        raise NotRaftLeaderError("Only a leader that has committed a record of its epoch can upgrade kraft.version.")
    if q.kraft_version >= 1:
        return
    mine = VoterNode(q.me, q.config.endpoints, q.config.min_version, q.config.max_version)
    known = {**q.updated_voters, q.me.id: mine}
    missing = [node_id for node_id in q.voters.ids if node_id not in known]
    if missing:
        raise NotRaftLeaderError(
            f"kraft.version cannot be upgraded: voters {missing} have not sent their directory ids."
        )
    voters = Voters(tuple(known[node_id] for node_id in q.voters.ids))
    q.append(RaftBatch(q.log.end_offset, 0, q.epoch), (KRaftVersionControl(1), voters))


def build_voter_request(q: Quorum) -> AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | None:
    """The request by which this follower corrects its own entry in the voters or, with
    controller.quorum.auto.join.enable, becomes a voter; None if none is needed."""
    mine = VoterNode(q.me, q.config.endpoints, q.config.min_version, q.config.max_version)
    listed = q.voters.get(q.me.id)
    if q.is_voter:
        wrong = listed != mine if q.kraft_version >= 1 else True
        known = mine.endpoints and q.me.directory_id != NO_DIRECTORY
        return UpdateVoterRequest(q.epoch, mine) if wrong and known else None
    if not (q.config.controller_quorum_auto_join_enable and q.config.can_vote and q.kraft_version >= 1):
        return None
    if listed is not None:
        return RemoveVoterRequest(listed.key)  # the voter with this node's earlier disk
    return AddVoterRequest(q.me, q.config.endpoints, ack_when_committed=False)


def on_committed(q: Quorum, leader: Leader) -> None:
    """The high watermark has risen: complete the pending change, and resign if this node's removal is committed."""
    change = q.pending_change
    if change is not None and change.offset is not None and leader.progress.high_watermark > change.offset:
        _finish(q, ErrorCode.NONE, "")
    if not q.voters.has(q.me) and leader.progress.high_watermark > q.history.voters.last.offset:
        q.resign()


def poll(q: Quorum) -> None:
    """Fail the pending change if it has timed out."""
    if q.pending_change is not None and q.now_ms >= q.pending_change.deadline_ms:
        text = "The change of the voters did not finish in time; it may still take effect."
        _finish(q, ErrorCode.REQUEST_TIMED_OUT, text)


def on_leadership_lost(q: Quorum) -> None:
    """Fail the pending change, because this node has lost leadership."""
    if q.pending_change is not None:
        _finish(
            q,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "The leader resigned; describe the quorum to see whether the change took effect.",
        )


def _finish(q: Quorum, error: ErrorCode, message: str) -> None:
    change = q.pending_change
    assert change is not None
    q.pending_change = None
    if not (change.acknowledged and change.offset is not None):
        q.reply(change.token, ChangeVoterResponse(error, message))


def _append_voters(q: Quorum, voters: Voters) -> int:
    return q.append(RaftBatch(q.log.end_offset, 0, q.epoch), (voters,)).base_offset
