"""Machine: which batches a pass may drop because of their transaction (Kafka's CleanedTransactionMetadata).

Batches of an aborted transaction go at once. A marker must stay as long as a batch of its transaction does, even an
emptied one: without it a replay would take the transaction for open. So a marker may go only after a pass that met none
of its batches, and then waits for its delete horizon like a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.control import EndTxn
from barnabas.server.storage.values import AbortedTxn


class _Ongoing:
    """An aborted transaction between its first offset and its marker."""

    __slots__ = ("seen", "txn")

    def __init__(self, txn: AbortedTxn) -> None:
        self.txn = txn
        self.seen = False


class CleanedTransactions:
    """Fed with every batch in order; `kept` collects the entries that the new transaction index needs."""

    def __init__(self) -> None:
        self._ahead: list[tuple[int, AbortedTxn]] = []
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedTxn] = []

    def add_aborted(self, txns: Iterable[AbortedTxn]) -> None:
        """Those that overlap the batches to come; the same one may be told again for each segment it reaches into."""
        for txn in txns:
            heappush(self._ahead, (txn.first_offset, txn))

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        ongoing = self._aborted.get(header.producer_id)
        if ongoing is None:
            self._committed.add(header.producer_id)
            return False
        ongoing.seen = True
        return True

    def on_control(self, header: BatchHeader, marker: EndTxn | None) -> bool:
        """Whether no batch of its transaction is left, so that the marker may go once its horizon has passed."""
        self._advance(header.last_offset)
        if not header.record_count:
            return True  # an earlier pass emptied it
        if marker is None:
            return False  # a control record of another kind
        if marker.commit:
            met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not met
        ongoing = self._aborted.pop(header.producer_id, None)
        if ongoing is not None and ongoing.seen:
            self.kept.append(ongoing.txn)
            return False
        return True

    def _advance(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            txn = heappop(self._ahead)[1]
            if txn.last_offset >= offset:
                self._aborted.setdefault(txn.producer_id, _Ongoing(txn))
