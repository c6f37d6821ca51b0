"""Machine: on the active controller, writes snapshots and deletes entries and snapshots that are no longer needed.

The chunks of a snapshot are written one by one; the snapshot is valid only after the tail refers to it. The entries
before a snapshot are kept until the next snapshot, so that a node that lags a little need not load a snapshot. If a
snapshot ends between two batches of one entry, this entry is kept too. Every request checks the controller's epoch.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.server.quorum.zookeeper.layout import (
    LOG,
    SNAPSHOTS,
    LogTail,
    SnapshotInfo,
    chunk_path,
    entry_offsets,
)
from barnabas.server.quorum.zookeeper.machine.effects import Effect
from barnabas.server.quorum.zookeeper.machine.lease import ControllerLease
from barnabas.server.quorum.zookeeper.machine.reader import ZooKeeperCall
from barnabas.server.quorum.zookeeper.machine.requests import (
    Answer,
    Children,
    Create,
    Delete,
    Done,
    FailureReason,
    Multi,
    Names,
    RequestFailed,
)

DELETES_AT_ONCE: Final = 100


class _SnapshotWrite(Struct):
    info: SnapshotInfo
    chunks: list[bytes]
    written: int = 0


class SnapshotUpkeep:
    """The upkeep of the log by its leader. `ask`, which is called while this node is the leader, returns the next
    request. `finished` returns the tail that publishes a written snapshot."""

    def __init__(self) -> None:
        self._job: _SnapshotWrite | None = None
        self._to_list: list[str] = []
        self._doomed: list[str] = []

    @property
    def busy(self) -> bool:
        return self._job is not None

    def begin(self, info: SnapshotInfo, chunks: list[bytes]) -> None:
        assert not self.busy
        self._job = _SnapshotWrite(info, chunks)

    def clean(self) -> None:
        """Begin to find and delete the znodes of snapshots and log entries to which the `tail` znode does not refer."""
        self._to_list = [SNAPSHOTS, LOG]

    def stop(self) -> None:
        self._job, self._to_list, self._doomed = None, [], []

    def finished(self, tail: LogTail) -> LogTail | None:
        job = self._job
        if job is None or job.written < len(job.chunks):
            return None
        if tail.snapshot == job.info:  # the answer was lost, but the tail has the snapshot
            self.published()
            return None
        start = tail.snapshot.end_offset if tail.snapshot is not None else tail.start_offset
        return replace(tail, snapshot=job.info, start_offset=max(start, tail.start_offset))

    def published(self) -> None:
        self._job = None
        self.clean()

    def ask(self, lease: ControllerLease, tail: LogTail) -> ZooKeeperCall | None:
        job = self._job
        if job is not None and job.written < len(job.chunks):
            create = Create(chunk_path(job.info.name, job.written), job.chunks[job.written])
            return ZooKeeperCall(Multi((lease.check, create)), self._on_chunk)
        if self._doomed:
            some = self._doomed[:DELETES_AT_ONCE]
            return ZooKeeperCall(
                Multi((lease.check, *map(Delete, some))), lambda answer: self._on_deleted(answer, some)
            )
        if self._to_list:
            path = self._to_list[-1]
            return ZooKeeperCall(Children(path), lambda answer: self._on_names(answer, path, tail))
        return None

    def _on_chunk(self, answer: Answer) -> list[Effect]:
        # NODE_EXISTS: this controller (the name has its epoch) wrote the chunk before the connection was lost.
        exists = isinstance(answer, RequestFailed) and answer.failure is FailureReason.NODE_EXISTS
        if self._job is not None and (isinstance(answer, Done) or exists):
            self._job.written += 1
        return []

    def _on_names(self, answer: Answer, path: str, tail: LogTail) -> list[Effect]:
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
        elif isinstance(answer, RequestFailed) and answer.failure is FailureReason.NO_NODE:
            self._doomed = []  # some were deleted before the connection was lost: list the names again
            self.clean()
        return []
