"""Value: what can go wrong in the quorum itself (answers to requests are error codes, not exceptions).

BarnabasError
├─ IllegalRaftStateError   the protocol's own rules are broken: a peer or this disk lost what it had promised to keep
└─ NotRaftLeaderError      something only the leader may do was asked of a node that does not lead (any more)
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class IllegalRaftStateError(BarnabasError):
    """The node must stop: going on could lose committed records. Its message says which promise is broken."""


class NotRaftLeaderError(BarnabasError):
    """Ask the leader, or ask again when there is one."""
