"""Machine: the lease under which this node is the active controller.

The lease lasts two thirds of the session timeout, from the time when the last successful transaction of this leadership
was sent. ZooKeeper's leader expires sessions, so only a transaction, which the leader and a majority of servers commit,
proves that the leader considers this session alive. A read does not prove this: a server that is disconnected from the
leader answers reads until it notices (syncLimit ticks), while the leader counts the session as silent. A sync does not
prove this either: a replaced leader that has not noticed its replacement answers a sync alone. The remaining third
covers the delay with which servers report active sessions to the leader, in answers to its pings, twice in a tick. So
the session timeout should be at least three ticks.
"""

from __future__ import annotations

from msgspec import Struct

from barnabas.server.quorum.zookeeper.layout import CONTROLLER_EPOCH
from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Check,
    Done,
    FailureReason,
    Multi,
    Request,
    RequestFailed,
)


class ControllerLease(Struct):
    """This node's leadership: its epoch, and the end of the lease."""

    epoch: int
    epoch_version: int
    lease_until_ms: int

    @property
    def check(self) -> Check:
        """An operation that fails its transaction if there is a later controller."""
        return Check(CONTROLLER_EPOCH, self.epoch_version)

    def heartbeat_at(self, lease_ms: int) -> int:
        """When to send an empty transaction if there is nothing to write: a quarter of the lease after the last
        successful transaction was sent."""
        return self.lease_until_ms - lease_ms * 3 // 4

    def renew(self, request: Request, answer: Answer, sent_ms: int, lease_ms: int) -> None:
        if self._has_check(request) and isinstance(answer, Done):
            self.lease_until_ms = max(self.lease_until_ms, sent_ms + lease_ms)

    def is_fenced(self, request: Request, answer: Answer) -> bool:
        """Whether the answer proves that a later controller was elected: the check of the controller epoch, with which
        each transaction begins, has failed."""
        if not self._has_check(request) or not isinstance(answer, RequestFailed):
            return False
        return answer.failure is FailureReason.BAD_VERSION and answer.op == 0

    def _has_check(self, request: Request) -> bool:
        return isinstance(request, Multi) and request.ops[0] == self.check
