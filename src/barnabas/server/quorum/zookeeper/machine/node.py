"""Machine: one node of a cluster whose metadata log is in ZooKeeper: reads the log, and writes it as elected leader.

    session:    connected -> sync -> read all state again        (after each connection, because state may be stale)
    node id:    /brokers/ids/N is owned by this session           registration.py
    log:        tail -> entries up to the tail -> commits         log_view.py, reader.py
    leadership: no controller, whole log read -> election -> appends, heartbeats, snapshots -> lost
                                                                  lease.py, writer.py, appends.py, upkeep.py
                the leader watches the znodes of all nodes            live_nodes.py

The election is one transaction that writes the next /controller_epoch, the tail with that epoch, and /controller. The
transaction checks the versions that this node has read, so only a node that has read the whole log can win. An append
is one transaction too: it checks that the epoch is unchanged, moves the tail, and creates the entry. So a controller of
an earlier epoch cannot write, and every writer knows all entries before its own.

The leadership is a lease of two thirds of the session timeout, from the time when its last successful transaction was
sent. ZooKeeper does not expire the session earlier. So no other node is elected while this node acts as the controller,
even if this process was paused, or its ZooKeeper server is disconnected from the others without noticing. After a lost
answer, the log is read again to find out the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.ports import LoadedSnapshot
from barnabas.server.metadata.records.codec import MetadataRecord
from barnabas.server.quorum.zookeeper.layout import (
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    TAIL,
    ControllerInfo,
    LogTail,
    SnapshotInfo,
    broker_path,
    read_controller,
    read_controller_epoch,
    snapshot_name,
    write_controller,
    write_tail,
)
from barnabas.server.quorum.zookeeper.machine.effects import Effect, Fatal, LeaderChanged
from barnabas.server.quorum.zookeeper.machine.lease import ControllerLease
from barnabas.server.quorum.zookeeper.machine.live_nodes import LiveNodes
from barnabas.server.quorum.zookeeper.machine.log_view import ZooKeeperLogView
from barnabas.server.quorum.zookeeper.machine.reader import MissingError, ZooKeeperCall
from barnabas.server.quorum.zookeeper.machine.registration import BrokerIdRegistration
from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Check,
    Create,
    Delete,
    Done,
    FailureReason,
    Get,
    Multi,
    Op,
    Request,
    RequestFailed,
    SetData,
    Znode,
)
from barnabas.server.quorum.zookeeper.machine.upkeep import SnapshotUpkeep
from barnabas.server.quorum.zookeeper.machine.writer import Writer

_NO_LEADER: Final = -1


class ControllerCandidate(Struct, frozen=True):
    """A node's id, the address of its controller listener, and whether it may become the active controller."""

    node_id: int
    host: str
    port: int
    eligible: bool = True


class ZooKeeperMachine:
    """The machine of one node. The shell calls `on_*` for events, sends the request that `next_request` returns, and
    executes the effects of `take_effects`.

    `now_ms` is monotonic time, used for the lease. `wall_ms` is the wall clock, only written into records.
    """

    def __init__(self, me: ControllerCandidate, broker: bytes) -> None:
        self._me = me
        self.registration = BrokerIdRegistration(me.node_id, broker)
        self.campaigning = False
        """Whether to start an election if there is no controller."""
        self._resigning = False
        self._failed = False
        self._effects: list[Effect] = []
        self._ask: ZooKeeperCall | None = None
        self._sent_ms = 0
        # the session
        self._connected = False
        self._suspended_ms = 0
        self._session = 0
        self._lease_ms = 0
        self._log = ZooKeeperLogView()
        self._live_nodes = LiveNodes()
        # lease
        self._controller: ControllerInfo | None = None
        self._controller_stale = True
        self._leftover: ControllerInfo | None = None
        """This session's /controller after an election whose answer was lost: delete the znode."""
        self._epoch: tuple[int, int] | None = None
        self._announced = (_NO_LEADER, 0)
        self._lease: ControllerLease | None = None
        self._writer = Writer(self._log)
        self._maintenance_next = False
        """True if the next request is for snapshots or late readers, so that a full queue cannot delay them forever."""
        self._upkeep = SnapshotUpkeep()

    # ---- state

    @property
    def position(self) -> int:
        """The offset after the last record that this node has read."""
        return self._log.position

    @property
    def caught_up(self) -> bool:
        """Whether the log is read up to the known tail, and this session owns the node id."""
        return self._ask is None and self._log.at_end and self.registration.held

    @property
    def resigned(self) -> bool:
        return self._resigning and self._lease is None and self._ask is None

    @property
    def controller(self) -> ControllerInfo | None:
        """The active controller, as far as this node knows. It is this node only while this node's lease lasts."""
        return self._controller

    @property
    def epoch(self) -> int:
        return self._announced[1]

    @property
    def metadata_version(self) -> int:
        """The metadata.version after the records that were read."""
        return self._log.metadata_version

    def is_leading(self, now_ms: int) -> bool:
        over = self._failed or self._resigning
        return self._lease is not None and now_ms < self._lease.lease_until_ms and not over

    def leader_id(self, now_ms: int) -> int:
        """-1 if there is no leader, or if the connection to ZooKeeper has been lost for longer than the lease."""
        if not self._connected and now_ms - self._suspended_ms > self._lease_ms:
            return _NO_LEADER
        leader_id = self._announced[0]
        return _NO_LEADER if leader_id == self._me.node_id and not self.is_leading(now_ms) else leader_id

    def wake_at(self) -> int | None:
        """The latest time for the next call of `next_request` if there is no event before; None if there is none."""
        idle = self._connected and self._ask is None
        times = [self.registration.wake_at] if idle and not self.registration.held else []
        if self._lease is not None:
            lease_until = self._lease.lease_until_ms
            times.append(self._lease.heartbeat_at(self._lease_ms) if idle else lease_until)
        return min((time for time in times if time is not None), default=None)

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # ---- events

    def on_connected(self, session_id: int, timeout_ms: int) -> None:
        if session_id != self._session:
            self._step_down()
        self._connected = True
        self._session = session_id
        self._lease_ms = timeout_ms * 2 // 3
        self.registration.on_session(session_id, timeout_ms)
        self._mark_stale()

    def on_suspended(self, now_ms: int) -> None:
        """The connection was lost; the session may continue."""
        self._connected = False
        self._suspended_ms = now_ms

    def on_expired(self) -> None:
        self._connected, self._session = False, 0
        self.registration.on_expired()
        self._step_down()

    def on_changed(self, path: str) -> None:
        """A watch has fired."""
        if path == TAIL:
            if self._lease is None:  # the leader itself changes the tail
                self._log.look_at_tail()
        elif path == CONTROLLER:
            self._controller_stale = True
        elif path == BROKER_IDS:
            self._live_nodes.look_again()
        elif path == broker_path(self._me.node_id):
            self.registration.on_changed()

    def on_answer(self, answer: Answer) -> None:
        """Handle the answer to the request that `next_request` returned."""
        ask, self._ask = self._ask, None
        assert ask is not None
        if isinstance(answer, RequestFailed) and answer.failure is FailureReason.REFUSED:
            self._fail(f"ZooKeeper rejected a request: {answer.detail}")
            return
        if isinstance(answer, RequestFailed) and answer.failure is FailureReason.CONNECTION_LOSS:
            self._mark_stale()
        elif self._lease is not None:
            self._lease.renew(ask.request, answer, self._sent_ms, self._lease_ms)
        try:
            self._emit(ask.on_answer(answer))
            if self._lease is not None and self._lease.is_fenced(ask.request, answer):
                self._step_down()
        except MissingError as error:
            if self._log.on_missing():
                self._fail(str(error))
        except MetadataError as error:
            self._fail(str(error))

    def propose(self, records: Sequence[MetadataRecord], now_ms: int, wall_ms: int) -> int:
        """Queue `records` as one batch. Returns a token, which the effect Settled will contain. Raises KafkaError."""
        if not self.is_leading(now_ms):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
        return self._writer.propose(records, wall_ms)

    def wants_snapshot(self, end_offset: int) -> bool:
        """Whether to write a snapshot: this node leads, no snapshot is being written, and none has this offset yet."""
        kept = self._log.tail.snapshot
        before = kept.end_offset if kept is not None else 0
        return self._lease is not None and not self._upkeep.busy and before < end_offset <= self.position

    def write_snapshot(self, snapshot: LoadedSnapshot, chunks: list[bytes]) -> None:
        """Start to write `snapshot`; `chunks` is the result of `encode_snapshot`. Does nothing if `wants_snapshot` is
        no longer true, for example because the leadership ended while `chunks` was computed."""
        if self._lease is None or not self.wants_snapshot(snapshot.end_offset):
            return
        name = snapshot_name(snapshot.end_offset, self._lease.epoch)
        info = SnapshotInfo(name, snapshot.end_offset, snapshot.epoch, snapshot.timestamp_ms, len(chunks))
        self._upkeep.begin(info, chunks)

    def add_reader(self) -> int:
        """Add a reader that reads the whole log again, for listeners that were registered later."""
        return self._log.add_reader()

    def resign(self) -> None:
        """Write the pending proposals, then give up the leadership and start no further election."""
        self._resigning = True

    # ---- requests

    def next_request(self, now_ms: int, wall_ms: int) -> Request | None:
        """The next request to ZooKeeper; None while a request is in flight, or if there is nothing to do."""
        if self._lease is not None and now_ms >= self._lease.lease_until_ms:
            self._step_down()
        if self._ask is not None or not self._connected or self._failed:
            return None
        try:
            self._ask = self._next(now_ms, wall_ms)
        except MetadataError as error:
            self._fail(str(error))
        self._sent_ms = now_ms
        return self._ask.request if self._ask is not None else None

    def _next(self, now_ms: int, wall_ms: int) -> ZooKeeperCall | None:
        if self._lease is not None and self._log.tail.epoch != self._lease.epoch:
            self._step_down()
        lease = self._lease
        if lease is not None and now_ms >= lease.heartbeat_at(
            self._lease_ms
        ):  # before all reads, which do not renew the lease
            return ZooKeeperCall(Multi((lease.check,)), lambda answer: self._on_heartbeat(answer, lease))
        ask = self._log.ask_ready() or self.registration.ask(now_ms) or self._log.ask()
        if ask is not None:
            return ask
        self._emit(self._writer.on_epoch())
        if self._controller_stale:
            return self._ask_controller()
        if self._leftover is not None:
            return self._ask_leftover(self._leftover)
        if lease is not None:
            return self._live_nodes.ask() or self._ask_as_leader(lease)
        ask = self._log.ask_late(self._effects)
        if ask is not None:
            return ask
        may_stand = self.campaigning and self._me.eligible and not self._resigning and self.registration.held
        return self._ask_election(wall_ms) if may_stand and self._controller is None else None

    # ---- election

    def _ask_controller(self) -> ZooKeeperCall:
        self._controller_stale = False
        return ZooKeeperCall(Get(CONTROLLER, watch=True), self._on_controller)

    def _on_controller(self, answer: Answer) -> list[Effect]:
        self._leftover = None
        if isinstance(answer, Znode):
            info = read_controller(answer.data)
            mine = answer.owner == self._session
            if mine and self._lease is None:
                self._leftover = info  # this session won an election whose answer was lost
                return []
            if not mine and self._lease is not None:
                self._step_down()
            self._controller = info
            if not (mine and self._resigning):
                self._announce(info.node_id, info.epoch)
        elif isinstance(answer, RequestFailed) and answer.failure is FailureReason.NO_NODE:
            self._step_down()
            self._controller = None
            self._announce(_NO_LEADER, self._announced[1])
        else:
            self._controller_stale = True
        return []

    def _ask_leftover(self, info: ControllerInfo) -> ZooKeeperCall:
        """Delete /controller if its epoch is the latest.

        The epoch is checked because the request may be executed late, after another node has created the znode; the
        version of a new znode is always the same.
        """
        if self._epoch is None:
            return ZooKeeperCall(Get(CONTROLLER_EPOCH), self._on_controller_epoch)
        epoch, version = self._epoch
        if epoch != info.epoch:
            self._epoch = self._leftover = None
            return self._ask_controller()
        return ZooKeeperCall(Multi((Check(CONTROLLER_EPOCH, version), Delete(CONTROLLER))), self._on_leftover_deleted)

    def _on_leftover_deleted(self, answer: Answer) -> list[Effect]:
        self._epoch = self._leftover = None
        self._controller_stale = True
        return []

    def _ask_election(self, wall_ms: int) -> ZooKeeperCall:
        if self._epoch is None:
            return ZooKeeperCall(Get(CONTROLLER_EPOCH), self._on_controller_epoch)
        before, version = self._epoch
        epoch = max(before, self._log.tail.epoch) + 1
        me = ControllerInfo(self._me.node_id, epoch, self._me.host, self._me.port)
        tail = replace(self._log.tail, epoch=epoch)
        session = self._session
        ops: tuple[Op, ...] = (
            SetData(CONTROLLER_EPOCH, str(epoch).encode(), version),
            SetData(TAIL, write_tail(tail), self._log.tail_version),
            Create(CONTROLLER, write_controller(me, wall_ms), ephemeral=True),
        )
        return ZooKeeperCall(Multi(ops), lambda answer: self._on_election(answer, me, tail, session))

    def _on_controller_epoch(self, answer: Answer) -> list[Effect]:
        if isinstance(answer, Znode):
            self._epoch = (read_controller_epoch(answer.data), answer.version)
        return []

    def _on_election(self, answer: Answer, me: ControllerInfo, tail: LogTail, session: int) -> list[Effect]:
        self._epoch = None
        if not isinstance(answer, Done) or session != self._session:
            self._mark_stale()
            return []
        self._lease = ControllerLease(me.epoch, answer.versions[0], self._sent_ms + self._lease_ms)
        self._log.on_moved(tail, answer.versions[1])
        self._controller, self._controller_stale = me, True  # read it again to set a watch for its deletion
        self._writer.begin(self._lease)
        self._live_nodes.look_again()
        if tail.snapshot is not None:
            self._upkeep.clean()
        self._announce(me.node_id, me.epoch)
        return self._writer.on_epoch()

    def _step_down(self) -> None:
        if self._lease is None:
            return
        self._lease = self._controller = None
        self._upkeep.stop()
        self._announce(_NO_LEADER, self._announced[1])
        self._emit(self._writer.end())
        self._log.look_at_tail()
        self._controller_stale = True

    # ---- as leader

    def _on_heartbeat(self, answer: Answer, lease: ControllerLease) -> list[Effect]:
        if (
            self._lease is lease
            and isinstance(answer, RequestFailed)
            and answer.failure is not FailureReason.CONNECTION_LOSS
        ):
            self._step_down()
        return []

    def _ask_as_leader(self, lease: ControllerLease) -> ZooKeeperCall | None:
        writes = self._writer.waiting
        if writes and (self._resigning or not self._maintenance_next):
            self._maintenance_next = True
            return self._writer.ask()
        self._maintenance_next = False
        ask = self._log.ask_late(self._effects) or self._ask_maintenance(lease)
        return self._writer.ask() if ask is None and writes else ask

    def _ask_maintenance(self, lease: ControllerLease) -> ZooKeeperCall | None:
        if self._resigning:
            self._announce(
                _NO_LEADER, lease.epoch
            )  # announced before the request is sent, because another node may lead before the answer arrives
            return ZooKeeperCall(
                Multi((lease.check, Delete(CONTROLLER))), lambda answer: self._on_resigned(answer, lease)
            )
        published = self._upkeep.finished(self._log.tail)
        if published is not None:
            ops = (lease.check, SetData(TAIL, write_tail(published), self._log.tail_version))
            return ZooKeeperCall(Multi(ops), lambda answer: self._on_published(answer, lease, published))
        return self._upkeep.ask(lease, self._log.tail)

    def _on_published(self, answer: Answer, lease: ControllerLease, tail: LogTail) -> list[Effect]:
        if self._lease is lease and isinstance(answer, Done):
            self._log.on_moved(tail, answer.versions[1])
            self._upkeep.published()
        else:
            self._log.look_at_tail()
        return []

    def _on_resigned(self, answer: Answer, lease: ControllerLease) -> list[Effect]:
        if self._lease is lease and not isinstance(answer, RequestFailed):
            self._step_down()
        return []

    # ---- inside

    def _mark_stale(self) -> None:
        """Treat all state as stale."""
        self._log.look_again()
        self._live_nodes.look_again()
        self._controller_stale = True
        self._epoch = None

    def _announce(self, leader_id: int, epoch: int) -> None:
        if (leader_id, epoch) != self._announced:
            self._announced = (leader_id, epoch)
            self._effects.append(LeaderChanged(leader_id, epoch))

    def _emit(self, effects: list[Effect]) -> None:
        self._log.note(effects)
        self._effects += self._writer.on_read(effects)

    def _fail(self, reason: str) -> None:
        self._failed = True
        self._step_down()
        self._effects.append(Fatal(reason))
