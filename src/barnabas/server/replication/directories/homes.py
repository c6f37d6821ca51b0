"""Shell: where a replica's log is, or is made: found on disk, or new where an administrator or the controller wants it.

Never is an empty log made in place of one that may lie on a disk that is out: the replica would stand for records that
it does not have, and could lead with none. Such a replica has no log until its directory is back, or its path is taken
out of log.dirs.
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
from barnabas.server.replication.directories.found_logs import FoundLogs
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.log import Log

log = get_logger("barnabas.server.replication")

_NOT_SAID: Final = frozenset({UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY})


class Home(NamedTuple):
    """Where a replica lies: no directory if that is offline, no log if it could not be opened."""

    directory: LogDir | None
    log: Log | None
    was_found: bool = False
    """It lay there before this process."""


class Homes:
    """The log directories of a node, and what lies in them."""

    def __init__(self, directories: Sequence[LogDir], missing: Sequence[str], clock: Clock, rng: Rng) -> None:
        self.directories = list(directories)
        self.missing = tuple(missing)
        """Paths of log.dirs that could not be opened when the node started."""
        self._clock = clock
        self._found = FoundLogs(lambda: random_uuid(rng))
        self._preferred: dict[TopicPartition, LogDir] = {}

    @property
    def offline(self) -> list[str]:
        """The paths that cannot be used."""
        return [*self.missing, *(home.path for home in self.directories if home.failure is not None)]

    def discover(self) -> None:
        """Look at what lies there. Call once, before the first image."""
        self._found.discover(self.directories)

    def set_rest_aside(self) -> None:
        """What was found and is nobody's, now that the first image has been seen."""
        self._found.set_rest_aside()

    def unfinished_copies(self, name: TopicPartition) -> list[LogDir]:
        """The directories that this replica was moving to when the last process ended."""
        return self._found.unfinished_copies(name)

    def prefer(self, name: TopicPartition, directory: LogDir) -> None:
        """A replica that will come is to be created there, whatever the controller thinks."""
        self._preferred[name] = directory

    def forget_topic(self, topic: str) -> None:
        """Nobody's wishes for it count any more."""
        for name in [name for name in self._preferred if name.topic == topic]:
            del self._preferred[name]

    def open(self, name: TopicPartition, topic_id: TopicId, config: LogConfig, wanted: UUID, *, is_new: bool) -> Home:
        """The replica's log, opened or made. `wanted`: the directory that the controller has for it; `is_new`: no
        earlier process of this node can have had it."""
        preferred = self._preferred.pop(name, None)
        if wanted not in _NOT_SAID and self._may_be_offline(wanted):
            self._found.leave(name)
            return self._withhold(name)
        now_ms = self._clock.now_ms()
        found = self._found.take(name, topic_id, config, wanted, now_ms)
        if found is not None:
            return Home(*found, was_found=True)
        if wanted in _NOT_SAID and not is_new and self.offline:
            return self._withhold(name)
        directory = self._choose(preferred, wanted)
        if directory is None:
            return Home(None, None)
        try:
            return Home(directory, directory.create_log(name, topic_id, config, now_ms=now_ms))
        except StorageError as error:
            log.error("partition is offline", partition=str(name), reason=str(error))
            return Home(directory, None)

    def _may_be_offline(self, wanted: UUID) -> bool:
        online = {home.directory_id for home in self.directories if home.failure is None}
        return wanted not in online and bool(self.offline)

    def _withhold(self, name: TopicPartition) -> Home:
        log.error(
            "partition is offline: its log may lie in a directory that is out. Mend that, or take it out of log.dirs to"
            " begin with an empty log",
            partition=str(name),
            offline=self.offline,
        )
        return Home(None, None)

    def _choose(self, preferred: LogDir | None, wanted: UUID) -> LogDir | None:
        """Where a new log goes: where an administrator wants it, else the directory that the controller has for it
        (KIP-858), else the one that works and holds the fewest logs (`LogManager.nextLogDirs`)."""
        if preferred is not None and preferred.failure is None:
            return preferred
        working = [directory for directory in self.directories if directory.failure is None]
        for directory in working:
            if directory.directory_id == wanted:
                return directory
        if not working:
            log.error("every log directory is offline")
        return min(working, key=lambda directory: len(directory.logs), default=None)
