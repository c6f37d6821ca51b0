"""Table: the errors that end a cleaning pass.

KafkaError
├─ CleaningError            the log cannot be compacted; the message states the reason
└─ CleaningAbortedError     the log was truncated, deleted or closed during the pass, which is no failure
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError


class CleaningError(KafkaError):
    """The log cannot be compacted. Other logs are not affected."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


class CleaningAbortedError(KafkaError):
    """The cleaning pass was aborted, because the log was truncated, deleted or closed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
