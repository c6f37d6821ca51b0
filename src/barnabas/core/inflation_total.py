"""Shell: the total of the bytes that the threads of one process inflate at the same time.

Strangers send compressed bytes to several threads of a node: those that check batches, compact logs, look for
timestamps, and read the metrics of clients. Each payload has a limit of its own; together they have this total.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Final

UNCOUNTED_BYTES: Final = 8 * 1024 * 1024
"""A payload that cannot inflate to more is not counted, so that the event loop does not wait for its small payloads."""
INFLATING_BYTES_MAX: Final = 256 * 1024 * 1024


class InflationTotal:
    """Bytes that are being inflated, of at most `limit_bytes`. Threads wait for room.

    A thread reserves once, the most that its payload can need. Threads that reserved more while they inflate could all
    wait for each other. A payload that is larger than the total is inflated alone.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._changed = Condition()
        self.reserved = 0

    @contextmanager
    def room(self, size: int) -> Iterator[None]:
        """Reserve `size` bytes for the body of the `with` statement."""
        if size <= UNCOUNTED_BYTES:
            yield
            return
        with self._changed:
            while self.reserved and self.reserved + size > self._limit:
                self._changed.wait()
            self.reserved += size
        try:
            yield
        finally:
            with self._changed:
                self.reserved -= size
                self._changed.notify_all()


INFLATING: Final = InflationTotal(INFLATING_BYTES_MAX)
"""The total of this process."""
