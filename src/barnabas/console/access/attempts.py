"""Machine: slows down the guessing of passwords. Time is an argument, in milliseconds.

After FREE failed logins with a user name, the next login with this name must wait; each further failure doubles the
wait. Names are counted, not addresses, because behind a proxy all users have one address.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

FREE: Final = 5
_FIRST_WAIT_MS: Final = 2_000
_WAIT_MS_MAX: Final = 300_000
_NAMES_MAX: Final = 1_000


class LoginAttempts:
    """The failed logins of each name; of at most 1,000 names, the newest."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def wait_ms(self, name: str, now_ms: int) -> int:
        """How long this name must wait before the next attempt; 0 if it may try now."""
        count, last_ms = self._failures.get(name, (0, 0))
        if count < FREE:
            return 0
        wait = min(_FIRST_WAIT_MS << min(count - FREE, 20), _WAIT_MS_MAX)
        return max(0, last_ms + wait - now_ms)

    def failed(self, name: str, now_ms: int) -> None:
        count = self._failures.pop(name, (0, 0))[0]
        self._failures[name] = (count + 1, now_ms)
        if len(self._failures) > _NAMES_MAX:
            self._failures.popitem(last=False)

    def succeeded(self, name: str) -> None:
        self._failures.pop(name, None)
