"""Machine: the connections of an HTTP server: how many it has, and which of them makes room for another.

A connection either waits for its client (for a request, the rest of one, or until the client receives the response) or
has a request that is being handled. Only those that wait make room: first the one that has waited for the longest time
at the address that has too many connections, or, if there are too many in all, at the address with the most. So
half-sent requests fill the slots of their own address only, and not for long.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from barnabas.core.addresses import address_group


class HttpSlot(Protocol):
    """One connection."""

    def abort(self) -> None:
        """Close the connection at once."""
        ...


class HttpSlots:
    """At most `total` connections, and `of_address` from one address."""

    def __init__(self, total: int, of_address: int) -> None:
        self.total = total
        self.of_address = of_address
        self._groups: dict[HttpSlot, str] = {}
        self._waiting: dict[HttpSlot, None] = {}  # the one that has waited for the longest time first
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._groups)

    def enter(self, slot: HttpSlot, host: str) -> bool:
        """Whether there is room for a new connection, which waits for its client. Another one may be closed for it."""
        group = address_group(host)
        if self._counts[group] >= self.of_address and not self._make_room(group):
            return False
        if len(self._groups) >= self.total:
            largest = max(self._counts, key=lambda each: self._counts[each])
            if not self._make_room(largest) and not self._make_room(None):
                return False
        self._groups[slot] = group
        self._counts[group] += 1
        self._waiting[slot] = None
        return True

    def leave(self, slot: HttpSlot) -> None:
        """The connection is closed."""
        group = self._groups.pop(slot, None)
        if group is not None:
            self._waiting.pop(slot, None)
            self._counts[group] -= 1
            if not self._counts[group]:
                del self._counts[group]

    def wait(self, slot: HttpSlot) -> None:
        """The connection waits for its client from now on."""
        if slot in self._groups:
            self._waiting.pop(slot, None)
            self._waiting[slot] = None

    def handle(self, slot: HttpSlot) -> None:
        """A request of the connection is being handled."""
        self._waiting.pop(slot, None)

    def _make_room(self, group: str | None) -> bool:
        for slot in self._waiting:
            if group is None or self._groups[slot] == group:
                self.leave(slot)
                slot.abort()
                return True
        return False
