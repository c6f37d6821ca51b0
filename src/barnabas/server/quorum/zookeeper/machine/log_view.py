"""Machine: this node's view of the log in ZooKeeper: the tail, and all entries before the tail, read in order.

After each connection the view may be stale: this machine sends a sync, reads the tail, and reads the new entries. While
this node is the leader, it changes the tail itself and updates the view.
"""

from __future__ import annotations

from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.records.codec import LATEST_METADATA_VERSION
from barnabas.server.quorum.zookeeper.entries import metadata_version_after
from barnabas.server.quorum.zookeeper.layout import TAIL, LogTail, base_znodes, read_tail
from barnabas.server.quorum.zookeeper.machine.effects import Commit, Effect, Joined, LoadSnapshot
from barnabas.server.quorum.zookeeper.machine.reader import LogReader, ZooKeeperCall
from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Create,
    Done,
    FailureReason,
    Get,
    Multi,
    RequestFailed,
    SyncRequest,
    Znode,
)


class ZooKeeperLogView:
    """Send the request that `ask_ready` returns; if that is None, the request that `ask` returns. If that is None, too,
    everything before the tail has been read."""

    def __init__(self) -> None:
        self.tail = LogTail()
        self.tail_version = -1
        self.metadata_version = LATEST_METADATA_VERSION
        """The metadata.version after the records that were read."""
        self._unsynced = True
        self._looks = 0
        """The number of calls of `look_again`. Answers to requests from before the last call are ignored."""
        self._base_znodes = list(base_znodes())
        self._tail_stale = True
        self._went_back = False
        self._missing: tuple[int, int, int] | None = None
        self._reader = LogReader(0)
        self._late: list[LogReader] = []
        self._readers = 0

    @property
    def position(self) -> int:
        """The offset after the last record that was read."""
        return self._reader.position

    @property
    def at_end(self) -> bool:
        """Whether everything before the known tail has been read."""
        known = not (self._unsynced or self._tail_stale or self._base_znodes)
        return known and self._reader.is_at_end(self.tail)

    def add_reader(self) -> int:
        """Add a reader that reads the whole log again, for listeners that were registered later."""
        self._readers += 1
        self._late.append(LogReader(self._readers))
        return self._readers

    # ---- events

    def look_again(self) -> None:
        """After a new connection: the view, and the data of the connected server, may be stale."""
        self._unsynced = self._tail_stale = True
        self._looks += 1
        self._went_back, self._missing = False, None

    def look_at_tail(self) -> None:
        """Read the tail again, because it may have changed."""
        self._tail_stale = True

    def on_moved(self, tail: LogTail, version: int) -> None:
        """This node has written `tail`, and knows the entries before it."""
        self.tail, self.tail_version = tail, version
        self._reader.skip_to(tail.end_offset)

    def note(self, effects: list[Effect]) -> None:
        """Update the metadata.version with records that were read, or written by this node."""
        for effect in effects:
            if isinstance(effect, Commit) and effect.reader == 0:
                self.metadata_version = metadata_version_after(effect.batch.records, self.metadata_version)
            elif isinstance(effect, LoadSnapshot) and effect.reader == 0:
                self.metadata_version = metadata_version_after(effect.snapshot.records, self.metadata_version)

    def on_missing(self) -> bool:
        """An entry before the tail is missing. True if this happens again after the tail was read again, unchanged."""
        seen = (self.tail_version, self._reader.position, sum(reader.position for reader in self._late))
        lost, self._missing = seen == self._missing, seen
        self._unsynced = self._tail_stale = True
        return lost

    # ---- requests

    def ask_ready(self) -> ZooKeeperCall | None:
        """The requests that come before all others: the sync, and the creation of the base znodes."""
        if self._unsynced:
            looks = self._looks
            return ZooKeeperCall(SyncRequest(), lambda answer: self._on_synced(answer, looks))
        if self._base_znodes:
            path, data = self._base_znodes[0]
            return ZooKeeperCall(Multi((Create(path, data),)), self._on_base_znodes)
        return None

    def ask(self) -> ZooKeeperCall | None:
        """The next read of the tail or of entries. Raises MetadataError if the log is invalid."""
        if self._tail_stale:
            self._tail_stale = False  # reset before the answer: the next watch event can arrive earlier than the answer
            return ZooKeeperCall(Get(TAIL, watch=True), self._on_tail)
        return self._reader.ask(self.tail)

    def ask_late(self, joined: list[Effect]) -> ZooKeeperCall | None:
        """The next read for later readers, once the main reader is at the end. Readers at the end join the main one."""
        for reader in list(self._late):
            if reader.position < self._reader.position:
                return reader.ask(self.tail)
            self._late.remove(reader)
            joined.append(Joined(reader.number))
        return None

    def _on_synced(self, answer: Answer, looks: int) -> list[Effect]:
        self._unsynced = not isinstance(answer, Done) or looks != self._looks
        return []

    def _on_base_znodes(self, answer: Answer) -> list[Effect]:
        if isinstance(answer, Done) or (
            isinstance(answer, RequestFailed) and answer.failure is FailureReason.NODE_EXISTS
        ):
            self._base_znodes.pop(0)
        elif isinstance(answer, RequestFailed) and answer.failure is FailureReason.NO_NODE:
            self._base_znodes = list(base_znodes())
        return []

    def _on_tail(self, answer: Answer) -> list[Effect]:
        if isinstance(answer, RequestFailed) and answer.failure is FailureReason.NO_NODE:
            raise MetadataError(
                f"{TAIL} was deleted from ZooKeeper, and the metadata log is lost with it. Restore a backup."
            )
        if not isinstance(answer, Znode):
            self._tail_stale = True
        elif answer.version < self.tail_version:
            if self._went_back:
                raise MetadataError(
                    f"{TAIL} has an older version than before: ZooKeeper was replaced by an older state."
                )
            self._went_back = self._unsynced = self._tail_stale = True
        else:
            self._went_back = False
            self.tail, self.tail_version = read_tail(answer.data), answer.version
        return []
