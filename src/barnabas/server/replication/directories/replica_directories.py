"""Shell: the log directory of each replica: where its log was found, or where a new log is created.

An empty log is never created for a replica whose log may be in an offline directory. Such a replica could become the
leader without the records that the controller expects it to have. The replica has no log until its directory is online
again or is removed from log.dirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.core.clock import Clock
from barnabas.core.ids import TopicId, TopicPartition
from barnabas.core.rng import Rng, random_uuid
from barnabas.core.telemetry import get_logger
from barnabas.server.metadata.image.topics import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from barnabas.server.replication.directories.found_logs import FoundLogs, Steps
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import StorageError, TransientStorageError
from barnabas.server.storage.log import Log

log = get_logger("barnabas.server.replication")

_UNSPECIFIED: Final = frozenset({UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY})


class ReplicaHome(NamedTuple):
    """The directory and the log of a replica.

    `directory` is None if the replica's directory is offline; `log` is None if the log could not be opened or created.
    """

    directory: LogDir | None
    log: Log | None
    was_found: bool = False
    """The log existed before this process started."""
    is_postponed: bool = False
    """The log could not be opened or created for a reason that passes, for example a lack of file descriptors. Call
    `ReplicaDirectories.open` again."""


class ReplicaDirectories:
    """The log directories of a broker, and the choice of a directory for each replica."""

    def __init__(self, directories: Sequence[LogDir], missing: Sequence[str], clock: Clock, rng: Rng) -> None:
        self.directories = list(directories)
        self.missing = tuple(missing)
        """Paths of log.dirs that could not be opened when the node started."""
        self._clock = clock
        self._found = FoundLogs(lambda: random_uuid(rng))
        self._preferred: dict[TopicPartition, LogDir] = {}

    @property
    def offline(self) -> list[str]:
        """The paths of the log directories that cannot be used."""
        return [*self.missing, *(home.path for home in self.directories if home.failure is not None)]

    def discover(self) -> Steps:
        """Scan the log directories in steps. Do this once, before the first image."""
        return self._found.discover(self.directories)

    @property
    def found_partitions(self) -> list[TopicPartition]:
        """The partitions whose logs were on the disk when the broker started, and have not been opened."""
        return self._found.partitions

    @property
    def found_count(self) -> int:
        """The number of logs on disk that have not been opened."""
        return len(self._found)

    def open_found(self, name: TopicPartition, topic_id: TopicId, config: LogConfig, wanted: UUID) -> bool:
        """Open the log of a replica if it was found on disk; `open` will return it. Returns whether it was found."""
        if wanted not in _UNSPECIFIED and self._may_be_offline(wanted):
            return False
        return self._found.open_early(name, topic_id, config, wanted, self._clock.now_ms())

    def set_rest_aside(self) -> None:
        """Set aside the found logs that the first image did not assign to this broker."""
        self._found.set_rest_aside()

    def unfinished_copies(self, name: TopicPartition) -> list[LogDir]:
        """The target directories of moves of this replica that the end of the previous process interrupted."""
        return self._found.unfinished_copies(name)

    def abandon(self, name: TopicPartition) -> None:
        """Set aside the logs of a partition that could not be opened. Call this when the broker loses the replica."""
        self._found.abandon(name)

    def prefer(self, name: TopicPartition, directory: LogDir) -> None:
        """If this broker later gets a replica of the partition, create its log in `directory`.

        The directory that the controller assigns to the replica is then ignored.
        """
        self._preferred[name] = directory

    def forget_topic(self, topic: str) -> None:
        """Remove the preferred directories of a deleted topic."""
        for name in [name for name in self._preferred if name.topic == topic]:
            del self._preferred[name]

    def open(
        self, name: TopicPartition, topic_id: TopicId, config: LogConfig, wanted: UUID, *, is_new: bool
    ) -> ReplicaHome:
        """Open or create the log of a replica.

        `wanted` is the directory that the controller has assigned. `is_new` means that no previous process of this
        broker can have had the replica.
        """
        preferred = self._preferred.pop(name, None)
        if wanted not in _UNSPECIFIED and self._may_be_offline(wanted):
            self._found.leave(name)
            return self._withhold(name)
        now_ms = self._clock.now_ms()
        found = self._found.take(name, topic_id, config, wanted, now_ms)
        if found is not None:
            return ReplicaHome(*found, was_found=True, is_postponed=self._found.is_postponed(name))
        if wanted in _UNSPECIFIED and not is_new and self.offline:
            return self._withhold(name)
        directory = self._choose(preferred, wanted)
        if directory is None:
            return ReplicaHome(None, None)
        try:
            return ReplicaHome(directory, directory.create_log(name, topic_id, config, now_ms=now_ms))
        except StorageError as error:
            log.error("partition is offline", partition=str(name), reason=str(error))
            return ReplicaHome(directory, None, is_postponed=isinstance(error, TransientStorageError))

    def _may_be_offline(self, wanted: UUID) -> bool:
        online = {home.directory_id for home in self.directories if home.failure is None}
        return wanted not in online and bool(self.offline)

    def _withhold(self, name: TopicPartition) -> ReplicaHome:
        log.error(
            "partition is offline: its log may be in an offline log directory. Repair the directory, or remove it from"
            " log.dirs to start with an empty log",
            partition=str(name),
            offline=self.offline,
        )
        return ReplicaHome(None, None)

    def _choose(self, preferred: LogDir | None, wanted: UUID) -> LogDir | None:
        """The directory for a new log, or None if all are offline.

        The first choice is the directory that an administrator requested, the second is the controller's assignment
        (KIP-858), the third is the online directory with the fewest logs (`LogManager.nextLogDirs`).
        """
        if preferred is not None and preferred.failure is None:
            return preferred
        working = [directory for directory in self.directories if directory.failure is None]
        for directory in working:
            if directory.directory_id == wanted:
                return directory
        if not working:
            log.error("a log was not created: every log directory is offline")
        return min(working, key=lambda directory: len(directory.logs), default=None)
