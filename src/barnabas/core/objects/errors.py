"""Table: the exceptions of object stores.

KafkaError                        (core) an error code and a message
└─ RemoteStorageError             code KAFKA_STORAGE_ERROR, after which clients repeat a request
   ├─ ObjectMissingError          the object store does not have the object
   └─ StoreUnavailableError       the object store failed or did not respond; the operation can be repeated
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError


class RemoteStorageError(KafkaError):
    """A failure of an object store, or of what is kept there."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class ObjectMissingError(RemoteStorageError):
    """The object store does not have the object."""


class StoreUnavailableError(RemoteStorageError):
    """The object store failed or did not respond. Whether a write took effect is unknown; repeating it is safe."""
