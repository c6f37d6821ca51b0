"""The rules of the protocol, one test for each, on a single machine with scripted messages."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.server.raft.errors import IllegalRaftStateError, NotRaftLeaderError
from barnabas.server.raft.machine.events import (
    Answered,
    Append,
    Effects,
    Propose,
    Received,
    Resign,
    SendFailed,
    SendRequest,
    SnapshotTaken,
    Synced,
    Tick,
    TruncateFrom,
    UpgradeKRaftVersion,
)
from barnabas.server.raft.machine.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VersionsRequest,
    VersionsResponse,
    VoteRequest,
    VoteResponse,
)
from barnabas.server.raft.machine.raft import RaftMachine
from barnabas.server.raft.machine.states import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from barnabas.server.raft.machine.values import (
    ElectionState,
    KRaftVersionControl,
    LeaderChangeControl,
    LogSummary,
    OffsetAndEpoch,
    RaftBatch,
    ReplicaKey,
    Voters,
)
from tests.configs import raft_config
from tests.property.raft_world import key_of, voter_of

ME = key_of(1)
OTHER, THIRD = key_of(2), key_of(3)
NONE = ErrorCode.NONE


class One:
    """Node 1 of three."""

    def __init__(
        self, election: ElectionState | None = None, log: LogSummary | None = None, *, kraft: int = 1, voters: int = 3
    ) -> None:
        members = Voters(tuple(voter_of(key_of(i)) for i in range(1, voters + 1)))
        self.config = raft_config(voters=members, kraft_version=kraft, endpoints=voter_of(ME).endpoints)
        self.now = 0
        self.token = 0
        self.machine = RaftMachine(
            ME, self.config, election or ElectionState(), log or LogSummary(), random.Random(1), 0
        )
        self.sent: dict[int, SendRequest] = {}

    def step(self, event: Any, *, after_ms: int = 0) -> Effects:
        self.now += after_ms
        effects = self.machine.step(event, self.now)
        self.sent.update({send.destination: send for send in effects.sends})
        return effects

    def ask(self, request: Any) -> Any:
        """The reply, or None if the fetch is delayed."""
        self.token += 1
        self.effects = self.step(Received(self.token, request))
        return next((reply.response for reply in self.effects.replies if reply.token == self.token), None)

    def answer(self, source: int, response: Any) -> Effects:
        return self.step(Answered(source, self.sent[source].correlation_id, response))

    @property
    def state(self) -> Any:
        return self.machine.quorum.state

    def sync(self) -> Effects:
        return self.step(Synced(1 << 30))

    def fetch(self, key: ReplicaKey, offset: int, epoch: int | None = None, **more: Any) -> Any:
        last = self.machine.epoch if epoch is None else epoch
        return self.ask(FetchRequest(key, self.machine.epoch, offset, last, **more))

    def lead(self) -> One:
        """Elect this node with the vote of node 2. The first batch of the epoch is in the log and not committed."""
        self.step(Tick(), after_ms=2000)
        self.answer(2, VoteResponse(NONE, self.machine.epoch, granted=True))
        self.answer(2, VoteResponse(NONE, self.machine.epoch, granted=True))
        assert isinstance(self.state, Leader)
        return self

    def lead_and_commit(self) -> One:
        self.lead().sync()
        self.fetch(OTHER, self.machine.quorum.log.end_offset)
        assert self.machine.high_watermark == self.machine.quorum.log.end_offset
        return self

    def follow(self, epoch: int = 1) -> One:
        self.ask(BeginQuorumEpochRequest(epoch, 2, ME))
        assert isinstance(self.state, Follower)
        return self


def vote(epoch: int, candidate: ReplicaKey = OTHER, *, last: OffsetAndEpoch | None = None, pre: bool = False) -> Any:
    return VoteRequest(epoch, candidate, ME, last or OffsetAndEpoch(0, 0), pre)


# ---- votes


def test_vote_is_saved_in_the_step_that_grants_it() -> None:
    one = One()
    assert one.ask(vote(1)).granted
    assert one.effects.election == ElectionState(1, -1, OTHER)


def test_one_vote_per_epoch_and_a_repeated_request_is_granted() -> None:
    one = One()
    assert one.ask(vote(1)).granted
    assert not one.ask(vote(1, THIRD)).granted
    assert one.ask(vote(1)).granted
    assert one.ask(vote(2, THIRD)).granted


def test_vote_is_kept_over_a_restart() -> None:
    one = One(ElectionState(1, -1, OTHER))
    assert not one.ask(vote(1, THIRD)).granted
    assert one.ask(vote(1)).granted


def test_vote_for_a_log_that_is_behind_is_rejected() -> None:
    log = LogSummary(end_offset=5, epochs=((1, 0),))
    assert not One(ElectionState(1), log).ask(vote(2, last=OffsetAndEpoch(1, 4))).granted
    assert One(ElectionState(1), log).ask(vote(2, last=OffsetAndEpoch(1, 5))).granted
    assert (
        One(ElectionState(2), LogSummary(end_offset=5, epochs=((1, 0),)))
        .ask(vote(3, last=OffsetAndEpoch(2, 1)))
        .granted
    )  # a later epoch wins over a longer log


def test_vote_request_for_another_directory_is_rejected() -> None:
    request = VoteRequest(1, OTHER, key_of(1, 7), OffsetAndEpoch(0, 0))
    assert One().ask(request).error == ErrorCode.INVALID_VOTER_KEY


def test_vote_request_of_an_earlier_epoch_is_fenced() -> None:
    one = One(ElectionState(3))
    assert one.ask(vote(2)).error == ErrorCode.FENCED_LEADER_EPOCH
    assert one.ask(BeginQuorumEpochRequest(2, 2, ME)).error == ErrorCode.FENCED_LEADER_EPOCH


def test_malformed_vote_request_is_rejected() -> None:
    assert One().ask(vote(1, last=OffsetAndEpoch(1, 3))).error == ErrorCode.INVALID_REQUEST
    assert One().ask(vote(1, last=OffsetAndEpoch(1, 3), pre=True)).error == NONE


# ---- pre-votes (KIP-996)


def test_election_begins_with_a_pre_vote_in_the_same_epoch() -> None:
    one = One()
    effects = one.step(Tick(), after_ms=2000)
    assert isinstance(one.state, Prospective)
    assert [(s.destination, s.request.epoch, s.request.pre_vote) for s in effects.sends] == [  # type: ignore[union-attr]
        (2, 0, True),
        (3, 0, True),
    ]
    assert effects.election is None


def test_refused_connection_ends_the_fetch_timeout() -> None:
    one = One().follow()
    fetch = one.sent[2].correlation_id
    one.state.has_fetched = True
    one.step(SendFailed(3, 99, refused=True))
    one.step(SendFailed(2, 99, refused=True))
    assert one.state.has_fetched, "neither the leader nor what was asked of it"
    assert not one.ask(vote(1, THIRD, pre=True)).granted
    one.step(SendFailed(2, fetch, refused=True))
    assert one.ask(vote(1, THIRD, pre=True)).granted, "the other one may have found out first"
    one.step(Tick(), after_ms=125)
    assert isinstance(one.state, Prospective)


def test_observer_asks_other_nodes_after_a_refused_connection() -> None:
    one = One()
    one.machine = RaftMachine(key_of(9), one.config, ElectionState(1, 2), LogSummary(), random.Random(1), 0)
    one.step(Tick())
    assert (one.sent.keys(), one.machine.quorum.leader_id) == ({2}, 2)
    one.step(SendFailed(2, one.sent[2].correlation_id, refused=True))
    before = one.sent[2]
    for _ in range(20):
        for send in one.step(Tick(), after_ms=125).sends:
            one.step(SendFailed(send.destination, send.correlation_id))
    assert one.sent.keys() == {1, 2, 3}
    assert one.sent[2] is before


def test_observer_asks_a_leader_again_that_other_nodes_name() -> None:
    """Simulator, seed 362: the leader's process ran again, but the observer asked only the other nodes, for ever."""
    one = One()
    one.machine = RaftMachine(key_of(9), one.config, ElectionState(1, 2), LogSummary(), random.Random(1), 0)
    one.step(Tick())
    one.step(SendFailed(2, one.sent[2].correlation_id, refused=True))
    before = one.sent[2]
    for _ in range(20):
        one.step(Tick(), after_ms=125)
        for node_id in one.sent.keys() & {1, 3}:
            one.answer(node_id, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 2))
    assert one.sent[2] is not before


def test_unanswered_request_does_not_end_the_fetch_timeout() -> None:
    one = One().follow()
    one.step(SendFailed(2, one.sent[2].correlation_id))
    one.step(Tick(), after_ms=1999)
    assert isinstance(one.state, Follower)


def test_pre_vote_does_not_change_the_voter() -> None:
    one = One()
    assert one.ask(vote(0, pre=True)).granted
    assert one.ask(vote(0, THIRD, pre=True)).granted
    assert one.effects.election is None and one.machine.quorum.voted is None


def test_follower_with_a_leader_rejects_pre_votes() -> None:
    one = One().follow()
    assert one.ask(vote(1, THIRD, pre=True)).granted
    one.answer(2, FetchResponse(NONE, 1, 2, 0))
    assert not one.ask(vote(1, THIRD, pre=True)).granted


def test_lost_pre_vote_follows_the_leader_again() -> None:
    one = One().follow()
    one.step(Tick(), after_ms=2500)
    assert isinstance(one.state, Prospective)
    one.answer(2, VoteResponse(NONE, 1, 2))
    one.answer(3, VoteResponse(NONE, 1, 2))
    assert isinstance(one.state, Follower) and one.machine.epoch == 1


def test_won_pre_vote_starts_an_election_with_a_saved_vote() -> None:
    one = One()
    one.step(Tick(), after_ms=2000)
    effects = one.answer(3, VoteResponse(NONE, 0, granted=True))
    assert isinstance(one.state, Candidate)
    assert effects.election == ElectionState(1, -1, ME)
    assert all(not send.request.pre_vote for send in effects.sends)  # type: ignore[union-attr]


def test_pre_vote_responses_do_not_count_as_votes() -> None:
    one = One()
    one.step(Tick(), after_ms=2000)
    late = one.sent[2]
    one.answer(3, VoteResponse(NONE, 0, granted=True))
    one.step(Answered(2, late.correlation_id, VoteResponse(NONE, 1, granted=True)))
    assert isinstance(one.state, Candidate)


# ---- leaders


def test_a_leader_begins_with_a_leader_change_and_writes_configured_voters() -> None:
    one = One()
    one.step(Tick(), after_ms=2000)
    one.answer(2, VoteResponse(NONE, 0, granted=True))
    effects = one.answer(2, VoteResponse(NONE, 1, granted=True))
    (append,) = effects.log_ops
    assert isinstance(append, Append)
    change, version, voters = append.batch.controls
    assert change == LeaderChangeControl(1, (ME, OTHER, THIRD), (ME, OTHER))
    assert version == KRaftVersionControl(1) and voters == one.config.voters
    assert effects.election == ElectionState(1, 1, ME)


def test_the_leader_counts_itself_only_when_synced() -> None:
    one = One().lead()
    one.fetch(OTHER, 3)
    assert one.machine.high_watermark == -1
    assert one.sync().high_watermark == 3


def test_two_followers_can_commit_before_the_leader_has_synced() -> None:
    one = One().lead()
    one.fetch(OTHER, 3)
    one.fetch(THIRD, 3)
    assert one.machine.high_watermark == 3


def test_records_of_earlier_epochs_are_committed_only_with_one_of_this_epoch() -> None:
    one = One(ElectionState(1), LogSummary(end_offset=5, epochs=((1, 0),)))
    one.lead().sync()
    one.fetch(OTHER, 5, epoch=1)
    assert one.machine.high_watermark == -1
    one.fetch(OTHER, 8)
    assert one.machine.high_watermark == 8


def test_restarted_leader_is_resigned_and_grants_no_vote_in_its_epoch() -> None:
    one = One(ElectionState(4, 1, ME))
    assert isinstance(one.state, Resigned)
    assert not one.ask(vote(4)).granted
    one.step(Tick(), after_ms=2500)
    assert one.machine.epoch == 5 and isinstance(one.state, Unattached)


def test_a_leader_resigns_when_no_majority_fetches() -> None:
    one = One().lead_and_commit()
    one.step(Tick(), after_ms=2900)
    assert one.machine.is_leader
    one.step(Tick(), after_ms=200)
    assert isinstance(one.state, Resigned)


def test_fetches_of_a_majority_keep_the_leader() -> None:
    one = One().lead_and_commit()
    for _ in range(5):
        one.now += 1500
        one.fetch(THIRD, 3)
    assert one.machine.is_leader


def test_replica_knows_when_the_leader_before_it_was_last_heard() -> None:
    one = One().follow()
    assert one.machine.quorum.leader_contact is None, "BeginQuorumEpoch is no response"
    one.step(Tick(), after_ms=100)
    one.answer(2, FetchResponse(NONE, 1, 2, 0, 0))
    one.step(Tick(), after_ms=5_000)
    one.answer(3, VoteResponse(NONE, 1, 2, granted=True))
    one.answer(3, VoteResponse(NONE, 2, granted=True))
    assert isinstance(one.state, Leader)
    assert one.machine.quorum.leader_contact == (2, 100)
    one.ask(BeginQuorumEpochRequest(3, 2, ME))
    assert one.machine.quorum.leader_contact is None, "this replica has led since"


def test_begin_quorum_epoch_is_sent_to_voters_that_do_not_fetch() -> None:
    one = One().lead_and_commit()
    one.answer(2, BeginQuorumEpochResponse(NONE, 1, 1))
    one.answer(3, BeginQuorumEpochResponse(NONE, 1, 1))
    one.now += 900
    one.fetch(OTHER, 3)
    effects = one.step(Tick(), after_ms=200)
    assert [type(s.request).__name__ for s in effects.sends] == ["BeginQuorumEpochRequest"]
    assert [s.destination for s in effects.sends] == [3]


def test_end_quorum_epoch_lists_the_furthest_voter_first() -> None:
    one = One().lead_and_commit()
    one.fetch(THIRD, 0, epoch=0)
    effects = one.step(Resign(one.machine.epoch))
    requests = [send.request for send in effects.sends]
    assert {request.successors for request in requests} == {(OTHER, THIRD)}  # type: ignore[union-attr]


def test_first_successor_starts_an_election_at_once() -> None:
    one = One().follow()
    one.answer(2, FetchResponse(NONE, 1, 2, 0))
    one.ask(EndQuorumEpochRequest(1, 2, (ME, THIRD)))
    assert isinstance(one.state, Prospective)


def test_proposal_to_a_follower_is_rejected() -> None:
    with pytest.raises(NotRaftLeaderError):
        One().follow().step(Propose(b"x", 1))


# ---- replication


def test_fetch_is_delayed_until_there_is_a_record() -> None:
    one = One().lead_and_commit()
    assert one.fetch(OTHER, 3, max_wait_ms=500, high_watermark=3) is None
    effects = one.step(Propose(b"x", 1))
    (reply,) = effects.replies
    assert reply.response.read_offset == 3  # type: ignore[union-attr]


def test_fetch_returns_for_a_new_high_watermark() -> None:
    one = One().lead_and_commit()
    assert one.fetch(OTHER, 3, max_wait_ms=500, high_watermark=-1).high_watermark == 3
    assert one.fetch(OTHER, 3, max_wait_ms=500, high_watermark=3) is None
    assert len(one.step(Tick(), after_ms=500).replies) == 1


def test_delayed_fetches_are_rejected_when_leadership_is_lost() -> None:
    one = One().lead_and_commit()
    one.fetch(OTHER, 3, max_wait_ms=500, high_watermark=3)
    effects = one.step(Resign(one.machine.epoch))
    assert [r.response.error for r in effects.replies] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_fetch_of_another_epoch_is_rejected() -> None:
    one = One(ElectionState(4)).lead_and_commit()
    epoch = one.machine.epoch
    assert one.ask(FetchRequest(OTHER, epoch - 1, 0, 0)).error == ErrorCode.FENCED_LEADER_EPOCH
    assert one.ask(FetchRequest(OTHER, epoch + 1, 0, 0)).error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert One().follow().ask(FetchRequest(OTHER, 1, 0, 0)).error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_of_a_diverging_follower_returns_the_divergence() -> None:
    one = One(ElectionState(4), LogSummary(end_offset=9, epochs=((1, 0), (3, 4)))).lead()
    assert one.fetch(OTHER, 7, epoch=2).diverging == OffsetAndEpoch(1, 4)
    assert one.fetch(OTHER, 20, epoch=3).diverging == OffsetAndEpoch(3, 9)
    assert one.fetch(OTHER, 7, epoch=3).diverging is None


def test_follower_truncates_to_the_divergence() -> None:
    one = One(ElectionState(2), LogSummary(end_offset=9, epochs=((1, 0), (2, 6)))).follow(3)
    effects = one.answer(2, FetchResponse(NONE, 3, 2, diverging=OffsetAndEpoch(1, 4)))
    assert effects.log_ops == [TruncateFrom(4)]
    assert one.machine.quorum.log.end == OffsetAndEpoch(1, 4)


def test_truncation_below_the_high_watermark_stops_the_node() -> None:
    one = One().follow()
    one.answer(2, FetchResponse(NONE, 1, 2, 3, batches=(RaftBatch(0, 3, 1, b"abc"),)))
    one.sync()
    with pytest.raises(IllegalRaftStateError, match="committed records would be lost"):
        one.answer(2, FetchResponse(NONE, 1, 2, 3, diverging=OffsetAndEpoch(1, 2)))


def test_follower_fetches_only_when_synced() -> None:
    one = One().follow()
    effects = one.answer(2, FetchResponse(NONE, 1, 2, 0, batches=(RaftBatch(0, 3, 1, b"abc"),)))
    assert effects.sends == [] and effects.sync_ticket is not None
    (send,) = one.step(Synced(effects.sync_ticket)).sends
    assert send.request.fetch_offset == 3  # type: ignore[union-attr]


def test_sync_before_a_truncation_does_not_count_after_it() -> None:
    one = One().follow()
    first = one.answer(2, FetchResponse(NONE, 1, 2, 0, batches=(RaftBatch(0, 5, 1),))).sync_ticket
    assert first is not None
    one.ask(BeginQuorumEpochRequest(2, 3, ME))
    log = one.machine.quorum.log
    log.truncate(2)
    log.append(RaftBatch(2, 6, 2))
    log.synced(first)
    assert (log.synced_offset, log.end_offset, log.is_synced) == (2, 8, False)


def test_follower_appends_only_batches_that_continue_its_log() -> None:
    one = One().follow()
    batches = (RaftBatch(0, 1, 1), RaftBatch(5, 1, 1))
    one.answer(2, FetchResponse(NONE, 1, 2, 0, batches=batches))
    assert one.machine.quorum.log.end_offset == 1


def test_high_watermark_of_a_follower_is_limited_by_its_log() -> None:
    one = One().follow()
    effects = one.answer(2, FetchResponse(NONE, 1, 2, 99, batches=(RaftBatch(0, 2, 1),)))
    assert effects.high_watermark == 2


def test_two_leaders_in_one_epoch_stop_the_node() -> None:
    one = One().follow()
    with pytest.raises(IllegalRaftStateError, match="voted twice"):
        one.ask(BeginQuorumEpochRequest(1, 3, ME))


def test_leader_with_a_lost_quorum_state_grants_no_vote_in_its_epoch() -> None:
    one = One()
    one.step(Tick(), after_ms=2000)
    one.answer(2, VoteResponse(NONE, 7, 1))
    assert one.machine.epoch == 7 and not one.ask(vote(7, THIRD)).granted


# ---- snapshots


def test_fetch_below_the_log_start_returns_the_snapshot_id() -> None:
    at = OffsetAndEpoch(1, 4)
    one = One(ElectionState(1), LogSummary(at, 9, ((1, 4),), (at,))).lead()
    assert one.fetch(OTHER, 2, epoch=1).snapshot_id == at
    assert one.fetch(OTHER, 0, epoch=0).snapshot_id == at
    assert one.fetch(OTHER, 4, epoch=1).snapshot_id is None


def test_fetch_of_an_unknown_snapshot_is_rejected() -> None:
    at = OffsetAndEpoch(1, 4)
    one = One(ElectionState(1), LogSummary(at, 9, ((1, 4),), (at,))).lead()
    epoch = one.machine.epoch
    assert one.ask(FetchSnapshotRequest(OTHER, epoch, at, 0)).error == NONE
    wrong = FetchSnapshotRequest(OTHER, epoch, OffsetAndEpoch(1, 5), 0)
    assert one.ask(wrong).error == ErrorCode.SNAPSHOT_NOT_FOUND
    assert one.ask(FetchSnapshotRequest(OTHER, epoch, at, -1)).error == ErrorCode.POSITION_OUT_OF_RANGE


def test_snapshot_of_uncommitted_records_stops_the_node() -> None:
    one = One().lead()
    with pytest.raises(IllegalRaftStateError, match="uncommitted records"):
        one.step(SnapshotTaken(OffsetAndEpoch(1, 3)))


def test_snapshot_contains_the_voters_at_its_end_offset() -> None:
    one = One().lead_and_commit()
    assert one.machine.snapshot_controls(3) == (1, one.config.voters)
    assert One(kraft=0).lead_and_commit().machine.snapshot_controls(1) == (0, None)


# ---- voters (KIP-853)


def added(one: One, key: ReplicaKey) -> Effects:
    """Node `key` has caught up, and AddVoter is received for it."""
    one.fetch(key, one.machine.quorum.log.end_offset)
    assert one.ask(AddVoterRequest(key, voter_of(key).endpoints)) is None
    assert isinstance(one.sent[key.id].request, VersionsRequest)
    return one.answer(key.id, VersionsResponse(NONE, 0, 1))


def test_new_voter_counts_once_its_record_is_in_the_log() -> None:
    one = One().lead_and_commit()
    effects = added(one, key_of(4))
    assert effects.replies == [] and one.machine.voters.ids == (1, 2, 3, 4)
    one.sync()
    one.fetch(OTHER, 4)
    assert one.machine.high_watermark == 3  # two of four are no majority
    one.fetch(key_of(4), 4)
    assert one.machine.high_watermark == 4
    assert [r.response.error for r in one.effects.replies if r.token != one.token] == [NONE]


def test_second_change_of_voters_is_rejected() -> None:
    one = One().lead_and_commit()
    added(one, key_of(4))
    assert one.ask(RemoveVoterRequest(THIRD)).error == ErrorCode.REQUEST_TIMED_OUT


def test_no_change_before_the_leader_has_committed_in_its_epoch() -> None:
    assert One().lead().ask(RemoveVoterRequest(THIRD)).error == ErrorCode.REQUEST_TIMED_OUT


def test_change_of_voters_needs_kraft_version_1() -> None:
    assert One(kraft=0).lead_and_commit().ask(RemoveVoterRequest(THIRD)).error == ErrorCode.UNSUPPORTED_VERSION


def test_adding_a_voter_that_is_behind_is_rejected() -> None:
    one = One().lead_and_commit()
    one.fetch(key_of(4), 0, epoch=0)
    one.ask(AddVoterRequest(key_of(4), voter_of(key_of(4)).endpoints))
    (reply,) = one.answer(4, VersionsResponse(NONE, 0, 1)).replies
    assert reply.response.error == ErrorCode.REQUEST_TIMED_OUT and "caught up" in reply.response.message  # type: ignore[union-attr]


def test_duplicate_and_unknown_voters_are_rejected() -> None:
    one = One().lead_and_commit()
    again = AddVoterRequest(key_of(3, 5), voter_of(THIRD).endpoints)
    assert one.ask(again).error == ErrorCode.DUPLICATE_VOTER
    assert one.ask(RemoveVoterRequest(key_of(3, 5))).error == ErrorCode.VOTER_NOT_FOUND
    assert one.ask(AddVoterRequest(ReplicaKey(4), voter_of(THIRD).endpoints)).error == ErrorCode.INVALID_REQUEST


def test_a_leader_that_removed_itself_does_not_count_and_resigns_when_that_is_committed() -> None:
    one = One().lead_and_commit()
    one.ask(RemoveVoterRequest(ME))
    one.sync()
    one.fetch(OTHER, 4)
    assert one.machine.is_leader and one.machine.high_watermark == 3
    one.fetch(THIRD, 4)
    assert isinstance(one.state, Resigned) and one.machine.high_watermark == 4


def test_a_voter_updates_its_own_endpoints() -> None:
    one = One().lead_and_commit()
    moved = voter_of(key_of(9)).endpoints
    request = UpdateVoterRequest(one.machine.epoch, type(voter_of(OTHER))(OTHER, moved))
    assert one.ask(request).error == NONE
    entry = one.machine.voters.get(2)
    assert entry is not None and entry.endpoints == moved


def test_truncated_voters_do_not_count() -> None:
    two = Voters(tuple(voter_of(key_of(i)) for i in (1, 2)))
    one = One(log=LogSummary(end_offset=2, epochs=((1, 0),), voters=((1, two),))).follow(2)
    assert one.machine.voters.ids == (1, 2)
    one.answer(2, FetchResponse(NONE, 2, 2, diverging=OffsetAndEpoch(1, 1)))
    assert one.machine.voters.ids == (1, 2, 3)


def test_kraft_version_upgrade_needs_the_directory_ids_of_all_voters() -> None:
    one = One(kraft=0).lead_and_commit()
    with pytest.raises(NotRaftLeaderError, match=r"\[2, 3\]"):
        one.step(UpgradeKRaftVersion())
    for key in (OTHER, THIRD):
        assert one.ask(UpdateVoterRequest(one.machine.epoch, voter_of(key))).error == NONE
    one.step(UpgradeKRaftVersion())
    assert one.machine.quorum.kraft_version == 1 and one.machine.voters.keys == (ME, OTHER, THIRD)


def test_describe_shows_voters_and_observers() -> None:
    one = One().lead_and_commit()
    one.fetch(key_of(8), 0, epoch=0)
    view = one.machine.describe(one.now)
    assert (view.leader_id, view.high_watermark) == (1, 3)
    assert [(replica.key.id, replica.log_end_offset) for replica in view.voters] == [(1, 3), (2, 3), (3, -1)]
    assert [replica.key.id for replica in view.observers] == [8]


def test_single_voter_elects_itself_and_commits_when_synced() -> None:
    one = One(voters=1)
    effects = one.step(Tick(), after_ms=2000)
    assert one.machine.is_leader and effects.election == ElectionState(1, 1, ME)
    assert one.sync().high_watermark == 3
