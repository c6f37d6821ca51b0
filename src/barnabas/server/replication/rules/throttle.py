"""Machine: replication quotas: the throttled replicas, and the rate that they share (KIP-73).

A replica is throttled if its topic's `leader.replication.throttled.replicas` or
`follower.replication.throttled.replicas` names it for the broker that serves or fetches it; `*` names all replicas. All
throttled replicas of a broker together use at most `leader.replication.throttled.rate` or
`follower.replication.throttled.rate` bytes per second. Replicas that are in sync are never delayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UNLIMITED: Final = (1 << 63) - 1
ALL: Final = "*"


class ReplicaThrottle:
    """A token bucket that holds the bytes of one second. Replicas wait while it is not positive."""

    def __init__(self, rate: int = UNLIMITED) -> None:
        self.rate = rate
        """The rate in bytes per second."""
        self._replicas: dict[str, frozenset[int] | None] = {}
        """Topic -> its throttled partitions; None means all partitions."""
        self._left = float(rate)
        self._at_ms = 0

    def set_rate(self, rate: int) -> None:
        if rate != self.rate:
            self.rate = rate
            self._left = float(rate)

    def set_replicas(self, topic: str, text: str | None, broker_id: int) -> None:
        """Apply the topic's config: `partition:broker,...`, `*`, or None. Entries that cannot be parsed are ignored."""
        wanted = (text or "").strip()
        if wanted == ALL:
            self._replicas[topic] = None
            return
        found = set()
        for part in wanted.split(","):
            index, _, broker = part.strip().partition(":")
            if index.isdigit() and broker.strip() == str(broker_id):
                found.add(int(index))
        if found:
            self._replicas[topic] = frozenset(found)
        else:
            self._replicas.pop(topic, None)

    def forget(self, topics: Mapping[str, object]) -> None:
        """Remove the configs of deleted topics."""
        for topic in topics:
            self._replicas.pop(topic, None)

    def covers(self, topic: str, partition: int) -> bool:
        """Whether the replica is throttled."""
        if not self._replicas:
            return False
        found = self._replicas.get(topic, frozenset())
        return found is None or partition in found

    def take(self, size: int, now_ms: int) -> None:
        """Account for `size` bytes of throttled replicas."""
        self._refill(now_ms)
        self._left -= size

    def is_used_up(self, now_ms: int) -> bool:
        self._refill(now_ms)
        return self.rate != UNLIMITED and self._left <= 0

    def wait_ms(self, now_ms: int) -> int:
        """The time until the bucket is positive again, at most one second."""
        self._refill(now_ms)
        if self.rate == UNLIMITED or self._left > 0:
            return 0
        return 1_000 if self.rate == 0 else min(1_000, int(-self._left * 1000 / self.rate) + 1)

    def _refill(self, now_ms: int) -> None:
        passed, self._at_ms = now_ms - self._at_ms, max(now_ms, self._at_ms)
        if passed > 0:
            self._left = min(self._left + passed * self.rate / 1000, float(self.rate))
