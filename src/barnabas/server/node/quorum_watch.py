"""Shell: logs when this node has no active controller, for how long, and what each controller answered.

The health page reads here for how long there has been no active controller. The first line is logged after `FIRST_S`,
so that a usual start or election logs nothing. The next lines follow at growing intervals up to `REPEAT_MAX_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.core.telemetry import get_logger
from barnabas.server.quorum.metadata_log import RaftMetadataLog

log = get_logger("barnabas.server.node")

FIRST_S: Final = 1.0
REPEAT_MAX_S: Final = 60.0
_GROWTH: Final = 4.0
_INTERVAL_S: Final = 0.25


class LeaderlessTime:
    """Machine: how long no leader has been known, and when to log it. All times are in seconds of one clock."""

    def __init__(self, now: float) -> None:
        self.since: float | None = now
        self._reported = 0
        self._report_at = now + FIRST_S
        self._pause = FIRST_S

    def on_check(self, now: float, *, led: bool) -> bool:
        """Whether a line is due now: that there is no leader, or, after such a line, that there is one again."""
        if led:
            was_reported = self._reported > 0
            self.since, self._reported = None, 0
            return was_reported
        if self.since is None:
            self.since, self._pause, self._report_at = now, FIRST_S, now + FIRST_S
        if now < self._report_at:
            return False
        self._reported += 1
        self._pause = min(self._pause * _GROWTH, REPEAT_MAX_S)
        self._report_at = now + self._pause
        return True


class QuorumWatch:
    """Logs that no active controller is known, while its task `run` runs. `leader_id` returns the id of the active
    controller, or -1 if none is known."""

    def __init__(self, leader_id: Callable[[], int], contacts: Callable[[], str]) -> None:
        """`contacts` returns a text for the log: what each controller answered last."""
        self._leader_id = leader_id
        self.contacts = contacts
        self._time = LeaderlessTime(asyncio.get_running_loop().time())

    @property
    def leaderless_s(self) -> float:
        """For how many seconds no active controller has been known; 0 if one is known."""
        since = self._time.since
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    async def run(self) -> None:
        while True:
            led = self._leader_id() >= 0
            if self._time.on_check(asyncio.get_running_loop().time(), led=led):
                if led:
                    log.warning("a controller is active again", controller=self._leader_id())
                else:
                    log.warning(
                        "waiting for an active controller: without one, this node cannot start, and no topic, leader "
                        "or member of the cluster can change",
                        seconds=round(self.leaderless_s, 1),
                        controllers=self.contacts(),
                    )
            await asyncio.sleep(_INTERVAL_S)


def describe_contacts(metadata: object) -> str:
    """What each controller answered last to this node, for a log line."""
    if not isinstance(metadata, RaftMetadataLog):
        return "elected over ZooKeeper"
    return "; ".join(metadata.contacts()) or "this node has not sent a request to another controller yet"
