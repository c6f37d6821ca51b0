"""Machine: changes of the voters, one at a time (KIP-853).

One change moves the majority by at most one, so the old and the new majority always overlap; and a change begins only
when the one before, and a record of the leader's own epoch, are committed. A new voter counts from the moment its
record is in the log, a removed one until then; a leader that removes itself leads on until that is committed.
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
    """Why no change can begin now."""
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
    """The new voter lives and says what it understands; if it has the log as well, it becomes a voter."""
    leader, change = q.leader, q.pending_change
    if leader is None or change is None or change.voter is None or change.offset is not None:
        return
    voter = change.voter
    if voter.key.id != source:
        return
    if response.error:
        _finish(q, ErrorCode.REQUEST_TIMED_OUT, f"The new voter did not answer well: {response.error.name}.")
    elif not response.min_version <= q.kraft_version <= response.max_version:
        text = f"The new voter does not understand kraft.version {q.kraft_version}."
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
    """A voter's own endpoints and versions; answered at once, since whoever asks repeats it until it is so."""
    leader = q.leader
    voter = request.voter
    if leader is None or request.epoch != q.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH if request.epoch < q.epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif voter.key.directory_id == NO_DIRECTORY or not voter.endpoints or voter.max_version < voter.min_version:
        error = ErrorCode.INVALID_REQUEST
    elif q.kraft_version < 1:
        error = ErrorCode.NONE if q.voters.get(voter.key.id) else ErrorCode.VOTER_NOT_FOUND
        q.offered[voter.key.id] = voter
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
    """kraft.version 0 -> 1, once every voter has told its directory. Raises NotRaftLeaderError until that can be."""
    leader = q.leader
    if leader is None or leader.progress.high_watermark < 0:
        raise NotRaftLeaderError("Only a leader that has committed a record of its epoch can upgrade kraft.version.")
    if q.kraft_version >= 1:
        return
    mine = VoterNode(q.me, q.config.endpoints, q.config.min_version, q.config.max_version)
    known = {**q.offered, q.me.id: mine}
    missing = [node_id for node_id in q.voters.ids if node_id not in known]
    if missing:
        raise NotRaftLeaderError(f"kraft.version cannot be upgraded: voters {missing} have not told their directory.")
    voters = Voters(tuple(known[node_id] for node_id in q.voters.ids))
    q.append(RaftBatch(q.log.end_offset, 0, q.epoch), (KRaftVersionControl(1), voters))


def wanted_change(q: Quorum) -> AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | None:
    """What a follower asks of its leader about itself: to be described rightly, or, with auto-join, to be a voter."""
    mine = VoterNode(q.me, q.config.endpoints, q.config.min_version, q.config.max_version)
    listed = q.voters.get(q.me.id)
    if q.is_voter:
        wrong = listed != mine if q.kraft_version >= 1 else True
        known = mine.endpoints and q.me.directory_id != NO_DIRECTORY
        return UpdateVoterRequest(q.epoch, mine) if wrong and known else None
    if not (q.config.controller_quorum_auto_join_enable and q.config.can_vote and q.kraft_version >= 1):
        return None
    if listed is not None:
        return RemoveVoterRequest(listed.key)  # this node's disk of before
    return AddVoterRequest(q.me, q.config.endpoints, ack_when_committed=False)


def on_committed(q: Quorum, leader: Leader) -> None:
    change = q.pending_change
    if change is not None and change.offset is not None and leader.progress.high_watermark > change.offset:
        _finish(q, ErrorCode.NONE, "")
    if not q.voters.has(q.me) and leader.progress.high_watermark > q.history.voters.last.offset:
        q.resign()  # its own removal is committed


def poll(q: Quorum) -> None:
    if q.pending_change is not None and q.now_ms >= q.pending_change.deadline_ms:
        text = "The change of the voters did not finish in time; it may still take effect."
        _finish(q, ErrorCode.REQUEST_TIMED_OUT, text)


def give_up(q: Quorum) -> None:
    """The node does not lead any more."""
    if q.pending_change is not None:
        _finish(q, ErrorCode.NOT_LEADER_OR_FOLLOWER, "The leader resigned; ask the next one whether it was done.")


def _finish(q: Quorum, error: ErrorCode, message: str) -> None:
    change = q.pending_change
    assert change is not None
    q.pending_change = None
    if not (change.acknowledged and change.offset is not None):
        q.reply(change.token, ChangeVoterResponse(error, message))


def _append_voters(q: Quorum, voters: Voters) -> int:
    return q.append(RaftBatch(q.log.end_offset, 0, q.epoch), (voters,)).base_offset
