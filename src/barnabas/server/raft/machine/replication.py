"""Machine: fetching, by which followers copy the log and acknowledge their position (KIP-595)."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.server.raft.machine import membership
from barnabas.server.raft.machine.log_offsets import OffsetValidity
from barnabas.server.raft.machine.messages import FetchRequest, FetchResponse, FetchSnapshotRequest
from barnabas.server.raft.machine.quorum import DelayedRaftFetch, Quorum
from barnabas.server.raft.machine.states import Follower, Leader, Unattached
from barnabas.server.raft.machine.values import NO_NODE, OffsetAndEpoch, RaftBatch

# ---- the leader


def check_leader_request(q: Quorum, epoch: int) -> ErrorCode:
    """NONE if this replica leads `epoch`, otherwise the error for the response (Kafka's validateLeaderOnlyRequest)."""
    if epoch < q.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > q.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if q.leader is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER


def on_fetch(q: Quorum, token: int, request: FetchRequest) -> None:
    malformed = (
        request.max_wait_ms < 0
        or request.fetch_offset < 0
        or request.last_fetched_epoch < 0
        or request.last_fetched_epoch > request.epoch >= 0
    )
    error = ErrorCode.INVALID_REQUEST if malformed else check_leader_request(q, request.epoch)
    leader = q.leader
    if error or leader is None:
        q.reply(token, FetchResponse(error, q.epoch, q.leader_id, endpoints=q.leader_endpoints))
        return
    valid = q.log.validate_offset_and_epoch(request.fetch_offset, request.last_fetched_epoch)
    if request.fetch_offset == 0 and q.log.latest_snapshot is not None:
        q.reply(token, _respond(q, leader, request, snapshot_id=q.log.latest_snapshot))
    elif valid.kind is OffsetValidity.SNAPSHOT:
        q.reply(token, _respond(q, leader, request, snapshot_id=valid.offset_and_epoch))
    elif valid.kind is OffsetValidity.DIVERGING:
        q.reply(token, _respond(q, leader, request, diverging=valid.offset_and_epoch))
    else:
        _on_valid_fetch(q, leader, token, request)


def _on_valid_fetch(q: Quorum, leader: Leader, token: int, request: FetchRequest) -> None:
    replica = request.replica
    if replica.id >= 0 and replica != q.me:
        if leader.progress.on_fetch(replica, request.fetch_offset, q.log.end_offset, q.now_ms):
            on_progress(q, leader)
        if q.leader is not leader:  # the fetch committed this leader's removal, so it has resigned
            response = FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, q.epoch, q.leader_id)
            q.reply(token, response)
            return
    delayed = request.max_wait_ms > 0 and not _has_new_data(q, leader, request)
    if delayed and len(q.delayed_fetches) < q.config.delayed_fetches_max:
        q.delayed_fetches.append(DelayedRaftFetch(token, request, q.now_ms + request.max_wait_ms))
    else:
        q.reply(token, _respond(q, leader, request))


def _has_new_data(q: Quorum, leader: Leader, request: FetchRequest) -> bool:
    """Whether there are new records, or a high watermark that the follower does not know (KIP-1166)."""
    return q.log.end_offset > request.fetch_offset or leader.progress.high_watermark > request.high_watermark


def _respond(
    q: Quorum,
    leader: Leader,
    request: FetchRequest,
    *,
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
) -> FetchResponse:
    valid = diverging is None and snapshot_id is None
    return FetchResponse(
        ErrorCode.NONE,
        q.epoch,
        q.leader_id,
        leader.progress.high_watermark,
        q.log.start.offset,
        diverging,
        snapshot_id,
        read_offset=request.fetch_offset if valid and request.fetch_offset < q.log.end_offset else -1,
        max_bytes=request.max_bytes,
        endpoints=q.leader_endpoints,
    )


def on_progress(q: Quorum, leader: Leader) -> None:
    """The leader's high watermark has risen: notify the state machine, and complete a committed change of the
    voters."""
    q.raise_high_watermark(leader.progress.high_watermark)
    membership.on_committed(q, leader)


def answer_delayed_fetches(q: Quorum, leader: Leader) -> None:
    """Answer the delayed fetches for which there are new data, or whose max_wait_ms has passed."""
    waiting: list[DelayedRaftFetch] = []
    for fetch in q.delayed_fetches:
        if fetch.request.fetch_offset < q.log.start.offset:
            on_fetch(q, fetch.token, fetch.request)  # the log's start has advanced beyond the fetch
        elif q.now_ms >= fetch.deadline_ms or _has_new_data(q, leader, fetch.request):
            q.reply(fetch.token, _respond(q, leader, fetch.request))
        else:
            waiting.append(fetch)
    q.delayed_fetches = waiting


# ---- the follower


def on_fetch_answer(q: Quorum, response: FetchResponse) -> None:
    state = q.follower
    if state is None or response.error or response.leader_id != q.leader_id:
        return
    if response.diverging is not None:
        q.truncate(q.log.truncation_point(response.diverging))
    elif response.snapshot_id is not None:
        _begin_snapshot(q, state, response.snapshot_id)
    else:
        for batch in response.batches:
            if not _follows(q, batch):
                break  # the next fetch requests the batch again
            q.write(batch)
        q.raise_high_watermark(min(q.log.end_offset, response.high_watermark))
    state.has_fetched = True
    state.refused = False
    q.on_leader_contact(state)


def _follows(q: Quorum, batch: RaftBatch) -> bool:
    """Whether the batch continues the log. Epochs never decrease in a log, and none is above the leader's epoch."""
    return batch.base_offset == q.log.end_offset and q.log.last_epoch <= batch.epoch <= q.epoch and batch.count > 0


def _begin_snapshot(q: Quorum, state: Follower, snapshot_id: OffsetAndEpoch) -> None:
    """Begin to fetch the snapshot that the leader named, because this replica's log is empty or cannot be continued
    from the leader's log. Nothing happens if the snapshot does not end above this replica's high watermark."""
    if snapshot_id.offset > max(q.high_watermark, 0):
        state.snapshot = snapshot_id
        state.snapshot_position = 0
        state.snapshot_complete = False


def poll_follower(q: Quorum, state: Follower) -> None:
    if not q.is_voter:
        poll_observer(q, state)
    elif q.now_ms >= state.fetch_deadline_ms:
        q.become_prospective()
    else:
        _send_to_leader(q, state)


def poll_observer(q: Quorum, state: Follower | Unattached) -> None:
    """An observer without a responsive leader sends its fetch to other nodes, whose responses name the leader."""
    lost = not isinstance(state, Follower) or q.now_ms >= state.fetch_deadline_ms
    if not lost and not q.requests.has_timed_out(q.leader_id, q.now_ms):
        assert isinstance(state, Follower)
        _send_to_leader(q, state)
    elif not q.requests.has_any_in_flight(q.now_ms) and _may_fetch(q):
        known = leader_discovery_nodes(q)
        others = [node_id for node_id in known if node_id != q.leader_id]
        leader_down = isinstance(state, Follower) and state.refused and others
        ready = [node_id for node_id in (others if leader_down else known) if q.is_ready(node_id)]
        if ready:
            node_id = q.rng.choice(ready)
            q.send(node_id, build_fetch(q), q.leader_endpoints if node_id == q.leader_id else ())


def leader_discovery_nodes(q: Quorum) -> list[int]:
    """The nodes that may know the leader: the voters, the bootstrap nodes, and the last known leader, which need not be
    a voter according to a log that is behind."""
    nodes = {key.id for key in q.other_voters} | {node_id for node_id, _ in q.config.bootstrap} | {q.leader_id}
    return sorted(nodes - {q.me.id, NO_NODE})


def _send_to_leader(q: Quorum, state: Follower) -> None:
    """Send the next request to the leader: for a part of a snapshot, a change of the voters, or records."""
    if q.leader_id == NO_NODE or not q.is_ready(q.leader_id):
        return
    if state.snapshot is not None:
        if not state.snapshot_complete:
            request = FetchSnapshotRequest(
                q.me,
                q.epoch,
                state.snapshot,
                state.snapshot_position,
                q.config.controller_quorum_fetch_snapshot_max_bytes,
            )
            q.send(q.leader_id, request, q.leader_endpoints)
        return
    if state.has_fetched and q.now_ms >= state.membership_check_ms:
        state.membership_check_ms = q.now_ms + q.config.controller_quorum_fetch_timeout_ms
        change = membership.build_voter_request(q)
        if change is not None:
            q.send(q.leader_id, change, q.leader_endpoints)
            return
    if _may_fetch(q):
        q.send(q.leader_id, build_fetch(q), q.leader_endpoints)


def _may_fetch(q: Quorum) -> bool:
    """Whether a fetch can be sent. The fetch of a controller acknowledges the records below the fetch offset, so these
    records must be durable first. The fetch of a broker does not count for the high watermark."""
    return q.log.is_synced or not q.config.can_vote


def build_fetch(q: Quorum) -> FetchRequest:
    return FetchRequest(
        q.me,
        q.epoch,
        q.log.end_offset,
        q.log.last_epoch,
        q.config.fetch_max_wait_ms,
        q.config.controller_quorum_fetch_max_bytes,
        q.high_watermark,
    )
