"""Value: what all partitions of a node share: who it is, which brokers are active, and whom to tell.

`Partitions` owns it and keeps `active` and `lag_max_ms` in step with the image; `Replication` fills in whom to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from barnabas.server.replication.rules.throttle import ReplicaThrottle
from barnabas.server.storage.log import Log

if TYPE_CHECKING:
    from barnabas.server.replication.partition import Partition
    from barnabas.server.replication.rules.leader import IsrProposal


def _nobody(*_: object) -> None:
    """Until `Replication` is there."""


class Host(Struct):
    """The callbacks are called on the loop and return at once."""

    node_id: int
    now_ms: Callable[[], int] = int
    """Milliseconds of a clock that only goes forward: lag is measured by it."""
    lag_max_ms: int = 30_000
    """replica.lag.time.max.ms"""
    active: Mapping[int, int] = field(default_factory=dict)
    """Broker -> its epoch, of those that the newest image shows neither fenced nor shutting down."""
    leader_throttle: ReplicaThrottle = field(default_factory=ReplicaThrottle)
    """What this broker serves to followers of throttled replicas."""
    follower_throttle: ReplicaThrottle = field(default_factory=ReplicaThrottle)
    """What it fetches for them."""
    flush: Callable[[Log], None] = _nobody
    """Make everything in this log durable, soon."""
    propose: Callable[[Partition, IsrProposal], None] = _nobody
    """Ask the controller for another ISR."""
    on_role: Callable[[Partition], None] = _nobody
    """The partition follows another leader, or in another epoch, or nobody any more."""
    on_fetchable: Callable[[Partition], None] = _nobody
    """A follower that had to wait for its disk may fetch again."""
