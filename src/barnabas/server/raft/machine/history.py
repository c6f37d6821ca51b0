"""Machine: which voters and which kraft.version hold where in the log (Kafka's KRaftControlRecordStateMachine).

A record of voters counts as soon as it is in the log, committed or not, and stops counting when it is truncated.
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
    """`offset` is -1 for what was configured and is not in the log."""

    offset: int
    value: ValueT


class LogHistory(Generic[ValueT]):
    """A value that changes along the log."""

    def __init__(self, configured: ValueT, entries: tuple[tuple[int, ValueT], ...]) -> None:
        self._entries = [Entry(NO_OFFSET, configured), *(Entry(offset, value) for offset, value in entries)]

    @property
    def last(self) -> Entry[ValueT]:
        return self._entries[-1]

    def before(self, end_offset: int) -> Entry[ValueT]:
        """What holds just before `end_offset`."""
        return next(entry for entry in reversed(self._entries) if entry.offset < end_offset)

    def note(self, offset: int, value: ValueT) -> None:
        self._entries.append(Entry(offset, value))

    def truncate(self, offset: int) -> None:
        while self._entries[-1].offset >= offset:
            self._entries.pop()

    def trim(self, start_offset: int) -> None:
        """Forget what was replaced before the log starts."""
        while len(self._entries) > 1 and self._entries[1].offset < start_offset:
            self._entries.pop(0)

    def restart(self, offset: int, value: ValueT) -> None:
        self._entries = [Entry(offset, value)]


class ControlRecordHistory:
    """Both timelines, kept in step with the log."""

    def __init__(
        self,
        config: RaftConfig,
        kraft_versions: tuple[tuple[int, int], ...] = (),
        voters: tuple[tuple[int, Voters], ...] = (),
    ) -> None:
        self.voters: LogHistory[Voters] = LogHistory(config.voters, voters)
        self.kraft_version: LogHistory[int] = LogHistory(config.kraft_version, kraft_versions)

    def append(self, batch: RaftBatch) -> bool:
        """Take in a batch's control records; True if the voters or the version changed."""
        changed = False
        for index, control in enumerate(batch.controls):
            if isinstance(control, Voters):
                self.voters.note(batch.base_offset + index, control)
                changed = True
            elif isinstance(control, KRaftVersionControl):
                self.kraft_version.note(batch.base_offset + index, control.version)
                changed = True
        return changed

    def truncate(self, offset: int) -> None:
        self.voters.truncate(offset)
        self.kraft_version.truncate(offset)

    def trim(self, start_offset: int) -> None:
        self.voters.trim(start_offset)
        self.kraft_version.trim(start_offset)

    def start_at(self, snapshot_id: OffsetAndEpoch, kraft_version: int, voters: Voters | None) -> None:
        """A snapshot without voters is one of kraft.version 0: they stay as configured."""
        self.kraft_version.restart(snapshot_id.offset - 1, kraft_version)
        if voters is not None:
            self.voters.restart(snapshot_id.offset - 1, voters)
        else:
            self.voters.truncate(0)
