"""Table: why a cleaning pass did not finish.

KafkaError
├─ CleaningError            this log cannot be compacted as it is; the message says why
└─ CleaningAbortedError     the log was truncated, shortened, closed or deleted meanwhile; nothing is wrong
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError


class CleaningError(KafkaError):
    """The log cannot be compacted; others can."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


class CleaningAbortedError(KafkaError):
    """The pass was called off."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
