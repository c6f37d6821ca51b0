"""Machine: one node of a cluster whose metadata log is in ZooKeeper: it reads the log, and leads it when elected.

    session: connected -> sync -> look at everything anew       (after every connection: what was known may be old)
    the id:  /brokers/ids/N is this node's                       registration.py
    the log: tail -> entries up to it -> commits                 log_view.py, reader.py
    office:  nobody is controller, all is read -> election -> appends, heartbeats, snapshots -> lost
                                                                 office.py, writer.py, appends.py, upkeep.py

The election is one transaction: the next /controller_epoch, the tail with that epoch, /controller. It demands the
versions this node has read, so nobody wins who has not read all of the log. An append is one transaction too: the epoch
is unchanged, the tail moves on, the entry is there. So a controller of an earlier epoch can write nothing, and no entry
can follow another one that its writer did not know of.

An office is held by lease: two thirds of the session, from the sending of its last transaction that took effect. The
ensemble does not end the session before, so nobody else is elected while this node still answers for the cluster, even
if it was stopped for a while, or its server is cut off from the others, and does not know it. An answer that got lost
is not guessed: the log is read again, and it tells.
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
from barnabas.server.node.zookeeper.layout import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    TAIL,
    ControllerInfo,
    SnapshotInfo,
    Tail,
    broker_path,
    read_controller,
    read_controller_epoch,
    snapshot_name,
    write_controller,
    write_tail,
)
from barnabas.server.node.zookeeper.machine.effects import Effect, Fatal, LeaderChanged
from barnabas.server.node.zookeeper.machine.log_view import LogView
from barnabas.server.node.zookeeper.machine.office import Office
from barnabas.server.node.zookeeper.machine.reader import Ask, MissingError
from barnabas.server.node.zookeeper.machine.registration import Registration
from barnabas.server.node.zookeeper.machine.requests import (
    Answer,
    Check,
    Create,
    Delete,
    Done,
    Failed,
    Failure,
    Get,
    Multi,
    Op,
    Request,
    SetData,
    Znode,
)
from barnabas.server.node.zookeeper.machine.upkeep import SnapshotUpkeep
from barnabas.server.node.zookeeper.machine.writer import Writer

_NOBODY: Final = -1


class Candidate(Struct, frozen=True):
    """A node: its id, where its controller listener is, and whether it may lead."""

    node_id: int
    host: str
    port: int
    eligible: bool = True


class ZooKeeperMachine:
    """Tell it what happens (`on_*`); send the request that `next_request` gives; carry out `take_effects`.

    `now_ms` is monotonic: it counts what ZooKeeper counts. `wall_ms` is only written down.
    """

    def __init__(self, me: Candidate, broker: bytes) -> None:
        self._me = me
        self.registration = Registration(me.node_id, broker)
        self.campaigning = False
        """Whether to stand for election when nobody leads."""
        self._resigning = False
        self._failed = False
        self._effects: list[Effect] = []
        self._ask: Ask | None = None
        self._sent_ms = 0
        # the session
        self._connected = False
        self._suspended_ms = 0
        self._session = 0
        self._lease_ms = 0
        self._log = LogView()
        # office
        self._controller: ControllerInfo | None = None
        self._controller_stale = True
        self._leftover: ControllerInfo | None = None
        """An office of this session that it does not hold: /controller is to go."""
        self._epoch: tuple[int, int] | None = None
        self._told = (_NOBODY, 0)
        self._office: Office | None = None
        self._writer = Writer(self._log)
        self._tends_next = False
        """Every other request is for snapshots and late readers: an endless queue would hold them up for good."""
        self._upkeep = SnapshotUpkeep()

    # ---- what is to be seen from outside

    @property
    def position(self) -> int:
        """The end of what this node has read of the log."""
        return self._log.position

    @property
    def caught_up(self) -> bool:
        """All of the log is read as far as this node knows, and its id is its own."""
        return self._ask is None and self._log.at_end and self.registration.held

    @property
    def resigned(self) -> bool:
        return self._resigning and self._office is None and self._ask is None

    @property
    def controller(self) -> ControllerInfo | None:
        """Who leads, as far as this node knows; itself only while its office lasts."""
        return self._controller

    @property
    def epoch(self) -> int:
        return self._told[1]

    @property
    def metadata_version(self) -> int:
        """As the log has it that was read."""
        return self._log.metadata_version

    def is_leading(self, now_ms: int) -> bool:
        over = self._failed or self._resigning
        return self._office is not None and now_ms < self._office.lease_until_ms and not over

    def leader_id(self, now_ms: int) -> int:
        """-1 while nobody leads, or this node has not heard of ZooKeeper for so long that it cannot know."""
        if not self._connected and now_ms - self._suspended_ms > self._lease_ms:
            return _NOBODY
        leader_id = self._told[0]
        return _NOBODY if leader_id == self._me.node_id and not self.is_leading(now_ms) else leader_id

    def wake_at(self) -> int | None:
        """When to ask for the next request at the latest, if nothing happens before."""
        idle = self._connected and self._ask is None
        times = [self.registration.wake_at] if idle and not self.registration.held else []
        if self._office is not None:
            lease_until = self._office.lease_until_ms
            times.append(self._office.heartbeat_at(self._lease_ms) if idle else lease_until)
        return min((time for time in times if time is not None), default=None)

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # ---- what happens

    def on_connected(self, session_id: int, timeout_ms: int) -> None:
        if session_id != self._session:
            self._step_down()
        self._connected = True
        self._session = session_id
        self._lease_ms = timeout_ms * 2 // 3
        self.registration.on_session(session_id, timeout_ms)
        self._look_again()

    def on_suspended(self, now_ms: int) -> None:
        """The connection is gone; the session may go on."""
        self._connected = False
        self._suspended_ms = now_ms

    def on_expired(self) -> None:
        self._connected, self._session = False, 0
        self.registration.on_expired()
        self._step_down()

    def on_changed(self, path: str) -> None:
        """A watch has fired."""
        if path == TAIL:
            if self._office is None:  # who leads changes it himself
                self._log.look_at_tail()
        elif path == CONTROLLER:
            self._controller_stale = True
        elif path == broker_path(self._me.node_id):
            self.registration.on_changed()

    def on_answer(self, answer: Answer) -> None:
        """To the request that `next_request` gave."""
        ask, self._ask = self._ask, None
        assert ask is not None
        if isinstance(answer, Failed) and answer.failure is Failure.REFUSED:
            self._fail(f"ZooKeeper refused a request: {answer.detail}")
            return
        if isinstance(answer, Failed) and answer.failure is Failure.CONNECTION_LOSS:
            self._look_again()
        elif self._office is not None:
            self._office.renew(ask.request, answer, self._sent_ms, self._lease_ms)
        try:
            self._emit(ask.on_answer(answer))
            if self._office is not None and self._office.is_fenced(ask.request, answer):
                self._step_down()
        except MissingError as error:
            if self._log.on_missing():
                self._fail(str(error))
        except MetadataError as error:
            self._fail(str(error))

    def propose(self, records: Sequence[MetadataRecord], now_ms: int, wall_ms: int) -> int:
        """Append them as one batch. Gives a token, which an effect Settled will name. Raises KafkaError."""
        if not self.is_leading(now_ms):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
        return self._writer.propose(records, wall_ms)

    def wants_snapshot(self, end_offset: int) -> bool:
        """False if there is nothing to do: another node leads, it is being done, or was done."""
        kept = self._log.tail.snapshot
        before = kept.end_offset if kept is not None else 0
        return self._office is not None and not self._upkeep.busy and before < end_offset <= self.position

    def write_snapshot(self, snapshot: LoadedSnapshot, chunks: list[bytes]) -> None:
        """`chunks` is what `encode_snapshot` made of it, which may have taken a while."""
        if self._office is None or not self.wants_snapshot(snapshot.end_offset):
            return
        name = snapshot_name(snapshot.end_offset, self._office.epoch)
        info = SnapshotInfo(name, snapshot.end_offset, snapshot.epoch, snapshot.timestamp_ms, len(chunks))
        self._upkeep.begin(info, chunks)

    def add_reader(self) -> int:
        """Read all of the log once more, for those who came later."""
        return self._log.add_reader()

    def resign(self) -> None:
        """Finish what was proposed, then give up the office for good."""
        self._resigning = True

    # ---- what to do

    def next_request(self, now_ms: int, wall_ms: int) -> Request | None:
        """What to ask ZooKeeper now; None while an answer is awaited, or nothing is to be done."""
        if self._office is not None and now_ms >= self._office.lease_until_ms:
            self._step_down()
        if self._ask is not None or not self._connected or self._failed:
            return None
        try:
            self._ask = self._next(now_ms, wall_ms)
        except MetadataError as error:
            self._fail(str(error))
        self._sent_ms = now_ms
        return self._ask.request if self._ask is not None else None

    def _next(self, now_ms: int, wall_ms: int) -> Ask | None:
        if self._office is not None and self._log.tail.epoch != self._office.epoch:
            self._step_down()
        office = self._office
        if office is not None and now_ms >= office.heartbeat_at(self._lease_ms):  # first: what is read does not renew
            return Ask(Multi((office.check,)), lambda answer: self._on_heartbeat(answer, office))
        ask = self._log.ask_ready() or self.registration.ask(now_ms) or self._log.ask()
        if ask is not None:
            return ask
        self._emit(self._writer.on_epoch())
        if self._controller_stale:
            return self._ask_controller()
        if self._leftover is not None:
            return self._ask_leftover(self._leftover)
        if office is not None:
            return self._ask_in_office(office)
        ask = self._log.ask_late(self._effects)
        if ask is not None:
            return ask
        may_stand = self.campaigning and self._me.eligible and not self._resigning and self.registration.held
        return self._ask_election(wall_ms) if may_stand and self._controller is None else None

    # ---- election

    def _ask_controller(self) -> Ask:
        self._controller_stale = False
        return Ask(Get(CONTROLLER, watch=True), self._on_controller)

    def _on_controller(self, answer: Answer) -> list[Effect]:
        self._leftover = None
        if isinstance(answer, Znode):
            info = read_controller(answer.data)
            mine = answer.owner == self._session
            if mine and self._office is None:
                self._leftover = info  # won by a request whose answer was lost: begin anew
                return []
            if not mine and self._office is not None:
                self._step_down()
            self._controller = info
            if not (mine and self._resigning):
                self._tell(info.node_id, info.epoch)
        elif isinstance(answer, Failed) and answer.failure is Failure.NO_NODE:
            self._step_down()
            self._controller = None
            self._tell(_NOBODY, self._told[1])
        else:
            self._controller_stale = True
        return []

    def _ask_leftover(self, info: ControllerInfo) -> Ask:
        """Delete it while its epoch is the latest. A request may be carried out late, when another one is there: the
        znode's version does not tell them apart, for each is new."""
        if self._epoch is None:
            return Ask(Get(CONTROLLER_EPOCH), self._on_controller_epoch)
        epoch, version = self._epoch
        if epoch != info.epoch:
            self._epoch = self._leftover = None
            return self._ask_controller()
        return Ask(Multi((Check(CONTROLLER_EPOCH, version), Delete(CONTROLLER))), self._on_leftover_deleted)

    def _on_leftover_deleted(self, answer: Answer) -> list[Effect]:
        self._epoch = self._leftover = None
        self._controller_stale = True
        return []

    def _ask_election(self, wall_ms: int) -> Ask:
        if self._epoch is None:
            return Ask(Get(CONTROLLER_EPOCH), self._on_controller_epoch)
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
        return Ask(Multi(ops), lambda answer: self._on_election(answer, me, tail, session))

    def _on_controller_epoch(self, answer: Answer) -> list[Effect]:
        if isinstance(answer, Znode):
            self._epoch = (read_controller_epoch(answer.data), answer.version)
        return []

    def _on_election(self, answer: Answer, me: ControllerInfo, tail: Tail, session: int) -> list[Effect]:
        self._epoch = None
        if not isinstance(answer, Done) or session != self._session:
            self._look_again()
            return []
        self._office = Office(me.epoch, answer.versions[0], self._sent_ms + self._lease_ms)
        self._log.on_moved(tail, answer.versions[1])
        self._controller, self._controller_stale = me, True  # look once more, to be told when it is gone
        self._writer.begin(self._office)
        if tail.snapshot is not None:
            self._upkeep.clean()
        self._tell(me.node_id, me.epoch)
        return self._writer.on_epoch()

    def _step_down(self) -> None:
        if self._office is None:
            return
        self._office = self._controller = None
        self._upkeep.stop()
        self._tell(_NOBODY, self._told[1])
        self._emit(self._writer.end())
        self._log.look_at_tail()
        self._controller_stale = True

    # ---- in office

    def _on_heartbeat(self, answer: Answer, office: Office) -> list[Effect]:
        if self._office is office and isinstance(answer, Failed) and answer.failure is not Failure.CONNECTION_LOSS:
            self._step_down()
        return []

    def _ask_in_office(self, office: Office) -> Ask | None:
        writes = self._writer.waiting
        if writes and (self._resigning or not self._tends_next):
            self._tends_next = True
            return self._writer.ask()
        self._tends_next = False
        ask = self._log.ask_late(self._effects) or self._ask_to_tend(office)
        return self._writer.ask() if ask is None and writes else ask

    def _ask_to_tend(self, office: Office) -> Ask | None:
        if self._resigning:
            self._tell(_NOBODY, office.epoch)  # before, for another may lead before the answer comes
            return Ask(Multi((office.check, Delete(CONTROLLER))), lambda answer: self._on_resigned(answer, office))
        published = self._upkeep.finished(self._log.tail)
        if published is not None:
            ops = (office.check, SetData(TAIL, write_tail(published), self._log.tail_version))
            return Ask(Multi(ops), lambda answer: self._on_published(answer, office, published))
        return self._upkeep.ask(office, self._log.tail)

    def _on_published(self, answer: Answer, office: Office, tail: Tail) -> list[Effect]:
        if self._office is office and isinstance(answer, Done):
            self._log.on_moved(tail, answer.versions[1])
            self._upkeep.published()
        else:
            self._log.look_at_tail()
        return []

    def _on_resigned(self, answer: Answer, office: Office) -> list[Effect]:
        if self._office is office and not isinstance(answer, Failed):
            self._step_down()
        return []

    # ---- inside

    def _look_again(self) -> None:
        """Whatever was known may be old."""
        self._log.look_again()
        self._controller_stale = True
        self._epoch = None

    def _tell(self, leader_id: int, epoch: int) -> None:
        if (leader_id, epoch) != self._told:
            self._told = (leader_id, epoch)
            self._effects.append(LeaderChanged(leader_id, epoch))

    def _emit(self, effects: list[Effect]) -> None:
        self._log.note(effects)
        self._effects += self._writer.on_read(effects)

    def _fail(self, reason: str) -> None:
        self._failed = True
        self._step_down()
        self._effects.append(Fatal(reason))
