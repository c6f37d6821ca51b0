"""Shell: the trace of a simulated run, which people read and which proves that a replay is the same run.

Each event is a line. Network deliveries update a running checksum, and every line contains that checksum. So two traces
are equal exactly if the same bytes were delivered on the same connections at the same times.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from struct import Struct
from typing import Final

_ROW: Final = Struct(">dIIqI")


class Trace:
    """The events of one run so far."""

    def __init__(self, now: Callable[[], float], origin: float) -> None:
        self.lines: list[str] = []
        self.checksum = 0
        """Over every delivery so far: its time, its connection, its number of bytes and its bytes."""
        self._now = now
        self._origin = origin

    def event(self, who: str, what: str) -> None:
        self.lines.append(f"{self._now() - self._origin:12.6f} {self.checksum:08x} {who:<10} {what}")

    def count(self, connection: int, from_client: bool, size: int, checksum: int) -> None:
        """Adds one delivery of bytes to the running checksum."""
        row = _ROW.pack(self._now(), connection, from_client, size, checksum)
        self.checksum = zlib.crc32(row, self.checksum)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def digest(self) -> str:
        """A hash of the whole trace; equal for equal runs."""
        return hashlib.sha256(f"{self.text()}{self.checksum}".encode()).hexdigest()

    def tail(self, count: int) -> str:
        """The last lines without network events, for the message of a failure."""
        lines = [line for line in self.lines if " net " not in line[21:33]]
        cut = f"... {len(lines) - count} lines before\n" if len(lines) > count else ""
        return cut + "\n".join(lines[-count:])
