"""Shell: stores metadata snapshots on the disk; implements `SnapshotStorage` of the raft package.

    <offset>-<epoch>.checkpoint          a complete, durable snapshot
    <offset>-<epoch>.checkpoint.part     the pieces fetched from the leader so far
    <offset>-<epoch>.checkpoint.tmp      a snapshot that this node is writing

To write a snapshot, or to check a fetched one, takes time proportional to the cluster's metadata, so both run in the
executor. The contents of the last fetched snapshot are kept in memory until the listeners have been notified of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, TypeVar

from barnabas.core.buffers import Buffer
from barnabas.core.telemetry import get_logger
from barnabas.server.metadata.ports import LoadedSnapshot
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.quorum.snapshot_files import (
    SnapshotContents,
    SnapshotDamagedError,
    formatted_contents,
    list_snapshots,
    load_snapshot,
    name_of,
    render_snapshot,
)
from barnabas.server.raft.machine.values import OffsetAndEpoch, Voters
from barnabas.server.storage.errors import FileMissingError, StorageError
from barnabas.server.storage.fs import Access, File, FileSystem

log = get_logger("barnabas.server.node")

T = TypeVar("T")
FETCHED: Final = ".part"
TAKEN: Final = ".tmp"


class SnapshotStore:
    """All snapshots of one directory."""

    def __init__(self, fs: FileSystem, path: str, executor: Executor, *, fsync: bool = True) -> None:
        self._fs = fs
        self._path = path
        self._executor = executor
        self._fsync = fsync
        self._running: set[asyncio.Future[Any]] = set()
        self._part: tuple[OffsetAndEpoch, File] | None = None
        self._fetched: tuple[OffsetAndEpoch, SnapshotContents] | None = None
        self._loaded: tuple[OffsetAndEpoch, SnapshotContents] | None = None
        self.damaged: list[tuple[OffsetAndEpoch, str]] = []
        """The damaged snapshots that `complete_snapshots` has found last, each with the reason."""
        for name in fs.listdir(path):
            if name.endswith((f".checkpoint{FETCHED}", f".checkpoint{TAKEN}")):
                fs.unlink(f"{path}/{name}")

    # ---- snapshots on the disk

    def complete_snapshots(self) -> Iterator[tuple[OffsetAndEpoch, SnapshotContents]]:
        """All complete snapshots, newest first. Damaged snapshots are logged and added to `damaged`."""
        self.damaged = []
        for snapshot_id in reversed(list_snapshots(self._fs, self._path)):
            try:
                contents = load_snapshot(self._fs, self._path, name_of(snapshot_id))
            except SnapshotDamagedError as error:
                log.error(
                    "a metadata snapshot is damaged; an older snapshot and the log are used if they have all records. "
                    "Check the disk, and delete the file",
                    file=f"{self._path}/{name_of(snapshot_id)}", reason=str(error),
                )  # fmt: skip
                self.damaged.append((snapshot_id, str(error)))
                continue
            self._loaded = self._loaded or (snapshot_id, contents)
            yield snapshot_id, contents

    def formatted(self) -> SnapshotContents:
        """The snapshot that Kafka's `format` wrote for a new log; empty if there is none."""
        return formatted_contents(self._fs, self._path)

    def load(self, snapshot_id: OffsetAndEpoch) -> LoadedSnapshot:
        """The contents of a snapshot, for the listeners. Raises SnapshotDamagedError, StorageError."""
        for known in (self._fetched, self._loaded):
            if known is not None and known[0] == snapshot_id:
                contents = known[1]
                break
        else:
            contents = load_snapshot(self._fs, self._path, name_of(snapshot_id))
        self.forget()
        return contents.loaded(snapshot_id)

    def forget(self) -> None:
        """Release the contents that were kept in memory."""
        self._fetched = self._loaded = None

    async def settled(self) -> None:
        """Wait until no snapshot is being written or checked. A replica that was stopped may have started one."""
        if self._running:
            await asyncio.wait(self._running)

    def drop_before(self, snapshot_id: OffsetAndEpoch) -> OffsetAndEpoch | None:
        """Delete the snapshots before `snapshot_id` except the newest of them, which is returned."""
        older = [found for found in list_snapshots(self._fs, self._path) if found.offset < snapshot_id.offset]
        for found in older[:-1]:
            self._fs.unlink(f"{self._path}/{name_of(found)}")
        return older[-1] if older else None

    def drop_all_but(self, snapshot_id: OffsetAndEpoch) -> None:
        for found in list_snapshots(self._fs, self._path):
            if found != snapshot_id:
                self._fs.unlink(f"{self._path}/{name_of(found)}")

    # ---- SnapshotStorage

    def write(self, snapshot_id: OffsetAndEpoch, position: int, data: Buffer) -> None:
        part = self._part
        if part is None or part[0] != snapshot_id or position == 0:
            self._drop_part()
            file = self._fs.open(f"{self._path}/{name_of(snapshot_id)}{FETCHED}", Access.REPLACE)
            part = self._part = (snapshot_id, file)
        part[1].write_at(position, [data])

    async def finish(self, snapshot_id: OffsetAndEpoch) -> tuple[int, Voters | None]:
        """Check and rename the fetched snapshot. Returns (kraft.version, voters).

        Raises SnapshotDamagedError if the pieces are not a complete snapshot.
        """
        part, self._part = self._part, None
        assert part is not None and part[0] == snapshot_id, "finish() without write() of this snapshot"
        contents = await self._run(partial(self._finish, name_of(snapshot_id), part[1]))
        self._fetched = (snapshot_id, contents)
        return contents.kraft_version, contents.voters

    def read(self, snapshot_id: OffsetAndEpoch, position: int, bytes_max: int) -> tuple[int, Buffer] | None:
        try:
            file = self._fs.open(f"{self._path}/{name_of(snapshot_id)}", Access.READ)
        except FileMissingError:
            return None
        try:
            return file.size(), file.read_at(position, bytes_max)
        finally:
            file.close()

    # ---- snapshots of this node's own state

    async def store(
        self,
        snapshot_id: OffsetAndEpoch,
        records: Iterable[MetadataRecord],
        *,
        timestamp_ms: int,
        metadata_version: int,
        kraft_version: int,
        voters: Voters | None,
    ) -> None:
        """Write a snapshot, which is durable on return. The executor iterates over `records`; they must not change."""
        pieces = render_snapshot(
            records,
            epoch=snapshot_id.epoch,
            timestamp_ms=timestamp_ms,
            metadata_version=metadata_version,
            kraft_version=kraft_version,
            voters=voters,
        )
        await self._run(partial(self._store, name_of(snapshot_id), pieces))

    # ---- in the executor

    def _store(self, name: str, pieces: Iterable[Buffer]) -> None:
        temporary = f"{self._path}/{name}{TAKEN}"
        file = self._fs.open(temporary, Access.REPLACE)
        try:
            position = 0
            for piece in pieces:
                position += file.write_at(position, [piece])
            if self._fsync:
                file.sync()
        except StorageError:
            file.close()
            with contextlib.suppress(StorageError):
                self._fs.unlink(temporary)
            raise
        file.close()
        self._name(temporary, name)

    def _finish(self, name: str, file: File) -> SnapshotContents:
        temporary = f"{self._path}/{name}{FETCHED}"
        try:
            if self._fsync:
                file.sync()
        finally:
            file.close()
        contents = load_snapshot(self._fs, self._path, f"{name}{FETCHED}")
        self._name(temporary, name)
        return contents

    def _name(self, temporary: str, name: str) -> None:
        self._fs.rename(temporary, f"{self._path}/{name}")
        if self._fsync:
            self._fs.sync_dir(self._path)

    # ---- inside

    async def _run(self, job: partial[T]) -> T:
        running = asyncio.get_running_loop().run_in_executor(self._executor, job)
        self._running.add(running)
        running.add_done_callback(self._on_done)
        return await asyncio.shield(running)

    def _on_done(self, job: asyncio.Future[Any]) -> None:
        self._running.discard(job)
        if not job.cancelled():
            job.exception()  # marks the exception as retrieved, in case the caller was cancelled

    def _drop_part(self) -> None:
        if self._part is not None:
            snapshot_id, file = self._part
            self._part = None
            file.close()
            self._fs.unlink(f"{self._path}/{name_of(snapshot_id)}{FETCHED}")
