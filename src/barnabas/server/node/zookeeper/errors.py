"""Table: what can go wrong with ZooKeeper itself.

BarnabasError
└─ ZooKeeperError    it cannot be reached, or the extra that talks to it is not installed
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class ZooKeeperError(BarnabasError):
    """The message says what to do."""
