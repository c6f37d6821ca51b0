"""Machine: writes snapshots, and removes what they have made superfluous. Only the active controller does.

A snapshot's chunks are written one by one, and count for nothing until the tail names it. The entries that it replaces
stay until the next one, so that a node that lags a little need not load it. A snapshot may end between two batches of
one entry, which then stays as well. Every step checks the controller's epoch.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.server.node.zookeeper.layout import (
    LOG,
    SNAPSHOTS,
    SnapshotInfo,
    Tail,
    chunk_path,
    entry_offsets,
)
from barnabas.server.node.zookeeper.machine.effects import Effect
from barnabas.server.node.zookeeper.machine.office import Office
from barnabas.server.node.zookeeper.machine.reader import Ask
from barnabas.server.node.zookeeper.machine.requests import (
    Answer,
    Children,
    Create,
    Delete,
    Done,
    Failed,
    Failure,
    Multi,
    Names,
)

DELETES_AT_ONCE: Final = 100


class _Job(Struct):
    info: SnapshotInfo
    chunks: list[bytes]
    written: int = 0


class SnapshotUpkeep:
    """`ask` while the office lasts; `finished` gives the tail that publishes a snapshot whose chunks are all there."""

    def __init__(self) -> None:
        self._job: _Job | None = None
        self._to_list: list[str] = []
        self._doomed: list[str] = []

    @property
    def busy(self) -> bool:
        return self._job is not None

    def begin(self, info: SnapshotInfo, chunks: list[bytes]) -> None:
        assert not self.busy
        self._job = _Job(info, chunks)

    def clean(self) -> None:
        """Look for what the tail does not count any more."""
        self._to_list = [SNAPSHOTS, LOG]

    def stop(self) -> None:
        self._job, self._to_list, self._doomed = None, [], []

    def finished(self, tail: Tail) -> Tail | None:
        job = self._job
        if job is None or job.written < len(job.chunks):
            return None
        if tail.snapshot == job.info:  # the answer was lost, and the tail has told
            self.published()
            return None
        start = tail.snapshot.end_offset if tail.snapshot is not None else tail.start_offset
        return replace(tail, snapshot=job.info, start_offset=max(start, tail.start_offset))

    def published(self) -> None:
        self._job = None
        self.clean()

    def ask(self, office: Office, tail: Tail) -> Ask | None:
        job = self._job
        if job is not None and job.written < len(job.chunks):
            create = Create(chunk_path(job.info.name, job.written), job.chunks[job.written])
            return Ask(Multi((office.check, create)), self._on_chunk)
        if self._doomed:
            some = self._doomed[:DELETES_AT_ONCE]
            return Ask(Multi((office.check, *map(Delete, some))), lambda answer: self._on_deleted(answer, some))
        if self._to_list:
            path = self._to_list[-1]
            return Ask(Children(path), lambda answer: self._on_names(answer, path, tail))
        return None

    def _on_chunk(self, answer: Answer) -> list[Effect]:
        # NODE_EXISTS: written before the connection was lost, by this controller: the name has its epoch.
        exists = isinstance(answer, Failed) and answer.failure is Failure.NODE_EXISTS
        if self._job is not None and (isinstance(answer, Done) or exists):
            self._job.written += 1
        return []

    def _on_names(self, answer: Answer, path: str, tail: Tail) -> list[Effect]:
        if not isinstance(answer, Names) or path not in self._to_list:
            return []
        self._to_list.remove(path)
        if path == LOG:
            kept_from = max((at for at in entry_offsets(answer.names) if at <= tail.start_offset), default=0)
            doomed = [name for name in answer.names if int(name[:20]) < kept_from]
        else:
            kept = tail.snapshot.name if tail.snapshot is not None else ""
            doomed = [name for name in answer.names if not name.startswith(f"{kept}-")]
        self._doomed += [f"{path}/{name}" for name in sorted(doomed)]
        return []

    def _on_deleted(self, answer: Answer, names: list[str]) -> list[Effect]:
        if isinstance(answer, Done):
            self._doomed = self._doomed[len(names) :]
        elif isinstance(answer, Failed) and answer.failure is Failure.NO_NODE:
            self._doomed = []  # some were deleted before the connection was lost: look again
            self.clean()
        return []
