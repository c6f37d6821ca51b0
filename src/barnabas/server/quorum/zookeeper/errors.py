"""Table: the errors of the connection to ZooKeeper.

BarnabasError
└─ ZooKeeperError    ZooKeeper cannot be reached, or kazoo is not installed
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class ZooKeeperError(BarnabasError):
    """No usable connection to ZooKeeper. The message says what to do."""
