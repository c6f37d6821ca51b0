"""Table: what can be wrong with record batches.

KafkaError
├─ CorruptBatchError          the bytes are not a valid batch            (CORRUPT_MESSAGE)
│  └─ DecompressionLimitError they would inflate beyond the stated cap   (CORRUPT_MESSAGE)
└─ RecordRefusedError         a valid batch that this topic must refuse  (INVALID_RECORD, INVALID_TIMESTAMP, ...)
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.errors import ErrorCode, KafkaError


class CorruptBatchError(KafkaError):
    """Bytes that are not a valid batch: wrong length, wrong CRC, wrong structure."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class DecompressionLimitError(CorruptBatchError):
    """A compressed payload that would inflate beyond the cap (a decompression bomb, or a cap set too low)."""


class RecordRefusedError(KafkaError):
    """A produced batch that must not be appended: the answer's code, its message, and the records at fault.

    `record_errors` are ProduceResponse's `(batch_index, message)` pairs, v8 and later (KIP-467).
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)
