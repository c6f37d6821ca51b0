"""Machine: FetchSnapshot for followers that are too far behind, and deletion of the log below a snapshot (KIP-630)."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.server.raft.errors import IllegalRaftStateError
from barnabas.server.raft.machine.events import (
    AdvanceStart,
    FinishSnapshot,
    SnapshotStored,
    SnapshotTaken,
    StartLogAt,
    WriteSnapshot,
)
from barnabas.server.raft.machine.messages import FetchSnapshotRequest, FetchSnapshotResponse
from barnabas.server.raft.machine.quorum import Quorum
from barnabas.server.raft.machine.replication import check_leader_request
from barnabas.server.raft.machine.states import Candidate, Prospective


def on_fetch_snapshot(q: Quorum, token: int, request: FetchSnapshotRequest) -> None:
    """Handle FetchSnapshot. The driver reads the requested part of the snapshot. For check-quorum, the request counts
    as a fetch."""
    error = check_leader_request(q, request.epoch)
    if not error and request.snapshot_id not in q.log.snapshots:
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    if not error and request.position < 0:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    if error or q.leader is None:
        q.reply(token, FetchSnapshotResponse(error, q.epoch, q.leader_id, endpoints=q.leader_endpoints))
        return
    q.leader.progress.on_contact(request.replica, q.now_ms)
    response = FetchSnapshotResponse(
        ErrorCode.NONE,
        q.epoch,
        q.leader_id,
        request.snapshot_id,
        position=request.position,
        max_bytes=min(request.max_bytes, q.config.controller_quorum_fetch_snapshot_max_bytes),
        endpoints=q.leader_endpoints,
    )
    q.reply(token, response)


def on_fetch_snapshot_answer(q: Quorum, response: FetchSnapshotResponse) -> None:
    state = q.follower
    if state is None or state.snapshot is None:
        return
    q.on_leader_contact(state)
    expected = response.snapshot_id == state.snapshot and response.position == state.snapshot_position
    if response.error or not expected:
        # The leader does not have the snapshot any more; the response to the next fetch names another one.
        state.snapshot = None
        return
    q.fx.log_ops.append(WriteSnapshot(state.snapshot, response.position, response.data))
    state.snapshot_position += len(response.data)
    if state.snapshot_position >= response.size:
        state.snapshot_complete = True
        q.fx.log_ops.append(FinishSnapshot(state.snapshot))


def on_snapshot_stored(q: Quorum, event: SnapshotStored) -> None:
    """Replace the log by a fetched snapshot, unless this replica leads or the snapshot ends at or below the high
    watermark.

    A follower that still fetches this snapshot replaces the log in any case, since the log cannot be continued. If the
    leader changed while the snapshot was written to the disk, the log is replaced only if it ends below the snapshot's
    end."""
    snapshot_id = event.snapshot_id
    state = q.follower
    asked = state is not None and state.snapshot == snapshot_id and state.snapshot_complete
    if state is not None and asked:
        state.snapshot = None
        state.fetch_deadline_ms = q.now_ms + q.config.controller_quorum_fetch_timeout_ms
    if q.leader is not None or snapshot_id.offset <= q.high_watermark or not (asked or snapshot_id > q.log.end):
        return
    q.fx.sync_ticket = q.log.start_at(snapshot_id)
    q.fx.log_ops.append(StartLogAt(snapshot_id))
    q.fx.load_snapshot = snapshot_id
    q.history.start_at(snapshot_id, event.kraft_version, event.voters)
    q.raise_high_watermark(snapshot_id.offset)
    if isinstance(q.state, (Prospective, Candidate)):
        q.become_leaderless()  # the election was among the old voters


def on_snapshot_taken(q: Quorum, event: SnapshotTaken) -> None:
    snapshot_id = event.snapshot_id
    latest = q.log.latest_snapshot
    if snapshot_id.offset <= (latest.offset if latest else 0) or snapshot_id.offset <= q.log.start.offset:
        return  # a newer snapshot exists
    if snapshot_id.offset > q.high_watermark or snapshot_id.epoch != q.log.epoch_at(snapshot_id.offset - 1):
        raise IllegalRaftStateError(
            f"Snapshot {snapshot_id} contains uncommitted records: the high watermark is {q.high_watermark}."
        )
    q.log.add_snapshot(snapshot_id)
    if event.clean:
        q.log.advance_start(snapshot_id)
        q.history.trim(snapshot_id.offset)
        q.fx.log_ops.append(AdvanceStart(snapshot_id))
