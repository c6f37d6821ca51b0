"""Shell: the logs that were on disk when the broker started, until the first image assigns them.

A crash during a move between log directories (`mover.py`) can leave two complete logs of one replica. The log with the
later leader epoch or end offset contains all acknowledged records, and is used. An incomplete copy is discarded, and
the move starts again.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from barnabas.core.ids import TopicId, TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.directory.state import FoundLog
from barnabas.server.storage.errors import DamagedLogError, StorageError, TransientStorageError
from barnabas.server.storage.log import Log

log = get_logger("barnabas.server.replication")

Found = tuple[LogDir, FoundLog]
Steps = Generator[int, None, None]
"""Work in steps, for `barnabas.core.work.in_slices`: each step yields its units of work."""
_NAMES_SHOWN: Final = 50
_RANDOM: Final = 4
"""The version of UUIDs of random bits (RFC 9562)."""
_BITS_PER_CHARACTER: Final = 6


class FoundLogs:
    """The found logs by partition. Logs that the first image does not assign to this broker are renamed to `-stray`."""

    def __init__(self, unique: Callable[[], UUID]) -> None:
        self._unique = unique
        self._whole: dict[TopicPartition, list[Found]] = defaultdict(list)
        self._early: dict[TopicPartition, tuple[TopicId, tuple[LogDir, Log | None]]] = {}
        """The logs that `open_early` has opened."""
        self._postponed: dict[TopicPartition, list[Found]] = {}
        """Logs that could not be opened for a reason that passes. `take` opens them when it is called again."""
        self._unusable: dict[TopicPartition, list[Found]] = defaultdict(list)
        """Logs that are damaged, or could not be opened for another reason that does not pass."""
        self._copies: dict[TopicPartition, list[Found]] = defaultdict(list)

    def discover(self, directories: Iterable[LogDir]) -> Steps:
        """Scan the directories, one log in each step; call this once."""
        for directory in directories:
            with contextlib.suppress(StorageError):  # the directory is offline now
                for found in directory.found_logs():
                    place = self._copies if found.future else self._whole
                    place[found.topic_partition].append((directory, found))
                    yield 1

    def __len__(self) -> int:
        return len(self._whole)

    def open_early(self, name: TopicPartition, topic_id: TopicId, config: LogConfig, home: UUID, now_ms: int) -> bool:
        """Open the log of a partition, and keep it for `take`. Returns False if no log was found."""
        if name not in self._whole:
            return False
        found = self.take(name, topic_id, config, home, now_ms)
        if found is not None:
            self._early[name] = topic_id, found
        return True

    def take(
        self, name: TopicPartition, topic_id: TopicId, config: LogConfig, home: UUID, now_ms: int
    ) -> tuple[LogDir, Log | None] | None:
        """The directory and the log of a partition; the log is None if it could not be opened.

        Returns None if no log was found. `home` is the directory that the controller has assigned.
        """
        early = self._early.pop(name, None)
        if early is not None:
            directory, opened_log = early[1]
            if early[0] == topic_id:
                if opened_log is not None and opened_log.config != config:
                    opened_log.update_config(config)
                return early[1]
            if opened_log is not None:
                directory.set_log_aside(name, unique=self._unique())
        mine = []
        for directory, entry in (*self._whole.pop(name, ()), *self._postponed.pop(name, ())):
            if entry.topic_id == topic_id:
                mine.append((directory, entry))
            elif entry.topic_id is None or is_damaged_id(entry.topic_id, topic_id):
                mine.append((directory, self._identified(directory, entry, topic_id)))
            else:
                self._set_aside(directory, entry)
        opened: list[tuple[LogDir, Log]] = []
        for directory, entry in mine:
            try:
                if entry.topic_id is None:
                    raise DamagedLogError(
                        f"{entry.problem}, and the log has records: whether they are those of the present topic is "
                        "unknown, because a topic of this name may have been deleted while this broker was down"
                    )
                opened.append((directory, directory.open_log(entry, config, now_ms=now_ms)))
            except TransientStorageError as error:
                log.error("log could not be opened; it is tried again", partition=str(name), reason=str(error))
                self._postponed[name] = mine
                self._unusable.pop(name, None)
                for _, found in opened:
                    found.close(clean=False)
                return directory, None
            except DamagedLogError as error:
                self._unusable[name].append((directory, entry))
                log.error(
                    "partition is offline: its log is damaged; docs/OPERATIONS.md says what to do",
                    partition=str(name), reason=str(error),
                )  # fmt: skip
            except StorageError as error:
                self._unusable[name].append((directory, entry))
                log.error("partition is offline", partition=str(name), reason=str(error))
        if not opened:
            return (mine[0][0], None) if mine else None
        best = max(opened, key=lambda one: (*_reach(one[1]), one[0].directory_id == home))
        for other in opened:
            if other is not best:
                self._remove_spare(other, best, now_ms)
        return best

    def is_postponed(self, name: TopicPartition) -> bool:
        """Whether `take` could not open the log, and can open it later."""
        return name in self._postponed

    def abandon(self, name: TopicPartition) -> None:
        """Rename the logs of a partition that could not be opened to `-stray`: the broker has no replica of the
        partition any more. A later replica, or a new topic of this name, begins with an empty log."""
        for directory, entry in (*self._unusable.pop(name, ()), *self._postponed.pop(name, ())):
            if directory.failure is None and directory.fs.exists(f"{directory.path}/{entry.name}"):
                try:
                    self._set_aside(directory, entry)
                except StorageError as error:
                    log.error("log could not be set aside", partition=str(name), reason=str(error))

    def leave(self, name: TopicPartition) -> None:
        """Leave the found logs of this partition unopened: a newer log may be in an offline directory."""
        self._whole.pop(name, None)
        self._copies.pop(name, None)

    def unfinished_copies(self, name: TopicPartition) -> list[LogDir]:
        """Delete the incomplete copies that interrupted moves of the partition have left.

        Call this after `take`. Returns the directories of the deleted copies: the targets of the interrupted moves.
        """
        directories = []
        for directory, entry in self._copies.pop(name, ()):
            log.info(
                "an interrupted move to another log directory starts again", partition=str(name), to=directory.path
            )
            try:
                directory.future_logs.delete_found(entry, unique=self._unique())
                directories.append(directory)
            except StorageError as error:
                log.error("an unfinished copy could not be deleted", partition=str(name), reason=str(error))
        return directories

    def set_rest_aside(self) -> None:
        """Rename the logs that the image does not assign to this broker to `-stray`, and leave them unopened."""
        rest = [one for place in (self._whole, self._copies) for _, found in sorted(place.items()) for one in found]
        self._whole.clear()
        self._copies.clear()
        if rest:
            log.warning(
                "partitions on the disk are not in the cluster's metadata: their directories are renamed to -stray, "
                "and nothing is deleted. If their topics were deleted, or moved away, while this broker was down, "
                "delete the directories; otherwise the metadata has lost records, see docs/OPERATIONS.md",
                count=len(rest),
                partitions=_some_names(rest),
                directories=", ".join(sorted({directory.path for directory, _ in rest})),
            )
        for directory, entry in rest:
            self._set_aside(directory, entry)
        for name, (_, (directory, opened)) in sorted(self._early.items()):
            if opened is not None:
                log.warning(
                    "stray log renamed: the cluster does not assign it to this broker any more", partition=str(name)
                )
                directory.set_log_aside(name, unique=self._unique())
        self._early.clear()

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions whose logs were found and have not been taken."""
        return sorted({*self._whole, *self._copies})

    def _identified(self, directory: LogDir, entry: FoundLog, topic_id: TopicId) -> FoundLog:
        """Replace the damaged topic id of a log that is known to be of this topic: one character differs, or the log
        has never had a record. If the file cannot be written, the log is opened all the same."""
        name = str(entry.topic_partition)
        if entry.topic_id is not None:
            log.warning(
                "the topic id in partition.metadata is damaged: it differs in one character from the id in the "
                "cluster's metadata, which is used; check the disk",
                partition=name, found=entry.topic_id, expected=topic_id,
            )  # fmt: skip
        elif directory.is_unused(entry):
            log.info("the topic id of a log without records is written again", partition=name, reason=entry.problem)
        else:
            return entry
        try:
            return directory.correct_topic_id(entry, topic_id)
        except StorageError as error:
            log.error("the topic id could not be written", partition=name, reason=str(error))
            return replace(entry, topic_id=topic_id)

    def _set_aside(self, directory: LogDir, entry: FoundLog) -> None:
        target = directory.set_aside(entry, unique=self._unique())
        log.warning("log set aside", partition=str(entry.topic_partition), renamed_to=target)

    def _remove_spare(self, other: tuple[LogDir, Log], best: tuple[LogDir, Log], now_ms: int) -> None:
        """Delete the log in `other` if the log in `best` contains all its records; otherwise rename it to `-stray`."""
        directory, spare = other
        whole = best[1]
        name = spare.topic_partition
        contained = is_contained(spare, whole)
        log.warning(
            "two logs of a partition were found: the one with the later epoch or end offset is used",
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
            log.error("the other log could not be deleted or renamed", partition=str(name), reason=str(error))


def _some_names(found: list[Found]) -> str:
    names = [str(entry.topic_partition) for _, entry in found]
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def _reach(one: Log) -> tuple[int, int]:
    """Sort key: the log with the largest (latest leader epoch, end offset) contains all acknowledged records."""
    epoch = one.latest_epoch
    return (-1 if epoch is None else epoch, one.log_end_offset)


def is_contained(spare: Log, whole: Log) -> bool:
    """Whether `whole` has every record of `spare`: equal leader epochs at an offset mean equal records below it."""
    last = spare.log_end_offset - 1
    if last < spare.log_start_offset:
        return True
    return last < whole.log_end_offset and spare.epoch_for_offset(last) == whole.epoch_for_offset(last)


def is_damaged_id(found: UUID, expected: UUID) -> bool:
    """Whether `found` is `expected` with a damaged character of its text, rather than the id of another topic.

    A character stands for six bits. The ids of two topics have 122 random bits and differ in about 61 of them; in six
    bits or fewer with a probability of 1e-27.
    """
    return expected.version == _RANDOM and 0 < (found.int ^ expected.int).bit_count() <= _BITS_PER_CHARACTER
