"""Machine: the records of a producer that have failed and whose errors the program has not retrieved yet.

A record's error counts as retrieved when its future is awaited, when `result()` or `exception()` of the future is
called, or when the record's `on_delivery` gets the error. `flush` and `close` raise DeliveryFailedError for the other
failed records, so that a program which only sends and flushes learns that records are lost.

The records of a transactional producer are not kept here, because `commit_transaction` raises their errors (as in the
Java producer) and `abort_transaction` drops the records on purpose.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from barnabas.client.errors import DeliveryFailedError
from barnabas.client.producer.delivery import ProducerBatch

BATCHES_MAX: Final = 1_000
"""The largest number of failed batches that are kept; of older ones only the number of records is kept."""


class DeliveryFailures:
    """The failed records since the last `take`."""

    def __init__(self) -> None:
        self._batches: deque[ProducerBatch] = deque()
        self._older = 0
        self._oldest: ProducerBatch | None = None

    def add(self, batch: ProducerBatch) -> None:
        """Add a batch that has failed, after its watchers were called."""
        if not batch.unseen:
            return
        self._batches.append(batch)
        if len(self._batches) > BATCHES_MAX:
            old = self._batches.popleft()
            if old.unseen:
                self._older += old.unseen
                self._oldest = self._oldest or old

    def clear(self) -> None:
        self._batches.clear()
        self._older, self._oldest = 0, None

    def take(self) -> DeliveryFailedError | None:
        """The error that stands for all failed records whose errors have not been retrieved, or None if there are none.
        Forgets these records."""
        failed = [batch for batch in self._batches if batch.unseen]
        count = self._older + sum(batch.unseen for batch in failed)
        first = self._oldest or (failed[0] if failed else None)
        self.clear()
        if first is None or first.error is None:
            return None
        error = DeliveryFailedError(count, first.partition, first.error)
        error.__cause__ = first.error
        return error
