"""Machine: reads the log in ZooKeeper from a position to the tail, entry by entry.

The name of the next entry is the reader's position. A reader that is far behind lists the names and reads many entries
in one request. A reader at position 0, or before the start of the log, loads the snapshot first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct, field

from barnabas.server.metadata.errors import MetadataError
from barnabas.server.quorum.zookeeper.entries import decode_entry, decode_snapshot
from barnabas.server.quorum.zookeeper.layout import (
    LOG,
    LogTail,
    SnapshotInfo,
    chunk_path,
    entry_offsets,
    entry_path,
    read_parts,
)
from barnabas.server.quorum.zookeeper.machine.effects import Commit, Effect, LoadSnapshot
from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Children,
    FailureReason,
    GetMany,
    Names,
    Request,
    RequestFailed,
    Znodes,
)

ENTRIES_AT_ONCE: Final = 64
PIECES_AT_ONCE: Final = 4


class ZooKeeperCall(Struct, frozen=True):
    """A request, and the callback for its answer."""

    request: Request
    on_answer: Callable[[Answer], list[Effect]]


class MissingError(MetadataError):
    """An entry or a part before the tail is missing. It may have been deleted after the tail was read."""


class _Load(Struct):
    """A snapshot or an entry in several znodes, which are read one after the other."""

    name: str
    paths: tuple[str, ...]
    finish: Callable[[list[bytes]], list[Effect]]
    pieces: list[bytes] = field(default_factory=list)


class LogReader:
    """One reading of the log. Call `ask`, which returns the next request, until it returns None. `position` is then the
    end offset in the tail."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.position = 0
        self._names: list[int] = []
        self._lagging = False
        self._load: _Load | None = None

    def ask(self, tail: LogTail) -> ZooKeeperCall | None:
        """The next read; None at the end of the log. Raises MetadataError if the log is invalid."""
        snapshot = tail.snapshot
        too_far = self.position < tail.start_offset or self.position == 0
        if snapshot is not None and too_far and (self._load is None or self._load.name != snapshot.name):
            self._load = self._snapshot_load(snapshot)
        if self._load is not None:
            done = len(self._load.pieces)
            return ZooKeeperCall(GetMany(self._load.paths[done : done + PIECES_AT_ONCE]), self._on_pieces)
        if self.position >= tail.end_offset:
            self._names, self._lagging = [], False
            return None
        if self._lagging and not self._names:
            return ZooKeeperCall(Children(LOG), lambda answer: self._on_names(answer, tail))
        offsets = self._names[:ENTRIES_AT_ONCE] or [self.position]
        return ZooKeeperCall(GetMany(tuple(map(entry_path, offsets))), lambda answer: self._on_entries(answer, offsets))

    def is_at_end(self, tail: LogTail) -> bool:
        return self.position >= tail.end_offset and self._load is None

    def skip_to(self, position: int) -> None:
        """Move the position over entries that this node has written."""
        assert position >= self.position and self._load is None
        self.position = position

    def take(self, data: bytes, offset: int) -> list[Effect]:
        """Decode the batches of the entry at `offset` from `position` on, and move the position after them."""
        batches = [batch for batch in decode_entry(data, offset) if batch.base_offset >= self.position]
        if not batches or batches[0].base_offset != self.position:
            raise MissingError(
                f"The entry of the metadata log at offset {offset} does not continue at {self.position}."
            )
        self.position = batches[-1].last_offset + 1
        return [Commit(self.number, batch) for batch in batches]

    # ---- snapshots and entries in parts

    def _snapshot_load(self, info: SnapshotInfo) -> _Load:
        def finish(pieces: list[bytes]) -> list[Effect]:
            self.position = info.end_offset
            self._names, self._lagging = [], True  # the snapshot may end inside an entry, so list the names
            return [LoadSnapshot(self.number, decode_snapshot(pieces, info))]

        return _Load(info.name, tuple(chunk_path(info.name, chunk) for chunk in range(info.chunks)), finish)

    def _on_pieces(self, answer: Answer) -> list[Effect]:
        load = self._load
        assert load is not None
        load.pieces += self._data(answer)
        if len(load.pieces) < len(load.paths):
            return []
        self._load = None
        return load.finish(load.pieces)

    # ---- entries

    def _on_names(self, answer: Answer, tail: LogTail) -> list[Effect]:
        if isinstance(answer, Names):
            found = entry_offsets(answer.names)
            first = max((offset for offset in found if offset <= self.position), default=self.position)
            self._names = [offset for offset in found if first <= offset < tail.end_offset]
            self._lagging = False
        return []

    def _on_entries(self, answer: Answer, offsets: list[int]) -> list[Effect]:
        effects: list[Effect] = []
        for offset, data in zip(offsets, self._data(answer), strict=False):  # empty if the connection was lost
            self._names = self._names[1:]
            self._lagging = not self._names
            paths = read_parts(data)
            if paths is not None:  # the entries after it are read again, which is rare
                self._names = []
                self._load = _Load(paths[0], paths, lambda pieces, at=offset: self.take(b"".join(pieces), at))  # type: ignore[misc]  # mypy infers no lambda with a default
                return effects
            effects += self.take(data, offset)
        return effects

    def _data(self, answer: Answer) -> tuple[bytes, ...]:
        if isinstance(answer, Znodes):
            return answer.data
        self._names, self._load = [], None
        if isinstance(answer, RequestFailed) and answer.failure is FailureReason.NO_NODE:
            raise MissingError(f"The metadata log has a gap at offset {self.position}: {answer.detail}")
        return ()
