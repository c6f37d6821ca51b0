"""Machine: decides when the replicas of dead brokers are placed on living ones.

Copying replicas is expensive, and wrong while a broker only restarts, or when the network or the power of many brokers
has failed: then the load of the copies falls on the brokers that are left. So a broker must have been dead for some
time without interruption, few brokers may be dead at once, and nothing else may be moving replicas.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HealingPolicy:
    """When healing may begin. `dead_max` is the number of brokers that may be dead at once."""

    after_ms: int = 1_800_000
    dead_max: int = 1


@dataclass(frozen=True, slots=True)
class HealingVerdict:
    """What to do now. `heal` has the brokers whose replicas should be placed elsewhere; while it is empty, `reason`
    says why nothing is done. `since_ms` has the time since which each dead broker was seen dead.
    """

    heal: tuple[int, ...]
    reason: str
    since_ms: dict[int, int]
    is_unsafe: bool = False
    """More brokers are dead than healing is for."""


class Healer:
    """Remembers since when each broker is dead."""

    def __init__(self, policy: HealingPolicy) -> None:
        self._policy = policy
        self._since_ms: dict[int, int] = {}

    def on_unobserved(self) -> None:
        """The cluster could not be observed: what was dead before may have lived since. All times begin again."""
        self._since_ms = {}

    def observe(self, now_ms: int, dead: Collection[int], *, moves_under_way: int = 0) -> HealingVerdict:
        """`dead` are the brokers that have replicas and do not live; `now_ms` is a monotonic time."""
        self._since_ms = {broker: self._since_ms.get(broker, now_ms) for broker in sorted(dead)}
        reason = self._objection(now_ms, moves_under_way)
        is_unsafe = len(self._since_ms) > self._policy.dead_max
        return HealingVerdict(() if reason else tuple(self._since_ms), reason, dict(self._since_ms), is_unsafe)

    def _objection(self, now_ms: int, moves_under_way: int) -> str:
        since_ms, policy = self._since_ms, self._policy
        if not since_ms:
            return "all brokers that have replicas are alive"
        if len(since_ms) > policy.dead_max:
            return (
                f"{len(since_ms)} brokers are dead at once ({', '.join(map(str, since_ms))}), and healing is limited "
                f"to {policy.dead_max}: the cause may be a network, a rack or the power. Start them, or give a larger "
                "--max-dead."
            )
        if moves_under_way:
            return f"reassignments are under way: {moves_under_way}. Healing waits for their end."
        left_ms = max(since_ms.values()) + policy.after_ms - now_ms
        if left_ms > 0:
            names = ", ".join(map(str, since_ms))
            return f"broker {names} is dead; healing begins in {-(-left_ms // 1000)} s unless it comes back"
        return ""
