"""Machine: the voters and the kraft.version at each offset of the log (Kafka's KRaftControlRecordStateMachine).

A voters record is in force as soon as it is in the log, committed or not, until it is truncated (KIP-853).
"""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from barnabas.server.raft.machine.values import (
    NO_OFFSET,
    KRaftVersionControl,
    OffsetAndEpoch,
    RaftBatch,
    RaftConfig,
    Voters,
)

ValueT = TypeVar("ValueT")


class Entry(Struct, Generic[ValueT], frozen=True):
    """A value and the offset from which it holds; -1 for a configured value that is not in the log."""

    offset: int
    value: ValueT


class LogHistory(Generic[ValueT]):
    """The values that one kind of control record has had in the log (Kafka's LogHistory)."""

    def __init__(self, configured: ValueT, entries: tuple[tuple[int, ValueT], ...]) -> None:
        self._entries = [Entry(NO_OFFSET, configured), *(Entry(offset, value) for offset, value in entries)]

    @property
    def last(self) -> Entry[ValueT]:
        return self._entries[-1]

    def before(self, end_offset: int) -> Entry[ValueT]:
        """The entry in force just before `end_offset`."""
        return next(entry for entry in reversed(self._entries) if entry.offset < end_offset)

    def append(self, offset: int, value: ValueT) -> None:
        self._entries.append(Entry(offset, value))

    def truncate(self, offset: int) -> None:
        while self._entries[-1].offset >= offset:
            self._entries.pop()

    def trim(self, start_offset: int) -> None:
        """Remove entries that were replaced before the log's start."""
        while len(self._entries) > 1 and self._entries[1].offset < start_offset:
            self._entries.pop(0)

    def restart(self, offset: int, value: ValueT) -> None:
        self._entries = [Entry(offset, value)]


class ControlRecordHistory:
    """The history of the voters and of the kraft.version. It is updated together with the log."""

    def __init__(
        self,
        config: RaftConfig,
        kraft_versions: tuple[tuple[int, int], ...] = (),
        voters: tuple[tuple[int, Voters], ...] = (),
    ) -> None:
        self.voters: LogHistory[Voters] = LogHistory(config.voters, voters)
        self.kraft_version: LogHistory[int] = LogHistory(config.kraft_version, kraft_versions)

    def append(self, batch: RaftBatch) -> bool:
        """Add the control records of a batch. Returns whether the voters or the version changed."""
        changed = False
        for index, control in enumerate(batch.controls):
            if isinstance(control, Voters):
                self.voters.append(batch.base_offset + index, control)
                changed = True
            elif isinstance(control, KRaftVersionControl):
                self.kraft_version.append(batch.base_offset + index, control.version)
                changed = True
        return changed

    def truncate(self, offset: int) -> None:
        self.voters.truncate(offset)
        self.kraft_version.truncate(offset)

    def trim(self, start_offset: int) -> None:
        self.voters.trim(start_offset)
        self.kraft_version.trim(start_offset)

    def start_at(self, snapshot_id: OffsetAndEpoch, kraft_version: int, voters: Voters | None) -> None:
        """Replace the history by a snapshot's values. A snapshot without voters has kraft.version 0; then the
        configured voters stay in force."""
        self.kraft_version.restart(snapshot_id.offset - 1, kraft_version)
        if voters is not None:
            self.voters.restart(snapshot_id.offset - 1, voters)
        else:
            self.voters.truncate(0)
