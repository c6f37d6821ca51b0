"""Codec and Value: the transaction index of a segment: the aborted transactions whose markers are in the segment.

    .txnindex   { version int16 (0) | producerId int64 | firstOffset int64 | lastOffset int64
                | lastStableOffset int64 } *

Each entry has 34 bytes, big-endian, in the order of the abort markers (Kafka's AbortedTxn, TransactionIndex).
`lastStableOffset` is the last stable offset after the marker. A read that ends at or below it needs no later entry. The
file exists only if the segment contains an abort marker.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, Final

from barnabas.server.storage.errors import CorruptIndexError
from barnabas.server.storage.values import AbortedTxn

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


class TxnIndex:
    """The aborted transactions of one segment, by last offset."""

    ENTRY_SIZE: ClassVar[int] = _ENTRY.size
    __slots__ = ("base_offset", "txns", "written")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.written = 0
        self.txns: list[AbortedTxn] = []

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> TxnIndex:
        """Raises CorruptIndexError for entries that cannot belong to this segment."""
        if len(data) % _ENTRY.size:
            raise CorruptIndexError(f"transaction index of {base_offset} has {len(data)} bytes, no multiple of 34")
        index = cls(base_offset)
        last = base_offset - 1
        for version, *rest in _ENTRY.iter_unpack(data):
            txn = AbortedTxn(*rest)
            if version != _VERSION or txn.last_offset <= last:
                raise CorruptIndexError(f"transaction index of {base_offset} contains an invalid entry: {txn}")
            last = txn.last_offset
            index.txns.append(txn)
        index.written = len(index.txns)
        return index

    def __len__(self) -> int:
        return len(self.txns)

    def append(self, txn: AbortedTxn) -> None:
        self.txns.append(txn)

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions whose marker is at or above `offset`."""
        while self.txns and self.txns[-1].last_offset >= offset:
            self.txns.pop()
        self.written = min(self.written, len(self.txns))

    def collect(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTxn], bool]:
        """The transactions that overlap [start, end), and whether later segments contain none."""
        found = []
        for txn in self.txns:
            if txn.last_offset >= start_offset and txn.first_offset < end_offset:
                found.append(txn)
            if txn.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def encode(self, start: int = 0) -> bytes:
        return b"".join(_ENTRY.pack(_VERSION, *txn) for txn in self.txns[start:])
