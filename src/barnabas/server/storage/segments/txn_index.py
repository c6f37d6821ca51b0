"""Value: the transaction index of a segment: the aborted transactions whose markers are in the segment.

The entries are in the order of the abort markers. The file exists only if the segment contains an abort marker.
`protocol/records/log_files.py` has its format.
"""

from __future__ import annotations

from typing import ClassVar

from barnabas.protocol.records.errors import LogFileError
from barnabas.protocol.records.log_files import (
    ABORTED_TXN_BYTES,
    AbortedTxn,
    decode_aborted,
    encode_aborted,
    overlapping,
)
from barnabas.server.storage.errors import CorruptIndexError


class TxnIndex:
    """The aborted transactions of one segment, by last offset."""

    ENTRY_SIZE: ClassVar[int] = ABORTED_TXN_BYTES
    __slots__ = ("base_offset", "txns", "written")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.written = 0
        self.txns: list[AbortedTxn] = []

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> TxnIndex:
        """The index in the bytes of a `.txnindex` file. Raises CorruptIndexError for entries that cannot belong to the
        segment that starts at `base_offset`."""
        index = cls(base_offset)
        try:
            index.txns = decode_aborted(data, base_offset)
        except LogFileError as error:
            raise CorruptIndexError(str(error)) from None
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
        return overlapping(self.txns, start_offset, end_offset)

    def encode(self, start: int = 0) -> bytes:
        return encode_aborted(self.txns[start:])
