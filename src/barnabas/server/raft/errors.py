"""Table: the exceptions of the quorum. Errors in responses to requests are error codes, not exceptions.

BarnabasError
├─ IllegalRaftStateError   an invariant of Raft is broken: a voter or this node's disk lost data that was durable
└─ NotRaftLeaderError      this node is not the leader, and only the leader can do what was requested
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class IllegalRaftStateError(BarnabasError):
    """An invariant of Raft is broken. The node must stop, because committed records could be lost otherwise."""


class NotRaftLeaderError(BarnabasError):
    """This node is not the leader. Send the request to the leader, or retry after the next election."""
