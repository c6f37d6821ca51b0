"""Machine: slows down the guessing of passwords. Time is an argument, in milliseconds.

After FREE failed logins from an address, its next login must wait; each further failure doubles the wait. Addresses are
counted, and not names: otherwise everybody could lock a user out by guesses with the user's name. One right password
ends the wait of its address. So the users behind one proxy wait only as long as none of them logs in successfully.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from barnabas.core.addresses import address_group

FREE: Final = 5
_FIRST_WAIT_MS: Final = 2_000
_WAIT_MS_MAX: Final = 30_000
_ADDRESSES_MAX: Final = 1_000


class LoginAttempts:
    """The failed logins of each address (`core/addresses.py`); of at most 1,000 addresses, the newest."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def wait_ms(self, address: str, now_ms: int) -> int:
        """How long this address must wait before the next attempt; 0 if it may try now."""
        count, last_ms = self._failures.get(address_group(address), (0, 0))
        if count < FREE:
            return 0
        wait = min(_FIRST_WAIT_MS << min(count - FREE, 20), _WAIT_MS_MAX)
        return max(0, last_ms + wait - now_ms)

    def failed(self, address: str, now_ms: int) -> None:
        count = self._failures.pop(address_group(address), (0, 0))[0]
        self._failures[address_group(address)] = (count + 1, now_ms)
        if len(self._failures) > _ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def succeeded(self, address: str) -> None:
        self._failures.pop(address_group(address), None)
