"""Machine: registers the node id as /brokers/ids/N, so that no two active nodes have the same id.

The znode of a killed node exists until the node's session expires. If another session owns the znode for longer than a
session can outlive its node, that node is active, and this node must not run.

If an earlier session of this process owns the znode, this machine waits without a limit until that session expires. It
does not delete the znode: the delete could be executed late, after another node has created the znode, and the version
of the znode would be the same.

The answer to a request can arrive after a later session event. An answer to a request of an earlier connection is
ignored.
"""

from __future__ import annotations

from typing import Final

from barnabas.server.quorum.zookeeper.layout import broker_path
from barnabas.server.quorum.zookeeper.machine.effects import Effect, Fatal
from barnabas.server.quorum.zookeeper.machine.reader import ZooKeeperCall
from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Create,
    Done,
    FailureReason,
    Get,
    Multi,
    RequestFailed,
    Znode,
)

PATIENCE: Final = 1.5
"""How long to wait for another owner's session to expire, in session timeouts."""


class BrokerIdRegistration:
    """The registration of this node's id. `ask` returns the next request to ZooKeeper, or None. `held` is True while
    this session owns the znode."""

    def __init__(self, node_id: int, data: bytes) -> None:
        self.held = False
        self.wake_at: int | None = None
        """The time at which another owner of the znode counts as an active node."""
        self._node_id = node_id
        self._path = broker_path(node_id)
        self._data = data
        self._sessions: set[int] = set()
        self._session = 0
        self._connection = 0
        """The number of session events so far. Identifies a connection."""
        self._patience_ms = 0
        self._look = False

    def on_session(self, session_id: int, timeout_ms: int) -> None:
        """The session is connected. The znode still exists if the session is the same as before."""
        self.held = self.held and session_id == self._session
        self._sessions.add(session_id)
        self._session = session_id
        self._connection += 1
        self._patience_ms = int(timeout_ms * PATIENCE)
        self.wake_at = None  # sessions do not expire while ZooKeeper is unavailable, so restart the wait
        self._look = False

    def on_expired(self) -> None:
        self.held = False
        self._connection += 1

    def on_changed(self) -> None:
        self._look = True

    def ask(self, now_ms: int) -> ZooKeeperCall | None:
        if self.held:
            return None
        connection = self._connection
        if self._look or (self.wake_at is not None and now_ms >= self.wake_at):
            self._look = False  # reset before the answer: the next watch event can arrive earlier than the answer
            return ZooKeeperCall(
                Get(self._path, watch=True), lambda answer: self._on_holder(answer, now_ms, connection)
            )
        if self.wake_at is not None:
            return None
        create = Create(self._path, self._data, ephemeral=True)
        return ZooKeeperCall(Multi((create,)), lambda answer: self._on_created(answer, connection))

    def _on_created(self, answer: Answer, connection: int) -> list[Effect]:
        self.held = isinstance(answer, Done) and connection == self._connection
        self._look = not self.held
        return []

    def _on_holder(self, answer: Answer, now_ms: int, connection: int) -> list[Effect]:
        """Handle the read of the znode: wait for its owner's session to expire, or fail."""
        if connection != self._connection:
            return []
        if isinstance(answer, RequestFailed):
            if answer.failure is FailureReason.NO_NODE:
                self.wake_at = None
            else:
                self._look = True
            return []
        assert isinstance(answer, Znode)
        if answer.owner == self._session:
            self.held = True
        elif self.wake_at is None or answer.owner in self._sessions:
            self.wake_at = now_ms + self._patience_ms
        elif now_ms >= self.wake_at:
            return [
                Fatal(
                    f"Another active node is registered in ZooKeeper with the id {self._node_id} ({self._path}). "
                    "Give this node a node.id that no other node has, or stop the other one."
                )
            ]
        return []
