"""ZooKeeper in memory: servers that lag, sessions that end, watches that fire once, transactions.

Every write is ordered by the ensemble; a server applies them in that order, some time later, and answers reads from
what it has applied. A session is connected to one server at a time, never to one that is behind what the session has
seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Check,
    Children,
    Create,
    Delete,
    Done,
    FailureReason,
    Get,
    GetMany,
    Multi,
    Names,
    Op,
    Request,
    RequestFailed,
    SetData,
    SyncRequest,
    Znode,
    Znodes,
)

Tree = dict[str, Znode]
Change = tuple[str, Znode | None]


@dataclass(slots=True)
class Session:
    id: int
    timeout_ms: int
    heard_ms: int
    connection: int = 0
    """Only requests of this connection are taken."""
    alive: bool = True


@dataclass(slots=True)
class Server:
    tree: Tree = field(default_factory=lambda: {"/": Znode(b"", 0)})
    applied: int = 0
    up: bool = True
    cut: bool = False
    """From the others: it answers what it can answer by itself."""
    heard: list[Session] = field(default_factory=list)
    """Sessions of which the leader is not told yet."""
    watches: dict[str, list[tuple[int, Callable[[str], None]]]] = field(default_factory=dict)
    child_watches: dict[str, list[Callable[[str], None]]] = field(default_factory=dict)


class Ensemble:
    """Three servers, and the one order of all writes."""

    def __init__(self) -> None:
        self.tree: Tree = {"/": Znode(b"", 0)}
        self.history: list[list[Change]] = []
        self.servers = [Server(), Server(), Server()]
        self.sessions: dict[int, Session] = {}
        self._next_session = 0x1000

    # ---- sessions

    def open_session(self, timeout_ms: int, now_ms: int) -> Session:
        self._next_session += 1
        session = self.sessions[self._next_session] = Session(self._next_session, timeout_ms, now_ms)
        return session

    def expire(self, now_ms: int) -> None:
        for session in self.sessions.values():
            if session.alive and now_ms - session.heard_ms > session.timeout_ms:
                self.end_session(session)

    def end_session(self, session: Session) -> None:
        session.alive = False
        self._commit([(path, None) for path, node in self.tree.items() if node.owner == session.id])

    # ---- requests

    def exists_watch(self, server: Server, connection: int, path: str, tell: Callable[[str], None]) -> None:
        server.watches.setdefault(path, []).append((connection, tell))

    def child_watch(self, server: Server, path: str, tell: Callable[[str], None]) -> None:
        server.child_watches.setdefault(path, []).append(tell)

    def execute(self, server: Server, session: Session, request: Request) -> Answer:
        match request:
            case SyncRequest():
                self.catch_up(server)
                return Done()
            case Get(path):
                return server.tree.get(path) or RequestFailed(FailureReason.NO_NODE, detail=path)
            case GetMany(paths):
                missing = [path for path in paths if path not in server.tree]
                if missing:
                    return RequestFailed(FailureReason.NO_NODE, detail=missing[0])
                return Znodes(tuple(server.tree[path].data for path in paths))
            case Children(path):
                below = f"{path}/"
                names = [name[len(below) :] for name in server.tree if name.startswith(below)]
                return Names(tuple(name for name in names if "/" not in name))
            case Multi(ops):
                answer = self._transaction(ops, session)
                self.catch_up(server)  # it answers when it has applied the write itself
                return answer

    def _transaction(self, ops: tuple[Op, ...], session: Session) -> Answer:
        tree = dict(self.tree)
        changes: list[Change] = []
        versions: list[int] = []
        for index, op in enumerate(ops):
            found = tree.get(op.path)
            version = 0
            match op:
                case Create(path, data, ephemeral):
                    if found is not None:
                        return RequestFailed(FailureReason.NODE_EXISTS, index, path)
                    if path.rpartition("/")[0] not in tree and path.count("/") > 1:
                        return RequestFailed(FailureReason.NO_NODE, index, path)
                    changes.append((path, Znode(data, 0, session.id if ephemeral else 0)))
                case _ if found is None:
                    return RequestFailed(FailureReason.NO_NODE, index, op.path)
                case SetData(_, _, wanted) | Delete(_, wanted) | Check(_, wanted) if wanted not in (-1, found.version):
                    return RequestFailed(FailureReason.BAD_VERSION, index, op.path)
                case SetData(path, data):
                    version = found.version + 1
                    changes.append((path, Znode(data, version, found.owner)))
                case Delete(path):
                    changes.append((path, None))
            _apply(tree, changes[-1:])
            versions.append(version)
        self._commit(changes)
        return Done(tuple(versions))

    # ---- replication

    def catch_up(self, server: Server, steps: int | None = None) -> None:
        end = len(self.history) if steps is None else min(len(self.history), server.applied + steps)
        for changes in self.history[server.applied : end]:
            server.applied += 1
            parents = {path.rpartition("/")[0] for path, node in changes if (path in server.tree) != (node is not None)}
            _apply(server.tree, changes)
            for parent in sorted(parents):
                for tell_child in server.child_watches.pop(parent, ()):
                    tell_child(parent)
            for path, _ in changes:
                for _, tell in server.watches.pop(path, ()):
                    tell(path)

    def _commit(self, changes: list[Change]) -> None:
        _apply(self.tree, changes)
        self.history.append(changes)


def _apply(tree: Tree, changes: list[Change]) -> None:
    for path, node in changes:
        if node is None:
            tree.pop(path, None)
        else:
            tree[path] = node
