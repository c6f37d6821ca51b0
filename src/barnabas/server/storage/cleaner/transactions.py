"""Machine: the batches that a pass may remove because of their transaction (Kafka's CleanedTransactionMetadata).

Batches of an aborted transaction are removed at once. A marker must be retained while the log contains a batch of its
transaction, even one without records; otherwise a replay would find an open transaction. A marker can be removed once a
pass has found no batch of its transaction, after a delete horizon as for a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.control import EndTxn
from barnabas.server.storage.values import AbortedTxn


class _Ongoing:
    """An aborted transaction between its first offset and its marker. `seen` is set when a batch of it has been
    read."""

    __slots__ = ("seen", "txn")

    def __init__(self, txn: AbortedTxn) -> None:
        self.txn = txn
        self.seen = False


class CleanedTransactions:
    """The transactions of one cleaning pass. Call `on_data` or `on_control` for each batch, in order of offsets.

    `kept` collects the entries of the new segment's transaction index.
    """

    def __init__(self) -> None:
        self._ahead: list[tuple[int, AbortedTxn]] = []
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedTxn] = []

    def add_aborted(self, txns: Iterable[AbortedTxn]) -> None:
        """Add transactions that overlap the following batches. A transaction may be added again for each segment it
        overlaps."""
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
        """Whether the transaction has no batch left, so that the marker can be removed after its delete horizon."""
        self._advance(header.last_offset)
        if not header.record_count:
            return True  # an earlier pass has emptied the batch
        if marker is None:
            return False  # another kind of control record
        if marker.commit:
            seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not seen
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
