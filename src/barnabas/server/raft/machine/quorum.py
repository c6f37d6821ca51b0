"""Machine: the state of a replica, and the transitions between states (Kafka's QuorumState).

Each transition sets what must be durable (`Effects.election`), so that no handler can omit it. The handlers are in
`elections`, `replication`, `snapshots` and `membership`. They read a `Quorum` and change it through its methods.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from barnabas.core.errors import ErrorCode
from barnabas.core.rng import Rng
from barnabas.server.raft.errors import IllegalRaftStateError
from barnabas.server.raft.machine.events import Append, Effects, LeaderAndEpoch, Reply, SendRequest, TruncateFrom
from barnabas.server.raft.machine.history import ControlRecordHistory
from barnabas.server.raft.machine.log_offsets import RaftLogOffsets
from barnabas.server.raft.machine.messages import FetchRequest, FetchResponse, RaftRequest
from barnabas.server.raft.machine.progress import EpochProgress
from barnabas.server.raft.machine.request_manager import RequestManager
from barnabas.server.raft.machine.states import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    State,
    Tally,
    Unattached,
)
from barnabas.server.raft.machine.values import (
    NO_NODE,
    NO_OFFSET,
    ElectionState,
    Endpoints,
    KRaftVersionControl,
    LeaderChangeControl,
    LogSummary,
    RaftBatch,
    RaftConfig,
    ReplicaKey,
    VoterNode,
    Voters,
)


class LeaderContact(NamedTuple):
    """The last response of a leader that this replica follows, or followed until it lost contact."""

    leader_id: int
    at_ms: int


class DelayedRaftFetch(Struct):
    """A fetch that the leader answers when there are new data, or at the deadline."""

    token: int
    request: FetchRequest
    deadline_ms: int


class PendingChange(Struct):
    """The change of the voters that the leader is carrying out."""

    token: int
    deadline_ms: int
    voter: VoterNode | None = None
    """The voter to be added. Its versions are requested before the record is appended."""
    offset: int | None = None
    """The offset of the voters record, or None until it is appended."""
    acknowledged: bool = False
    """Whether the request is answered when the record is appended, and not when it is committed."""


class Quorum:
    """The whole state of a replica. `fx` collects the effects of the current step."""

    def __init__(
        self, me: ReplicaKey, config: RaftConfig, election: ElectionState, log: LogSummary, rng: Rng, now_ms: int
    ) -> None:
        self.me = me
        self.config = config
        self.rng = rng
        self.now_ms = now_ms
        self.fx = Effects()
        self.log = RaftLogOffsets(log)
        self.history = ControlRecordHistory(config, log.kraft_versions, log.voters)
        self.requests = RequestManager(config)
        self.high_watermark = log.start.offset if log.start.offset > 0 else NO_OFFSET
        self.delayed_fetches: list[DelayedRaftFetch] = []
        self.pending_change: PendingChange | None = None
        self.updated_voters: dict[int, VoterNode] = {}
        """The voters that have sent UpdateRaftVoter, by node id. With kraft.version 0, they are not stored in the
        log."""
        self.epoch = election.epoch
        self.leader_id = election.leader_id
        self.leader_endpoints: Endpoints = ()
        self.leader_contact: LeaderContact | None = None
        """The last leader's last response; None if this replica has had none."""
        self.voted = election.voted
        self._saved = election
        self._notified = LeaderAndEpoch(NO_NODE, 0)
        self.state: State = self._initial_state(election)
        self._save()

    def _initial_state(self, election: ElectionState) -> State:
        """The state after the start (Kafka's QuorumState.initialize): Resigned if this replica led before the shutdown,
        Follower if it knew a leader that is a voter, and otherwise Unattached. If the log contains a later epoch than
        `election`, the replica is Unattached in that epoch. A replica that is the only voter is Unattached, and starts
        an election at once."""
        alone = self.is_voter and self.voters.is_only(self.me)
        deadline = self.now_ms if alone else self.now_ms + self.random_election_timeout_ms()
        if election.epoch < self.log.last_epoch:
            # The file was lost or restored from a backup: the log contains records of a later epoch.
            self.epoch, self.leader_id, self.voted = self.log.last_epoch, NO_NODE, None
            return Unattached(deadline)
        if election.leader_id == self.me.id:
            if not alone:
                return Resigned(deadline)
            self.leader_id = NO_NODE
            return Unattached(deadline)
        if election.leader_id != NO_NODE:
            self.leader_endpoints = self.endpoints_of(election.leader_id)
            if self.voters.get(election.leader_id) is not None:
                return self._follower()
        return Unattached(deadline)

    # ---- properties of the state

    @property
    def voters(self) -> Voters:
        return self.history.voters.last.value

    @property
    def kraft_version(self) -> int:
        return self.history.kraft_version.last.value

    @property
    def is_voter(self) -> bool:
        return self.config.can_vote and self.voters.has(self.me)

    @property
    def leader(self) -> Leader | None:
        return self.state if isinstance(self.state, Leader) else None

    @property
    def follower(self) -> Follower | None:
        return self.state if isinstance(self.state, Follower) else None

    @property
    def other_voters(self) -> tuple[ReplicaKey, ...]:
        return tuple(key for key in self.voters.keys if key.id != self.me.id)

    def endpoints_of(self, node_id: int) -> Endpoints:
        voter = self.voters.get(node_id)
        if voter is not None and voter.endpoints:
            return voter.endpoints
        return dict(self.config.bootstrap).get(node_id, ())

    def random_election_timeout_ms(self) -> int:
        """A random timeout between one and two election timeouts, so that few replicas start elections at once."""
        timeout = self.config.controller_quorum_election_timeout_ms
        return timeout + self.rng.randrange(timeout)

    # ---- transitions

    def become_unattached(self, epoch: int, *, voted: ReplicaKey | None = None) -> None:
        """Enter a later epoch whose leader is unknown. A running election timeout is not restarted."""
        assert epoch > self.epoch
        match self.state:
            case Unattached() | Prospective() | Candidate():
                deadline = self.state.election_deadline_ms
            case _:
                deadline = self.now_ms + self.random_election_timeout_ms()
        self._enter(Unattached(deadline), epoch=epoch, voted=voted)

    def become_leaderless(self, backoff_ms: int = 0) -> None:
        """Become Unattached in the same epoch, after a lost pre-vote, or because this replica is not a voter any more.
        `backoff_ms` is added to the election timeout."""
        deadline = self.now_ms + self.random_election_timeout_ms() + backoff_ms
        self._enter(Unattached(deadline), epoch=self.epoch, leader_id=self.leader_id)

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Vote for a candidate. A replica votes once in an epoch, and the vote is durable before the response is
        sent."""
        assert self.voted is None and self.leader_id == NO_NODE and candidate.id != self.me.id
        self.voted = candidate
        self._enter(Unattached(self.now_ms + self.random_election_timeout_ms()), epoch=self.epoch)

    def become_prospective(self) -> None:
        """Start a pre-vote (KIP-996)."""
        assert self.is_voter and not isinstance(self.state, Leader)
        retries = self.state.retries if isinstance(self.state, Candidate) else 0
        tally = Tally(self.voters)
        tally.record(self.me.id, granted=True)
        deadline = self.now_ms + self.random_election_timeout_ms()
        self._enter(Prospective(deadline, tally, retries), epoch=self.epoch, leader_id=self.leader_id)
        if tally.is_won:
            self.become_candidate()

    def become_candidate(self) -> None:
        """Start an election in the next epoch, and vote for this replica."""
        assert isinstance(self.state, Prospective)
        tally = Tally(self.voters)
        tally.record(self.me.id, granted=True)
        deadline = self.now_ms + self.random_election_timeout_ms()
        state = Candidate(deadline, tally, self.state.retries + 1)
        self._enter(state, epoch=self.epoch + 1, voted=self.me)
        if tally.is_won:
            self.become_leader()

    def become_leader(self) -> None:
        """Become the leader, and append a LeaderChange batch. When that batch is committed, all earlier records
        are committed, too."""
        assert isinstance(self.state, Candidate) and self.state.tally.is_won
        granting = self.state.tally.granted
        start = self.log.end_offset
        progress = EpochProgress(self.me, self.voters, start, self.config, self.now_ms)
        self.updated_voters = {}
        self._enter(Leader(progress, start, self.now_ms), epoch=self.epoch, leader_id=self.me.id)
        keys = self.voters.keys
        change = LeaderChangeControl(self.me.id, keys, tuple(key for key in keys if key.id in granting))
        self.append(RaftBatch(start, 0, self.epoch), (change, *self._bootstrap_records()))

    def _bootstrap_records(self) -> tuple[KRaftVersionControl | Voters, ...]:
        """The control records that a new leader appends after LeaderChange. If the log contains no voters yet, these
        are the kraft.version and the configured voters. Otherwise these are the voters, if this node's own endpoints or
        versions have changed. With kraft.version 0, there are none."""
        if self.kraft_version < 1:
            return ()
        mine = VoterNode(self.me, self.config.endpoints, self.config.min_version, self.config.max_version)
        voters = (self.voters.update(mine) if mine.endpoints else None) or self.voters
        if self.history.voters.last.offset == NO_OFFSET:
            return (KRaftVersionControl(self.kraft_version), voters)
        return (voters,) if voters != self.voters else ()

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints) -> None:
        """Follow a leader. Raises IllegalRaftStateError if the epoch has another leader."""
        assert leader_id != self.me.id and epoch >= self.epoch
        if epoch == self.epoch and self.leader_id not in (NO_NODE, leader_id):
            raise IllegalRaftStateError(
                f"Node {leader_id} claims to lead epoch {epoch}, which node {self.leader_id} leads: a voter has voted "
                "twice, so its disk has lost synced data. Find and replace that disk."
            )
        self.leader_endpoints = endpoints or self.endpoints_of(leader_id)
        if self.leader_contact is not None and self.leader_contact.leader_id != leader_id:
            self.leader_contact = None
        self._enter(self._follower(), epoch=epoch, leader_id=leader_id)

    def _follower(self) -> Follower:
        timeout = self.config.controller_quorum_fetch_timeout_ms
        return Follower(self.now_ms + timeout, membership_check_ms=self.now_ms)

    def on_leader_contact(self, state: Follower) -> None:
        """The leader has answered a fetch: the fetch timeout begins again."""
        self.leader_contact = LeaderContact(self.leader_id, self.now_ms)
        state.fetch_deadline_ms = self.now_ms + self.config.controller_quorum_fetch_timeout_ms

    def resign(self, *, shutting_down: bool = False) -> None:
        """Give up leadership, and send EndQuorumEpoch to the other voters."""
        state = self.state
        assert isinstance(state, Leader)
        successors = state.progress.successors()
        deadline = self.now_ms + self.random_election_timeout_ms()
        unacknowledged = {key.id for key in self.other_voters}
        self._enter(
            Resigned(deadline, successors, unacknowledged, shutting_down), epoch=self.epoch, leader_id=self.me.id
        )

    def _enter(self, state: State, *, epoch: int, leader_id: int = NO_NODE, voted: ReplicaKey | None = None) -> None:
        assert epoch >= self.epoch
        if isinstance(self.state, Leader):
            self._stop_leading(epoch, leader_id)
        if epoch > self.epoch:
            self.voted = None
        self.voted = voted or self.voted
        if isinstance(state, (Leader, Resigned)):
            self.leader_endpoints = self.config.endpoints
        elif not isinstance(state, (Follower, Prospective)):
            self.leader_endpoints = ()
        self.epoch, self.leader_id, self.state = epoch, leader_id, state
        self.requests.reset()
        self._save()

    def _save(self) -> None:
        election = ElectionState(self.epoch, self.leader_id, self.voted)
        if election != self._saved:
            self._saved = election
            self.fx.election = election
        resigned = isinstance(self.state, Resigned)
        leader = LeaderAndEpoch(NO_NODE if resigned else self.leader_id, self.epoch)
        if leader != self._notified:
            self._notified = leader
            self.fx.leader = leader

    def _stop_leading(self, epoch: int, leader_id: int) -> None:
        self.leader_contact = None
        for fetch in self.delayed_fetches:
            self.reply(fetch.token, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch, leader_id))
        self.delayed_fetches.clear()

    # ---- actions of the handlers

    def append(
        self, batch: RaftBatch, controls: tuple[LeaderChangeControl | KRaftVersionControl | Voters, ...] = ()
    ) -> RaftBatch:
        """Append a batch as leader. With `controls`, the batch is a control batch of these records."""
        if controls:
            batch = RaftBatch(batch.base_offset, len(controls), batch.epoch, b"", controls)
        self.write(batch)
        return batch

    def write(self, batch: RaftBatch) -> None:
        """Append a batch. Voters in the batch are in force at once."""
        self.fx.sync_ticket = self.log.append(batch)
        self.fx.log_ops.append(Append(batch))
        if batch.controls and self.history.append(batch) and isinstance(self.state, Leader):
            self.state.progress.set_voters(self.voters)

    def truncate(self, offset: int) -> None:
        """Truncate the log. Raises IllegalRaftStateError below the high watermark."""
        if offset < self.high_watermark:
            raise IllegalRaftStateError(
                f"The leader {self.leader_id} of epoch {self.epoch} requires truncation to {offset}, below the high "
                f"watermark {self.high_watermark}: committed records would be lost. A voter has lost its data."
            )
        self.fx.sync_ticket = self.log.truncate(offset)
        self.fx.log_ops.append(TruncateFrom(offset))
        self.history.truncate(offset)

    def raise_high_watermark(self, offset: int) -> None:
        """Raise the high watermark. The high watermark never goes back, also not under a new leader."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.fx.high_watermark = offset

    def reply(self, token: int, response: object) -> None:
        self.fx.replies.append(Reply(token, response))  # type: ignore[arg-type]  # the type depends on the request

    def send(self, node_id: int, request: RaftRequest, endpoints: Endpoints = ()) -> None:
        """Send a request to a node without a request in flight (see `is_ready`)."""
        correlation_id = self.requests.on_sent(node_id, self.now_ms)
        self.fx.sends.append(SendRequest(node_id, correlation_id, request, endpoints or self.endpoints_of(node_id)))

    def is_ready(self, node_id: int) -> bool:
        return self.requests.is_ready(node_id, self.now_ms)
