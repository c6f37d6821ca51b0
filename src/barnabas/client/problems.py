"""Machine: what a client tries again and again without success, so that it does not wait in silence.

A problem is logged as one WARNING when it has lasted for `GRACE_S`, again after 10 s, 20 s, 40 s, and so on up to every
10 minutes, and as one INFO when it is over. The text of an error says what to do.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from barnabas.core.errors import BarnabasError

log = logging.getLogger("barnabas.client")

GRACE_S: Final = 0.5
"""Problems that end sooner, such as the election of a leader, are not logged."""
REPEAT_S: Final = 10.0
REPEAT_MAX_S: Final = 600.0
PROBLEMS_MAX: Final = 100
"""The largest number of problems that are kept at the same time; others are not logged."""


@dataclass(slots=True)
class _Problem:
    error: BarnabasError
    since: float
    log_at: float
    pause_s: float = REPEAT_S
    logged: bool = False


class Problems:
    """The open problems of one client, by what they concern ("the cluster", "topic 'orders'")."""

    def __init__(self) -> None:
        self._open: dict[str, _Problem] = {}

    def note(self, subject: str, error: BarnabasError, now: float) -> None:
        """Note a failed attempt at the loop time `now`. The client tries again."""
        problem = self._open.get(subject)
        if problem is None:
            if len(self._open) < PROBLEMS_MAX:
                self._open[subject] = _Problem(error, now, now + GRACE_S)
            return
        problem.error = error
        if now >= problem.log_at:
            lasted = "" if not problem.logged else f" For {now - problem.since:.0f} s now."
            log.warning("%s: %s%s The client keeps trying.", subject, error, lasted)
            problem.logged = True
            problem.log_at = now + problem.pause_s
            problem.pause_s = min(2 * problem.pause_s, REPEAT_MAX_S)

    def solved(self, subject: str) -> None:
        """Note that an attempt has succeeded."""
        if self._open:
            problem = self._open.pop(subject, None)
            if problem is not None and problem.logged:
                log.info("%s: the problem is over.", subject)

    def forget(self, subject: str) -> None:
        """Forget a problem whose error the caller gets."""
        self._open.pop(subject, None)

    @property
    def current(self) -> BarnabasError | None:
        """The error of the problem that has lasted for the longest time; None without problems."""
        return next((problem.error for problem in self._open.values()), None)

    def raise_current(self) -> None:
        """Raise the error of the problem that has lasted for the longest time, if there is one."""
        if (error := self.current) is not None:
            raise error

    def hint(self) -> str:
        """A sentence for the message of a time-out; empty without problems."""
        return "" if self.current is None else f" The problem is: {self.current}"
