"""Machine: decides how long a broker that is being stopped waits for the controller to take over its leaderships.

The controller moves the leaderships, so the wait is useless when no controller can exist or answer. That is the normal
case when all nodes of a cluster are stopped at once: the last ones find no majority of controllers.

    every heartbeat is answered                     wait; the controlled shutdown has its own limit
    too many controllers refuse connections         wait MAJORITY_GONE_S, because one of them may be restarting
    no answer for another reason                    wait NO_ANSWER_S: an election takes about two seconds

Nothing is lost when a broker gives up. Its logs are closed as in any clean shutdown, and a later controller moves the
leaderships when the broker's session has expired.
"""

from __future__ import annotations

from typing import Final

MAJORITY_GONE_S: Final = 1.0
NO_ANSWER_S: Final = 6.0
PROGRESS_S: Final = 2.0
"""The interval of the log lines that report the wait."""


class ShutdownPatience:
    """How long a stopping broker still waits for the controller. All times are in seconds of one clock."""

    def __init__(self, now: float) -> None:
        self._answered_at = now
        self._majority_gone_at: float | None = None
        self._reported_at = now

    def reason_to_stop(self, now: float, answered_at: float, *, majority_may_run: bool) -> str | None:
        """The reason to wait no longer, else None. `answered_at` is the time of the controller's last response."""
        if answered_at > self._answered_at or majority_may_run:
            self._majority_gone_at = None
        elif self._majority_gone_at is None:
            self._majority_gone_at = now
        self._answered_at = max(self._answered_at, answered_at)
        if self._majority_gone_at is not None and now - self._majority_gone_at >= MAJORITY_GONE_S:
            return "so many controllers refuse connections that the others cannot elect a leader"
        if now - self._answered_at >= NO_ANSWER_S:
            return f"no controller has answered for {NO_ANSWER_S:g} s"
        return None

    def is_report_due(self, now: float) -> bool:
        """True once for each `PROGRESS_S` of waiting."""
        due = now - self._reported_at >= PROGRESS_S
        if due:
            self._reported_at = now
        return due
