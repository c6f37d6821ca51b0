"""Table: the error code that a coordinator's client receives when the coordinator's own partition rejects a write.

Coordination defines no exceptions. It raises `KafkaError` with a code of Kafka's error table.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.errors import ErrorCode

_TRANSLATED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def error_for_client(code: ErrorCode) -> ErrorCode:
    """Translate a partition's error for the coordinator's client: NOT_LEADER_OR_FOLLOWER for a partition of
    `__consumer_offsets` becomes NOT_COORDINATOR. Codes without a translation are returned unchanged."""
    return _TRANSLATED.get(code, code)
