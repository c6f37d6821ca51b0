"""Table: the exceptions of tiered storage.

KafkaError                        (core) an error code and a message
└─ RemoteStorageError             (core.objects) code KAFKA_STORAGE_ERROR, after which clients repeat a request
   ├─ ObjectMissingError          (core.objects) the object store does not have the object
   ├─ StoreUnavailableError       (core.objects) the object store failed or did not respond
   ├─ DamagedObjectError          an object's size or bytes differ from what was copied
   └─ RemoteMetadataError         a record of `__remote_log_metadata` cannot be read
"""

from __future__ import annotations

from barnabas.core.objects.errors import ObjectMissingError, RemoteStorageError, StoreUnavailableError

__all__ = [
    "DamagedObjectError",
    "ObjectMissingError",
    "RemoteMetadataError",
    "RemoteStorageError",
    "StoreUnavailableError",
]


class DamagedObjectError(RemoteStorageError):
    """An object's size or bytes differ from what was copied."""


class RemoteMetadataError(RemoteStorageError):
    """A record of `__remote_log_metadata` cannot be read."""
