"""Table: the exceptions for record batches.

KafkaError
├─ CorruptBatchError          the bytes are not a valid batch         (CORRUPT_MESSAGE)
│  ├─ DecompressionLimitError the records inflate beyond the limit    (CORRUPT_MESSAGE)
│  └─ RecordSizeError         a compressed record is too large        (INVALID_RECORD)
├─ InflationError             a batch exceeds the room that is left for it (MESSAGE_TOO_LARGE)
├─ RecordValidationError      a valid batch that the topic rejects    (INVALID_RECORD, INVALID_TIMESTAMP, ...)
└─ LogFileError               a file beside the batches violates its format (KAFKA_STORAGE_ERROR)
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.errors import ErrorCode, KafkaError


class CorruptBatchError(KafkaError):
    """Bytes that are not a valid batch: wrong length, wrong CRC, wrong structure."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class DecompressionLimitError(CorruptBatchError):
    """A compressed payload inflates beyond the limit (a decompression bomb, or a limit that is too low)."""


class RecordSizeError(CorruptBatchError):
    """A record of a compressed batch is larger than max.decompressed.message.bytes."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = ErrorCode.INVALID_RECORD


class InflationError(KafkaError):
    """A batch inflates beyond the `limit_bytes` of `validate.check`: to be checked elsewhere, or in another request."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, f"The batch inflates to more than {limit_bytes} bytes.")


class RecordValidationError(KafkaError):
    """A produced batch is rejected: the error code, the message, and the invalid records.

    `record_errors` are ProduceResponse's `(batch_index, message)` pairs, v8 and later (KIP-467).
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


class LogFileError(KafkaError):
    """An index, a snapshot or an identity file of a log violates its format."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)
