"""Machine: holds /brokers/ids/N, so that no two live nodes have one id.

A node that was killed leaves its znode behind until its session ends; whoever holds the id longer than a session can
outlive its node is alive, and then this node must not run.

The znode of an earlier session of this very process is waited for as well, but without an end. To delete it would be
faster, and wrong: its version tells it from no other node's, and the request may be carried out late.

Answers may come after news of the session that are later than they are: one to a request of an earlier connection says
nothing of this one.
"""

from __future__ import annotations

from typing import Final

from barnabas.server.node.zookeeper.layout import broker_path
from barnabas.server.node.zookeeper.machine.effects import Effect, Fatal
from barnabas.server.node.zookeeper.machine.reader import Ask
from barnabas.server.node.zookeeper.machine.requests import (
    Answer,
    Create,
    Done,
    Failed,
    Failure,
    Get,
    Multi,
    Znode,
)

PATIENCE: Final = 1.5
"""How many session time-outs to wait for the end of another holder's session."""


class Registration:
    """`ask` gives what to do next, None while there is nothing to do; `held` says that the id is this node's."""

    def __init__(self, node_id: int, data: bytes) -> None:
        self.held = False
        self.wake_at: int | None = None
        """When the patience with another holder ends."""
        self._node_id = node_id
        self._path = broker_path(node_id)
        self._data = data
        self._sessions: set[int] = set()
        self._session = 0
        self._connection = 0
        """Counts the news of the session."""
        self._patience_ms = 0
        self._look = False

    def on_session(self, session_id: int, timeout_ms: int) -> None:
        """Connected. The znode of a session that goes on is there still, that of an ended one is not."""
        self.held = self.held and session_id == self._session
        self._sessions.add(session_id)
        self._session = session_id
        self._connection += 1
        self._patience_ms = int(timeout_ms * PATIENCE)
        self.wake_at = None  # sessions do not end while nobody counts their time: begin to wait anew
        self._look = False

    def on_expired(self) -> None:
        self.held = False
        self._connection += 1

    def on_changed(self) -> None:
        self._look = True

    def ask(self, now_ms: int) -> Ask | None:
        if self.held:
            return None
        connection = self._connection
        if self._look or (self.wake_at is not None and now_ms >= self.wake_at):
            self._look = False  # now, not with the answer: a change may be told before it
            return Ask(Get(self._path, watch=True), lambda answer: self._on_holder(answer, now_ms, connection))
        if self.wake_at is not None:
            return None
        create = Create(self._path, self._data, ephemeral=True)
        return Ask(Multi((create,)), lambda answer: self._on_created(answer, connection))

    def _on_created(self, answer: Answer, connection: int) -> list[Effect]:
        self.held = isinstance(answer, Done) and connection == self._connection
        self._look = not self.held
        return []

    def _on_holder(self, answer: Answer, now_ms: int, connection: int) -> list[Effect]:
        """Somebody's znode is there."""
        if connection != self._connection:
            return []
        if isinstance(answer, Failed):
            if answer.failure is Failure.NO_NODE:
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
                    f"Another live node is registered in ZooKeeper with the id {self._node_id} ({self._path}). "
                    "Give this node a node.id that no other node has, or stop the other one."
                )
            ]
        return []
