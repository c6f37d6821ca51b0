"""Table: what can go wrong between a log and its disk.

    KafkaError                        (core) a code for the wire, a sentence for people
    └─ StorageError                   code KAFKA_STORAGE_ERROR
       ├─ FileMissingError            the file or directory is not there
       ├─ DiskFullError               no space or quota left: the write was undone, the log lives on
       ├─ DiskIoError                 the device or the file system refused: the log directory goes offline
       ├─ CorruptFileError            a file's bytes cannot be what we or Kafka wrote
       │  ├─ CorruptIndexError        an index: rebuilt from the log, never fatal
       │  └─ CorruptSnapshotError     a producer snapshot: deleted, an older one is used
       ├─ LogFailedError              an earlier failure (above all of fsync) closed this log for good
       └─ LogDirError                 a data directory that must not be used
          ├─ LogDirLockedError        another process has it
          └─ LogDirMismatchError      it belongs to another cluster or node

Answers to clients that are not failures of the disk (OFFSET_OUT_OF_RANGE, OUT_OF_ORDER_SEQUENCE_NUMBER, ...) are plain
`KafkaError`s; batches that are refused are `RecordRefusedError` (records).
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError


class StorageError(KafkaError):
    """A failure of the disk, or of the bytes on it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class FileMissingError(StorageError):
    """The file or directory does not exist."""


class DiskFullError(StorageError):
    """No space (or quota) left. What was being written has been undone; free some space and try again."""


class DiskIoError(StorageError):
    """The operating system refused an operation that must not fail."""


class CorruptFileError(StorageError):
    """A file does not hold what its format demands."""


class CorruptIndexError(CorruptFileError):
    """An index contradicts its segment; the remedy is to rebuild it."""


class CorruptSnapshotError(CorruptFileError):
    """A producer snapshot failed its CRC or its schema; the remedy is an older snapshot and a longer replay."""


class LogFailedError(StorageError):
    """The log met a failure it may not paper over; it serves nothing until the process is restarted."""


class LogDirError(StorageError):
    """The data directory cannot be used."""


class LogDirLockedError(LogDirError):
    """Another process holds the directory's lock."""


class LogDirMismatchError(LogDirError):
    """The directory's meta.properties name another cluster or node."""
