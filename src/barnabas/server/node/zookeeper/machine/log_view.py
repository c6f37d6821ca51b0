"""Machine: what this node knows of the log: its tail, and everything before it, read in order.

After every connection what was known may be old: sync, look at the tail, read on. While this node leads it moves the
tail itself, and takes note of it here.
"""

from __future__ import annotations

from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.records.codec import LATEST_METADATA_VERSION
from barnabas.server.node.zookeeper.entries import metadata_version_after
from barnabas.server.node.zookeeper.layout import TAIL, Tail, read_tail, skeleton
from barnabas.server.node.zookeeper.machine.effects import Commit, Effect, Joined, LoadSnapshot
from barnabas.server.node.zookeeper.machine.reader import Ask, Reader
from barnabas.server.node.zookeeper.machine.requests import (
    Answer,
    Create,
    Done,
    Failed,
    Failure,
    Get,
    Multi,
    Sync,
    Znode,
)


class LogView:
    """`ask_ready`, then `ask` give what to read next; None when everything is known as far as the tail goes."""

    def __init__(self) -> None:
        self.tail = Tail()
        self.tail_version = -1
        self.metadata_version = LATEST_METADATA_VERSION
        """As the log has it that was read."""
        self._unsynced = True
        self._looks = 0
        """Counts the calls of `look_again`: what was asked before the last one was answered by another server."""
        self._skeleton = list(skeleton())
        self._tail_stale = True
        self._went_back = False
        self._missing: tuple[int, int, int] | None = None
        self._reader = Reader(0)
        self._late: list[Reader] = []
        self._readers = 0

    @property
    def position(self) -> int:
        """The end of what was read."""
        return self._reader.position

    @property
    def at_end(self) -> bool:
        """As far as this node knows."""
        known = not (self._unsynced or self._tail_stale or self._skeleton)
        return known and self._reader.is_at_end(self.tail)

    def add_reader(self) -> int:
        """Read all of the log once more, for those who came later."""
        self._readers += 1
        self._late.append(Reader(self._readers))
        return self._readers

    # ---- what happens

    def look_again(self) -> None:
        """After a new connection: what this node knows, and what its server knows, may be old."""
        self._unsynced = self._tail_stale = True
        self._looks += 1
        self._went_back, self._missing = False, None

    def look_at_tail(self) -> None:
        """It has changed, or may have."""
        self._tail_stale = True

    def on_moved(self, tail: Tail, version: int) -> None:
        """This node has moved the tail, and knows what lies before it."""
        self.tail, self.tail_version = tail, version
        self._reader.skip_to(tail.end_offset)

    def note(self, effects: list[Effect]) -> None:
        """What was read, or written by this node."""
        for effect in effects:
            if isinstance(effect, Commit) and effect.reader == 0:
                self.metadata_version = metadata_version_after(effect.batch.records, self.metadata_version)
            elif isinstance(effect, LoadSnapshot) and effect.reader == 0:
                self.metadata_version = metadata_version_after(effect.snapshot.records, self.metadata_version)

    def on_missing(self) -> bool:
        """Something that the tail counts is not there. True if the tail was read anew since, and says the same."""
        seen = (self.tail_version, self._reader.position, sum(reader.position for reader in self._late))
        lost, self._missing = seen == self._missing, seen
        self._unsynced = self._tail_stale = True
        return lost

    # ---- what to do

    def ask_ready(self) -> Ask | None:
        """Before anything else."""
        if self._unsynced:
            looks = self._looks
            return Ask(Sync(), lambda answer: self._on_synced(answer, looks))
        if self._skeleton:
            path, data = self._skeleton[0]
            return Ask(Multi((Create(path, data),)), self._on_skeleton)
        return None

    def ask(self) -> Ask | None:
        """Raises MetadataError when the log holds what cannot be."""
        if self._tail_stale:
            self._tail_stale = False  # now, not with the answer: a change may be told before it
            return Ask(Get(TAIL, watch=True), self._on_tail)
        return self._reader.ask(self.tail)

    def ask_late(self, joined: list[Effect]) -> Ask | None:
        """For readers that came later, once the first one is at the end. Those that are there, too, join it."""
        for reader in list(self._late):
            if reader.position < self._reader.position:
                return reader.ask(self.tail)
            self._late.remove(reader)
            joined.append(Joined(reader.number))
        return None

    def _on_synced(self, answer: Answer, looks: int) -> list[Effect]:
        self._unsynced = not isinstance(answer, Done) or looks != self._looks
        return []

    def _on_skeleton(self, answer: Answer) -> list[Effect]:
        if isinstance(answer, Done) or (isinstance(answer, Failed) and answer.failure is Failure.NODE_EXISTS):
            self._skeleton.pop(0)
        elif isinstance(answer, Failed) and answer.failure is Failure.NO_NODE:
            self._skeleton = list(skeleton())
        return []

    def _on_tail(self, answer: Answer) -> list[Effect]:
        if isinstance(answer, Failed) and answer.failure is Failure.NO_NODE:
            raise MetadataError(f"{TAIL} was removed from ZooKeeper: the metadata log is lost without it.")
        if not isinstance(answer, Znode):
            self._tail_stale = True
        elif answer.version < self.tail_version:
            if self._went_back:
                raise MetadataError(f"{TAIL} has gone back in ZooKeeper: it was replaced by an older state.")
            self._went_back = self._unsynced = self._tail_stale = True
        else:
            self._went_back = False
            self.tail, self.tail_version = read_tail(answer.data), answer.version
        return []
