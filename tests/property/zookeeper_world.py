"""A seeded world: nodes with their machines, an ensemble in memory, and everything that can go wrong between them.

Answers, watches and the session's events come late and in any order among each other; connections break before or after
a request took effect; nodes are stopped past the end of their sessions and go on unaware; servers lag and fall silent.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import patch
from uuid import UUID

from barnabas.core.errors import KafkaError
from barnabas.server.metadata.ports import LoadedSnapshot
from barnabas.server.metadata.records.codec import MetadataRecord, TopicRecord
from barnabas.server.quorum.zookeeper.entries import encode_snapshot
from barnabas.server.quorum.zookeeper.layout import BROKER_IDS, TAIL, broker_path, read_tail
from barnabas.server.quorum.zookeeper.machine import reader, writer
from barnabas.server.quorum.zookeeper.machine.effects import (
    Commit,
    Effect,
    Fatal,
    Joined,
    LeaderChanged,
    LoadSnapshot,
    NodesRegistered,
    ProposalOutcome,
    Settled,
)
from barnabas.server.quorum.zookeeper.machine.node import ControllerCandidate, ZooKeeperMachine
from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Children,
    FailureReason,
    Get,
    Multi,
    Request,
    RequestFailed,
    SyncRequest,
)
from tests.property.zookeeper_model import Ensemble, Server, Session
from tests.property.zookeeper_plans import TIMEOUT_MS, Plan


class InvariantError(AssertionError):
    """An invariant does not hold."""


@dataclass(slots=True)
class Link:
    """A node's connection: the number of the present one, and the server at its other end."""

    connection: int = 0
    server: Server | None = None
    session: Session | None = None
    pinged_ms: int = 0
    seen: int = 0
    """How many writes its servers had applied when they answered: it connects to none that has fewer."""


@dataclass
class Node:
    world: World
    id: int
    incarnation: int
    machine: ZooKeeperMachine = field(init=False)
    link: Link = field(default_factory=Link)
    paused_until: int = 0
    alive: bool = True
    inbox: list[Callable[[], None]] = field(default_factory=list)
    log: dict[int, list[str]] = field(default_factory=lambda: {0: []})
    tokens: dict[int, tuple[str, ...]] = field(default_factory=dict)
    registered: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.machine = ZooKeeperMachine(
            ControllerCandidate(self.id, "h", 9000 + self.id), f"n{self.id}.{self.incarnation}".encode()
        )
        self.machine.campaigning = True

    def hear(self, what: Callable[[], None]) -> None:
        """Something reaches the node: at once, or when it goes on."""
        if not self.alive:
            return
        if self.paused:
            self.inbox.append(what)
        else:
            what()
            self.turn()

    @property
    def paused(self) -> bool:
        return self.world.now < self.paused_until

    def resume(self) -> None:
        if self.alive and not self.paused:
            inbox, self.inbox = self.inbox, []
            for what in inbox:
                what()
            self.turn()

    def turn(self) -> None:
        request = self.machine.next_request(self.world.now, 1_000_000 + self.world.now)
        for effect in self.machine.take_effects():
            self.world.on_effect(self, effect)
        if request is not None:
            self.world.send(self, request)
        wake_at = self.machine.wake_at()
        if wake_at is not None:
            self.world.at(max(wake_at, self.world.now + 1), lambda: self.hear(lambda: None))


class World:
    def __init__(self, seed: int, plan: Plan) -> None:
        self.rng = random.Random(seed)
        self.plan = plan
        self.now = 0
        self.zk = Ensemble()
        self.nodes: dict[int, Node] = {}
        self.truth: list[str] = []
        """All records of the log, learnt from whoever reads them first; everyone else must read the same."""
        self.leaders: dict[int, int] = {}
        self.outcomes: dict[str, ProposalOutcome] = {}
        self.proposed: set[str] = set()
        self.calm = False
        self.steps = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._names = 0
        for node_id in range(1, plan.nodes + 1):
            self.start(node_id, 0)

    # ---- time

    def at(self, time: int, what: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (time, self._sequence, what))

    def soon(self, what: Callable[[], None], most: int | None = None) -> None:
        self.at(self.now + self.rng.randint(1, 10 if self.calm else most or self.plan.delay_ms), what)

    def run(self) -> None:
        self.at(10, self._weather)
        if self.plan.tick_ms:
            self.at(10, self._tick)
        self.at(100, self._propose)
        self._until(self.plan.storm_ms)
        self.calm = True
        self._until(self.plan.storm_ms + self.plan.calm_ms)
        self._check_end()

    def _until(self, end: int) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, what = heapq.heappop(self._events)
            self.steps += 1
            what()
            leading = [node.id for node in self.nodes.values() if node.alive and node.machine.is_leading(self.now)]
            if len(leading) > 1:
                raise InvariantError(f"at {self.now} ms nodes {leading} lead at the same time")
        self.now = end

    # ---- weather

    def _weather(self) -> None:
        rng, plan = self.rng, self.plan
        for node in list(self.nodes.values()):
            link = node.link
            due = not plan.tick_ms or self.now - link.pinged_ms >= TIMEOUT_MS // 3
            if due and link.session is not None and link.server is not None and not node.paused and node.alive:
                link.pinged_ms = self.now
                self._hear(link.server, link.session)  # kazoo's pings
            if self.calm:
                continue
            if link.server is not None and rng.random() < plan.drop:
                self.drop(node)
            if rng.random() < plan.pause and not node.paused:
                node.paused_until = self.now + rng.randint(100, 3 * TIMEOUT_MS)
                self.at(node.paused_until, node.resume)
            if rng.random() < plan.restart and node.alive:
                self.restart(node)
            if rng.random() < plan.resign and node.alive and node.machine.is_leading(self.now):
                node.hear(node.machine.resign)
            if node.machine.resigned and node.alive:
                if node.link.session is not None:
                    self.zk.end_session(node.link.session)
                self.restart(node)
            if rng.random() < plan.late and node.alive:
                node.log[node.machine.add_reader()] = []
                self.soon(lambda node=node: node.hear(lambda: None))  # type: ignore[misc]
            if rng.random() < plan.snapshot:
                self.snapshot(node)
        for server in self.zk.servers:
            if not server.cut:
                self.zk.catch_up(server, rng.choice((0, 0, 0, 1, 5)) if not self.calm else None)
            if not self.calm and rng.random() < plan.server:
                self._server_falls(server)
            if plan.cut and not self.calm and rng.random() < plan.cut:
                self._server_is_cut(server)
        self.zk.expire(self.now)
        for node in self.nodes.values():
            link = node.link
            if link.session is not None and not link.session.alive and not (link.server and link.server.cut):
                self.drop(node)  # the server closes the connection of a session that is over
        self.at(self.now + 50, self._weather)

    def _hear(self, server: Server, session: Session) -> None:
        """The leader does, who ends sessions."""
        if self.plan.tick_ms:
            server.heard.append(session)
        elif not server.cut:
            session.heard_ms = self.now

    def _tick(self) -> None:
        for server in self.zk.servers:
            if not server.cut:
                for session in server.heard:
                    session.heard_ms = self.now
                server.heard.clear()
        self.at(self.now + self.plan.tick_ms // 2, self._tick)

    def _server_falls(self, server: Server) -> None:
        if all(other.up and not other.cut for other in self.zk.servers):
            server.up = False
            self._drop_all(server)
            self.at(self.now + self.rng.randint(500, 5_000), lambda: setattr(server, "up", True))

    def _server_is_cut(self, server: Server) -> None:
        def notice() -> None:
            server.cut = False
            self._drop_all(server)

        if all(other.up and not other.cut for other in self.zk.servers):
            server.cut = True
            self.at(self.now + self.rng.randint(100, 3 * TIMEOUT_MS), notice)

    def _drop_all(self, server: Server) -> None:
        for node in self.nodes.values():
            if node.link.server is server:
                self.drop(node)

    # ---- nodes

    def start(self, node_id: int, incarnation: int) -> None:
        node = self.nodes[node_id] = Node(self, node_id, incarnation)
        self.soon(lambda: self.connect(node))

    def restart(self, node: Node) -> None:
        """Killed: what was under way is lost, its session ends by itself."""
        node.alive = False
        node.link.server = None
        node.link.connection += 1
        self.at(self.now + self.rng.randint(10, 2 * TIMEOUT_MS), lambda: self.start(node.id, node.incarnation + 1))

    def connect(self, node: Node) -> None:
        if not node.alive:
            return
        if node.paused:
            self.at(node.paused_until + 1, lambda: self.connect(node))
            return
        servers = [server for server in self.zk.servers if server.up and not server.cut]
        link, server = node.link, self.rng.choice(servers)
        if link.session is not None and not link.session.alive:
            link.session = None
            node.hear(node.machine.on_expired)
        if link.session is None:
            link.session = self.zk.open_session(TIMEOUT_MS, self.now)
            link.seen = 0  # the client begins anew
        self.zk.catch_up(server, max(0, link.seen - server.applied))
        link.connection += 1
        link.session.connection = link.connection
        link.session.heard_ms = self.now
        link.server = server
        session_id = link.session.id
        node.hear(lambda: node.machine.on_connected(session_id, TIMEOUT_MS))

    def drop(self, node: Node) -> None:
        if node.link.server is None:
            return
        node.link.server = None
        node.link.connection += 1
        node.hear(lambda: node.machine.on_suspended(self.now))
        self.soon(lambda: self.connect(node), self.rng.choice((20, 300, 2 * TIMEOUT_MS)))

    # ---- requests

    def send(self, node: Node, request: Request) -> None:
        """The node has asked for it; the client may come to write it only later, even in another session."""
        self.soon(lambda: self._write(node, request), self.rng.choice((2, 2, 2, self.plan.stuck_ms)))

    def _write(self, node: Node, request: Request) -> None:
        link = node.link
        server, session, connection = link.server, link.session, link.connection
        if node.paused:
            self.at(node.paused_until + self.rng.randint(0, 100), lambda: self._write(node, request))
        elif server is None or session is None:
            if self.rng.random() < 0.5:  # it waits in the client for the next connection
                self.soon(lambda: self._write(node, request), 300)
            else:
                self.soon(lambda: self.answer(node, RequestFailed(FailureReason.CONNECTION_LOSS)))
        else:
            self.soon(lambda: self._arrive(node, server, session, connection, request))

    def _arrive(self, node: Node, server: Server, session: Session, connection: int, request: Request) -> None:
        """At the server; it may be that the client has given up the connection, and the server does not know it yet."""
        lost = RequestFailed(FailureReason.CONNECTION_LOSS)
        answer: Answer = lost
        stuck = server.cut and isinstance(request, SyncRequest | Multi)
        if stuck and node.link.connection == connection:
            self.at(self.now + 50, lambda: self._arrive(node, server, session, connection, request))
            return  # until it has its leader again, or the connection is lost
        taken = server.up and (session.alive or server.cut) and session.connection == connection and not stuck
        if taken and (node.link.connection == connection or self.rng.random() < 0.5):
            if isinstance(request, Get) and request.watch:
                self.zk.exists_watch(server, connection, request.path, lambda path: self._watch(node, connection, path))
                most = 0 if server.cut else 2
                self.zk.catch_up(server, self.rng.randint(0, most))  # writes may come between the watch and the reading
            if isinstance(request, Children) and request.watch:
                self.zk.child_watch(server, request.path, lambda path: self._watch(node, connection, path))
            answer = self.zk.execute(server, session, request)
            node.link.seen = max(node.link.seen, server.applied)
            if node.link.connection == connection:
                self._hear(server, session)
        late = bool(self.plan.overtaken) and self.rng.random() < self.plan.overtaken
        most = 3 * TIMEOUT_MS if late else self.plan.delay_ms
        self.soon(lambda: self.answer(node, answer if late or node.link.connection == connection else lost), most)

    def _watch(self, node: Node, connection: int, path: str) -> None:
        def tell() -> None:
            if node.link.connection == connection:
                node.hear(lambda: node.machine.on_changed(path))

        self.soon(tell, self.plan.watch_ms)

    def answer(self, node: Node, answer: Answer) -> None:
        node.hear(lambda: node.machine.on_answer(answer))

    # ---- proposals

    def _propose(self) -> None:
        for node in self.nodes.values():
            if not node.alive or node.paused:
                continue
            self._names += 1
            many = self.rng.choice((1, 1, 2, 3, 20))
            names = tuple(f"{node.id}.{self._names}.{index}" for index in range(many))
            try:
                token = node.machine.propose([topic(name) for name in names], self.now, 1_000_000 + self.now)
            except KafkaError:
                continue
            node.tokens[token] = names
            self.proposed.update(names)
            node.turn()
        if self.now < self.plan.storm_ms + self.plan.calm_ms * 2 // 3:
            self.at(self.now + self.rng.randint(1, 2 * self.plan.propose_every_ms), self._propose)

    def snapshot(self, node: Node) -> None:
        if node.alive and not node.paused:
            log = node.log[0]
            if node.machine.wants_snapshot(len(log)):
                snapshot = LoadedSnapshot(len(log), max(node.machine.epoch, 1), self.now, [topic(name) for name in log])
                chunks = encode_snapshot(snapshot, node.machine.metadata_version, self.plan.chunk_bytes)
                node.machine.write_snapshot(snapshot, chunks)
                node.turn()

    # ---- what the nodes decide

    def on_effect(self, node: Node, effect: Effect) -> None:
        match effect:
            case Commit(reader, batch):
                log = node.log[reader]
                if batch.base_offset != len(log):
                    raise InvariantError(f"node {node.id} reads offset {batch.base_offset} after {len(log)}")
                log += names_of(batch.records)
                self._learn(node, log)
            case LoadSnapshot(reader, snapshot):
                log = node.log[reader] = names_of(snapshot.records)
                if len(log) != snapshot.end_offset:
                    raise InvariantError(f"node {node.id} loads {len(log)} records as all before {snapshot.end_offset}")
                self._learn(node, log)
            case Joined(reader):
                if node.log.pop(reader) != node.log[0]:
                    raise InvariantError(f"node {node.id}: a listener that came late knows something else")
            case LeaderChanged(leader_id) if leader_id == node.id and node.machine._resigning:
                raise InvariantError(f"node {node.id} becomes leader again after it resigned")
            case LeaderChanged(leader_id, epoch) if leader_id == node.id and node.machine.is_leading(self.now):
                if self.leaders.setdefault(epoch, node.id) != node.id:
                    raise InvariantError(f"epoch {epoch} has two controllers")
                end = read_tail(self.zk.tree[TAIL].data)
                if end.epoch == epoch and len(node.log[0]) != end.end_offset:
                    raise InvariantError(f"node {node.id} leads knowing {len(node.log[0])} of {end.end_offset} records")
            case LeaderChanged():
                pass
            case NodesRegistered(node_ids):
                node.registered = node_ids
            case Settled(token, last_offset, outcome):
                names = node.tokens.pop(token)
                if outcome is ProposalOutcome.COMMITTED and node.log[0][
                    last_offset - len(names) + 1 : last_offset + 1
                ] != list(names):
                    raise InvariantError(f"node {node.id} calls {names} committed, which are not in its log")
                self.outcomes.update(dict.fromkeys(names, outcome))
            case Fatal(reason):
                raise InvariantError(f"node {node.id} gives up: {reason}")

    def _learn(self, node: Node, log: list[str]) -> None:
        known = min(len(log), len(self.truth))
        if log[:known] != self.truth[:known]:
            raise InvariantError(f"node {node.id} reads another log than the others")
        self.truth += log[known:]

    # ---- the end

    def _check_end(self) -> None:
        if len(set(self.truth)) != len(self.truth):
            raise InvariantError("a record is in the log twice")
        present = set(self.truth)
        for name, outcome in self.outcomes.items():
            if outcome is ProposalOutcome.COMMITTED and name not in present:
                raise InvariantError(f"{name} was committed and is lost")
            if outcome is ProposalOutcome.REFUSED and name in present:
                raise InvariantError(f"{name} was refused and is in the log")
        leaders = [node for node in self.nodes.values() if node.machine.is_leading(self.now)]
        if len(leaders) != 1:
            raise InvariantError("nobody leads after the calm")
        below = f"{BROKER_IDS}/"
        registered = {int(path[len(below) :]) for path in self.zk.tree if path.startswith(below)}
        if leaders[0].registered != registered:
            raise InvariantError(f"the leader knows nodes {set(leaders[0].registered)}, registered are {registered}")
        for node in self.nodes.values():
            mine = self.zk.tree.get(broker_path(node.id))
            if node.link.session is None or mine is None or mine.owner != node.link.session.id:
                raise InvariantError(f"node {node.id} is not registered after the calm: {mine}")
            if node.log[0] != self.truth:
                raise InvariantError(
                    f"node {node.id} has read {len(node.log[0])} of {len(self.truth)} records after the calm"
                )
            if node.tokens:
                raise InvariantError(f"node {node.id} never heard what became of {list(node.tokens.values())[:3]}")


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=UUID(int=1))


def names_of(records: tuple[MetadataRecord, ...] | list[MetadataRecord] | object) -> list[str]:
    return [record.name for record in records if isinstance(record, TopicRecord)]  # type: ignore[attr-defined]


def run_world(seed: int, plan: Plan) -> World:
    world = World(seed, plan)
    try:
        with (
            patch.object(writer, "CHUNK_BYTES", plan.chunk_bytes),
            patch.object(reader, "ENTRIES_AT_ONCE", plan.entries_at_once),
        ):
            world.run()
    except Exception as error:
        error.add_note(f"seed {seed}, {world.now} ms, step {world.steps}")
        raise
    return world
