"""Shell: what happened in a world, for people to read and for replays to be compared.

Events are lines. Bytes on the network and on disks are only counted into a running checksum, which is written down with
every event: two traces are equal exactly if the same bytes went the same ways at the same times.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from struct import Struct
from typing import Final

_ROW: Final = Struct(">dIIqI")


class Trace:
    """Grows for the length of a run."""

    def __init__(self, now: Callable[[], float], origin: float) -> None:
        self.lines: list[str] = []
        self.checksum = 0
        """Of every delivery so far: when, on which connection, how many bytes, which."""
        self._now = now
        self._origin = origin

    def event(self, who: str, what: str) -> None:
        self.lines.append(f"{self._now() - self._origin:12.6f} {self.checksum:08x} {who:<10} {what}")

    def count(self, connection: int, from_client: bool, size: int, checksum: int) -> None:
        """A delivery."""
        row = _ROW.pack(self._now(), connection, from_client, size, checksum)
        self.checksum = zlib.crc32(row, self.checksum)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def digest(self) -> str:
        """Of everything; equal for equal runs."""
        return hashlib.sha256(f"{self.text()}{self.checksum}".encode()).hexdigest()

    def tail(self, count: int) -> str:
        """The last lines, for a failure's message; network noise left out."""
        lines = [line for line in self.lines if " net " not in line[21:33]]
        cut = f"... {len(lines) - count} lines before\n" if len(lines) > count else ""
        return cut + "\n".join(lines[-count:])
