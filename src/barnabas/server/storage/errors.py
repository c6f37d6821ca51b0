"""Table: the exceptions of storage.

    KafkaError                        (core) an error code and a message
    └─ StorageError                   code KAFKA_STORAGE_ERROR
       ├─ FileMissingError            the file or directory does not exist
       ├─ TransientStorageError       the operation failed alone and can be repeated; the log stays online
       │  ├─ DiskFullError            no space or quota left: the write was undone
       │  └─ DescriptorsExhaustedError  the process, or the host, has no file descriptor left
       ├─ DiskIoError                 an I/O error: the log directory goes offline
       ├─ CorruptFileError            a file violates its format
       │  ├─ CorruptIndexError        an index, which is then rebuilt from the log
       │  ├─ CorruptSnapshotError     a producer snapshot, which is then deleted; an older one is used
       │  └─ DamagedLogError          bit rot in a log: this log alone goes offline, and its files stay as they are
       ├─ LogFailedError              the log is offline because of an earlier failure
       └─ LogDirError                 a data directory that must not be used
          ├─ LogDirLockedError        another process, or this one, has locked the directory
          └─ LogDirMismatchError      the directory belongs to another cluster or node

Errors that are not failures of the disk (OFFSET_OUT_OF_RANGE, OUT_OF_ORDER_SEQUENCE_NUMBER, ...) are plain
`KafkaError`s. A rejected batch raises `RecordValidationError` (protocol.records).
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError


class StorageError(KafkaError):
    """A failure of the disk, or a corrupt file."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class FileMissingError(StorageError):
    """The file or directory does not exist."""


class TransientStorageError(StorageError):
    """The operation failed, and the disk did not. The log stays online, and the operation can be repeated.

    KAFKA_STORAGE_ERROR is an error that clients repeat a request after, for every API that reads or writes records.
    """


class DescriptorsExhaustedError(TransientStorageError):
    """A file cannot be opened, because the process (EMFILE) or the host (ENFILE) has no file descriptor left."""


class DiskFullError(TransientStorageError):
    """No space or quota is left. The write has been undone and can be retried once there is space."""


class DiskIoError(StorageError):
    """The operating system reported an I/O error."""


class CorruptFileError(StorageError):
    """A file violates its format."""


class CorruptIndexError(CorruptFileError):
    """An index contradicts its segment, and has to be rebuilt."""


class CorruptSnapshotError(CorruptFileError):
    """A producer snapshot has a wrong CRC or violates its schema. Recovery uses an older snapshot and replays more
    records."""


class DamagedLogError(CorruptFileError):
    """A log has damage that no crash explains. The log stays offline, its data directory stays online."""


class LogFailedError(StorageError):
    """The log is offline because of an earlier failure, until the process is restarted."""


class LogDirError(StorageError):
    """The data directory cannot be used."""


class LogDirLockedError(LogDirError):
    """The directory is locked already, by another process or by this one."""


class LogDirMismatchError(LogDirError):
    """The directory's meta.properties contain another cluster id or node id."""
