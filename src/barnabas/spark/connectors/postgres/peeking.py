"""Machine: the pages of a peek -> batches of whole transactions, divided in the same way however the pages are cut.

A batch ends behind the first transaction with which it has `batch_bytes` of row messages. The peek may begin before the
wanted range, at another place in each read of the same range, so the division must not depend on the pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barnabas.spark.connectors.postgres.changes import Batch
from barnabas.spark.connectors.postgres.transactions import TransactionReader

Message = tuple[int, int, bytes]
"""A row of a peek: lsn, xid, data."""

_COMMIT = ord("C")


class BatchDivider:
    """Reads one peek with a TransactionReader."""

    def __init__(self, reader: TransactionReader, batch_bytes: int) -> None:
        self._reader = reader
        self._batch_bytes = batch_bytes
        self._fed = 0

    def feed(self, page: Sequence[Message]) -> Iterator[Batch]:
        """Take the next page; gives the batches that are complete. Must be read to its end."""
        self._fed += sum(len(data) for _, _, data in page)
        if self._fed < self._batch_bytes:  # not even all bytes since the last batch are enough
            self._reader.feed(page)
            return
        start = 0
        for place, (_, _, data) in enumerate(page):
            if data and data[0] == _COMMIT:
                self._reader.feed(page[start : place + 1])
                start = place + 1
                if self._reader.pending_bytes >= self._batch_bytes:
                    self._fed = sum(len(data) for _, _, data in page[start:])
                    yield self._reader.take()
        self._reader.feed(page[start:])

    def finish(self) -> Batch:
        """The rest of the changes, at the end of the peek."""
        return self._reader.finish()
