"""Machine: the office of the active controller, held by lease.

The lease is two thirds of the session, counted from the sending of the last transaction of this office that took
effect. ZooKeeper's leader ends sessions, so only what went through it, and was agreed to by a majority, says that it
knows this one. A read says nothing: a server that is cut off from the leader answers reads until it notices (syncLimit
ticks), and the leader counts the silence of the sessions behind it meanwhile. Nor does a sync: a leader that was
replaced and does not know it answers that by itself. The last third is for what the leader hears late: a server tells
it whom it has heard when it answers the leader's pings, twice in a tick. A session should have three ticks or more.
"""

from __future__ import annotations

from msgspec import Struct

from barnabas.server.node.zookeeper.layout import CONTROLLER_EPOCH
from barnabas.server.node.zookeeper.machine.requests import Answer, Check, Done, Failed, Failure, Multi, Request


class Office(Struct):
    """That this node is the active controller."""

    epoch: int
    epoch_version: int
    lease_until_ms: int

    @property
    def check(self) -> Check:
        """Fails the whole transaction once there is a later controller."""
        return Check(CONTROLLER_EPOCH, self.epoch_version)

    def heartbeat_at(self, lease_ms: int) -> int:
        """When to write something, if there is nothing to write: a quarter of the lease after the last time."""
        return self.lease_until_ms - lease_ms * 3 // 4

    def renew(self, request: Request, answer: Answer, sent_ms: int, lease_ms: int) -> None:
        if self._is_of_office(request) and isinstance(answer, Done):
            self.lease_until_ms = max(self.lease_until_ms, sent_ms + lease_ms)

    def is_fenced(self, request: Request, answer: Answer) -> bool:
        """There is a later controller: the check with which every transaction in office begins has failed."""
        if not self._is_of_office(request) or not isinstance(answer, Failed):
            return False
        return answer.failure is Failure.BAD_VERSION and answer.op == 0

    def _is_of_office(self, request: Request) -> bool:
        return isinstance(request, Multi) and request.ops[0] == self.check
