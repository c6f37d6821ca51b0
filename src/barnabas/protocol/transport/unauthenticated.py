"""Machine: the connections of one listener whose clients have not authenticated yet: their number, and their memory.

A client that does not authenticate costs a descriptor and memory until its deadline. When too many clients do that, the
connection that was accepted first ends, provided that its client has had time to authenticate. An honest client needs a
few milliseconds, so clients that only hold connections do not keep it out, however many they are.
"""

from __future__ import annotations

from typing import Final, Protocol

CONNECTIONS_MAX: Final = 1_000
"""The limit for connections of one listener whose clients have not authenticated yet."""
HELD_BYTES_MAX: Final = 16 * 1024 * 1024
"""The limit for the unfinished messages of all clients of one listener that have not authenticated yet. A message that
arrives in one piece is never unfinished, and honest clients send such messages."""
TIME_TO_AUTHENTICATE_S: Final = 1.0
"""A connection is not ended earlier than this to make room for another one."""


class UnauthenticatedConnection(Protocol):
    """A connection whose client has not authenticated yet."""

    def give_up(self, reason: str) -> None:
        """Close the connection."""
        ...


class UnauthenticatedConnections:
    """The connections of one listener whose clients have not authenticated yet, in the order of their beginning."""

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._began: dict[UnauthenticatedConnection, float] = {}
        self._held: dict[UnauthenticatedConnection, int] = {}
        self.held_bytes = 0
        """The bytes of the unfinished messages of all these connections."""

    def __len__(self) -> int:
        return len(self._began)

    def try_add(self, connection: UnauthenticatedConnection, now: float) -> str | None:
        """Count a new connection and return None; or, at the limit, return why it is refused."""
        if len(self._began) >= self._connections_max:
            reason = f"{self._connections_max} clients of this listener have not authenticated yet"
            oldest = next(iter(self._began))
            if now - self._began[oldest] < TIME_TO_AUTHENTICATE_S:
                return reason
            self.remove(oldest)
            oldest.give_up(f"{reason}, and this one has waited for the longest time")
        self._began[connection] = now
        return None

    def remove(self, connection: UnauthenticatedConnection) -> None:
        """The client has authenticated, or the connection has ended. May be called again."""
        self._began.pop(connection, None)
        self.held_bytes -= self._held.pop(connection, 0)

    def hold(self, connection: UnauthenticatedConnection, size: int) -> bool:
        """Count the `size` bytes of the connection's unfinished message in place of what was counted before. Returns
        False if the connection must be closed, because the clients hold too much together."""
        if connection not in self._began:
            return True
        before = self._held.pop(connection, 0)
        if size:
            self._held[connection] = size
        self.held_bytes += size - before
        return size <= before or self.held_bytes <= HELD_BYTES_MAX
