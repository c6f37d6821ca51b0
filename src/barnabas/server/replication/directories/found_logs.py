"""Shell: the logs that lay on disk when this node started, until the first image tells whose they are.

A crash while a replica was moving to another directory (`mover.py`) can leave two whole logs of it: the one that
reaches further is the replica's, for whatever was promised is in it. A copy that was not whole is begun anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from uuid import UUID

from barnabas.core.ids import METADATA_TOPIC, NO_TOPIC_ID, TopicId, TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.directory.state import FoundLog
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.log import Log

log = get_logger("barnabas.server.replication")

Found = tuple[LogDir, FoundLog]


class FoundLogs:
    """`discover` once; what the first image does not `take` is then set aside."""

    def __init__(self, unique: Callable[[], UUID]) -> None:
        self._unique = unique
        self._whole: dict[TopicPartition, list[Found]] = defaultdict(list)
        self._copies: dict[TopicPartition, list[Found]] = defaultdict(list)

    def discover(self, directories: Iterable[LogDir]) -> None:
        """Look at what lies there."""
        for directory in directories:
            for found in directory.scan():
                if found.topic_partition.topic != METADATA_TOPIC:
                    place = self._copies if found.future else self._whole
                    place[found.topic_partition].append((directory, found))

    def take(
        self, name: TopicPartition, topic_id: TopicId, config: LogConfig, home: UUID, now_ms: int
    ) -> tuple[LogDir, Log | None] | None:
        """The log of this partition, and its directory; no log if it could not be opened, None if there was none.

        `home` is the directory that the controller has for it.
        """
        mine = []
        for directory, entry in self._whole.pop(name, ()):
            if entry.topic_id in (None, NO_TOPIC_ID, topic_id):
                mine.append((directory, entry))
            else:
                self._set_aside(directory, entry)
        opened: list[tuple[LogDir, Log]] = []
        for directory, entry in mine:
            try:
                opened.append((directory, directory.open_log(entry, config, now_ms=now_ms)))
            except StorageError as error:
                log.error("partition is offline", partition=str(name), reason=str(error))
        if not opened:
            return (mine[0][0], None) if mine else None
        best = max(opened, key=lambda one: (*_reach(one[1]), one[0].directory_id == home))
        for other in opened:
            if other is not best:
                self._part_with(other, best, now_ms)
        return best

    def leave(self, name: TopicPartition) -> None:
        """What was found of this partition stays as it is, unopened: a later log of it may be on a disk that is out."""
        self._whole.pop(name, None)
        self._copies.pop(name, None)

    def unfinished_copies(self, name: TopicPartition) -> list[LogDir]:
        """The directories that this partition, which has been taken, was moving to. What was copied goes."""
        directories = []
        for directory, entry in self._copies.pop(name, ()):
            log.info("a move to another directory is begun anew", partition=str(name), to=directory.path)
            try:
                directory.future_logs.delete_found(entry, unique=self._unique())
                directories.append(directory)
            except StorageError as error:
                log.error("an unfinished copy could not be deleted", partition=str(name), reason=str(error))
        return directories

    def set_rest_aside(self) -> None:
        """Logs that the image does not place on this node: kept on disk under a name that says so, not opened."""
        for place in (self._whole, self._copies):
            for _, found in sorted(place.items()):
                for directory, entry in found:
                    self._set_aside(directory, entry)
            place.clear()

    def _set_aside(self, directory: LogDir, entry: FoundLog) -> None:
        log.warning("stray log set aside: the cluster does not place it here", partition=str(entry.topic_partition))
        directory.set_aside(entry, unique=self._unique())

    def _part_with(self, other: tuple[LogDir, Log], best: tuple[LogDir, Log], now_ms: int) -> None:
        """It goes if the best one has all of it; otherwise it is kept for a human to look at."""
        directory, spare = other
        whole = best[1]
        name = spare.topic_partition
        contained = is_contained(spare, whole)
        log.warning(
            "two logs of a partition were found: the one that reaches further is used",
            partition=str(name),
            used=f"{whole.path}, which ends at {whole.log_end_offset}",
            other=f"{spare.path}, which ends at {spare.log_end_offset}",
            outcome="deleted" if contained else "set aside as stray",
        )
        try:
            if contained:
                directory.delete_log(name, unique=self._unique(), now_ms=now_ms)
            else:
                directory.set_log_aside(name, unique=self._unique())
        except StorageError as error:
            log.error("the other log could not be put away", partition=str(name), reason=str(error))


def _reach(one: Log) -> tuple[int, int]:
    """Of two logs the one with the later leader epoch, and then with the later end, has what was promised."""
    epoch = one.latest_epoch
    return (-1 if epoch is None else epoch, one.log_end_offset)


def is_contained(spare: Log, whole: Log) -> bool:
    """Whether `whole` has every record of `spare`: the same leader epoch at the same offset means the same records."""
    last = spare.log_end_offset - 1
    if last < spare.log_start_offset:
        return True
    return last < whole.log_end_offset and spare.epoch_for_offset(last) == whole.epoch_for_offset(last)
