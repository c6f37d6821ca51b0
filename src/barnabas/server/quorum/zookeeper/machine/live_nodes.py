"""Machine: watches /brokers/ids while this node leads, so that the controller learns that a node's session has ended.

    elected, connected again, or a watch has fired ──► list the children and set the watch again ──► NodesRegistered

ZooKeeper deletes /brokers/ids/N when the session of node N expires: the node is dead, paused, or cut off from
ZooKeeper, and cannot read the metadata log.
"""

from __future__ import annotations

from barnabas.server.quorum.zookeeper.layout import BROKER_IDS
from barnabas.server.quorum.zookeeper.machine.effects import Effect, NodesRegistered
from barnabas.server.quorum.zookeeper.machine.reader import ZooKeeperCall
from barnabas.server.quorum.zookeeper.machine.requests import Answer, Children, Names


class LiveNodes:
    """The ids of the nodes with a session. `ask` returns the next request to ZooKeeper, or None if the list is up to
    date."""

    def __init__(self) -> None:
        self._stale = True

    def look_again(self) -> None:
        self._stale = True

    def ask(self) -> ZooKeeperCall | None:
        if not self._stale:
            return None
        self._stale = False  # reset before the answer: the next watch event can arrive earlier than the answer
        return ZooKeeperCall(Children(BROKER_IDS, watch=True), self._on_names)

    def _on_names(self, answer: Answer) -> list[Effect]:
        if not isinstance(answer, Names):
            self._stale = True
            return []
        return [NodesRegistered(frozenset(int(name) for name in answer.names if name.isdecimal()))]
