"""Machine: the start offset of each leader epoch in the log (KIP-101, KIP-279; Kafka's LeaderEpochFileCache).

A follower uses the list to find where its log diverges from the leader's: the leader returns the end offset of the
follower's latest epoch, and the follower truncates to that offset. Epochs and start offsets both strictly increase. The
list is stored in the file `leader-epoch-checkpoint` (`directory/checkpoints.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.server.storage.directory.checkpoints import decode_lines, encode_lines
from barnabas.server.storage.errors import CorruptFileError
from barnabas.server.storage.values import UNKNOWN_EPOCH_END, EpochEndOffset


class EpochEntry(NamedTuple):
    """The first offset written in an epoch."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The list of epochs. `changed` is set when the list differs from the file; `LogState.save_epochs` resets it."""

    __slots__ = ("_entries", "changed")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = []
        for entry in sorted(entries):
            self.assign(entry.epoch, entry.start_offset)
        self.changed = False

    @classmethod
    def decode(cls, data: bytes, what: str) -> LeaderEpochs:
        entries = []
        for line in decode_lines(data, what):
            try:
                epoch, start_offset = line.split()
                entries.append(EpochEntry(int(epoch), int(start_offset)))
            except ValueError:
                raise CorruptFileError(f"{what} holds {line!r} where 'epoch offset' was expected") from None
        return cls(entries)

    def encode(self) -> bytes:
        return encode_lines(f"{e.epoch} {e.start_offset}" for e in self._entries)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add an epoch, and remove the entries that contradict it. Returns False if the list contained the epoch
        already."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} cannot start at offset {start_offset}")
        entries = self._entries
        if entries and entries[-1].epoch == epoch and start_offset >= entries[-1].start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self.changed = True
        return True

    def end_offset(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """The largest known epoch not above `epoch`, and the offset at which that epoch ended.

        The result is (-1, -1) if `epoch` is later than all known epochs. If `epoch` is earlier than all known epochs,
        the result is `epoch` itself, which ended where the oldest known epoch starts.
        """
        entries = self._entries
        if epoch < 0 or not entries or epoch > entries[-1].epoch:
            return UNKNOWN_EPOCH_END
        if epoch == entries[-1].epoch:
            return EpochEndOffset(epoch, log_end_offset)
        above = bisect_right(entries, epoch, key=lambda e: e.epoch)
        # An epoch below the oldest entry: its records have been deleted, and it ended where the oldest entry starts.
        known = entries[above - 1].epoch if above else epoch
        return EpochEndOffset(known, entries[above].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch of the record at `offset`, or None if unknown."""
        slot = bisect_right(self._entries, offset, key=lambda e: e.start_offset)
        return self._entries[slot - 1].epoch if slot else None

    def previous_epoch(self, epoch: int) -> int | None:
        """The largest known epoch below `epoch`."""
        below = [e.epoch for e in self._entries if e.epoch < epoch]
        return below[-1] if below else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that start at or above `end_offset`."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
            self.changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that end at or below `start_offset`. The epoch that contains `start_offset` now starts
        there."""
        slot = bisect_right(self._entries, start_offset, key=lambda e: e.start_offset)
        if slot and (slot > 1 or self._entries[0].start_offset < start_offset):
            self._entries[:slot] = [EpochEntry(self._entries[slot - 1].epoch, start_offset)]
            self.changed = True

    def clear(self) -> None:
        self.changed = self.changed or bool(self._entries)
        self._entries.clear()
