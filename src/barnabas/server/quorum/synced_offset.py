"""Shell: the file that stores up to which offset the metadata log has been synced; see `raft_log.py`."""

from __future__ import annotations

from typing import Final

from barnabas.core.ids import METADATA_TOPIC, TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.server.storage import names
from barnabas.server.storage.directory.checkpoints import read_offsets, write_offsets
from barnabas.server.storage.errors import CorruptFileError
from barnabas.server.storage.fs import FileSystem

log = get_logger("barnabas.server.node")

_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)


class SyncedOffsetFile:
    """The file with the offset up to which the metadata log has been synced. `offset` is the stored offset, or 0 if the
    file is missing or damaged."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._path = f"{directory}/{names.RECOVERY_POINT_CHECKPOINT}"
        try:
            self.offset = read_offsets(fs, self._path).get(_PARTITION, 0)
        except CorruptFileError as error:
            log.warning("the synced offset of the metadata log is unknown", file=self._path, reason=str(error))
            self.offset = 0

    def write(self, offset: int) -> None:
        """Store the offset durably. Raises StorageError."""
        if offset != self.offset:
            write_offsets(self._fs, self._path, {_PARTITION: offset})
            self.offset = offset

    def lower(self, offset: int) -> None:
        """Store a lower offset durably before a truncation. Raises StorageError."""
        if offset < self.offset:
            write_offsets(self._fs, self._path, {_PARTITION: offset})
            self.offset = offset
