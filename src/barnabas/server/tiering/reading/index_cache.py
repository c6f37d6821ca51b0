"""Shell: keeps indexes of remote segments on local disk (Kafka's RemoteIndexCache).

The files are copies, so they are neither synced nor kept over a restart. A local disk that fails costs only the copy:
the index is then fetched again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import Executor
from typing import Final

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.ids import uuid_to_text
from barnabas.core.objects.ports import ObjectStore
from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.log_files import OFFSET_INDEX
from barnabas.server.storage.errors import FileMissingError, StorageError
from barnabas.server.storage.fs import FileSystem, read_file, replace_file
from barnabas.server.tiering.errors import ObjectMissingError
from barnabas.server.tiering.store.names import object_name
from barnabas.server.tiering.values import RemoteSegment

log = get_logger("barnabas.server.tiering")

DIRECTORY: Final = "remote-log-index-cache"
"""The name of the directory in a data directory; Kafka uses the same one."""


class IndexCacheConfig(Struct, frozen=True):
    """The limits, by the names of their broker configs."""

    remote_log_index_file_cache_total_size_bytes: int
    remote_log_index_file_cache_ttl_ms: int


class _Entry(Struct):
    size: int
    used_ms: int


class IndexCache:
    """Index files by segment and kind. `directory` is emptied at the start."""

    def __init__(
        self,
        store: ObjectStore,
        fs: FileSystem,
        directory: str,
        disk: Executor,
        clock: Clock,
        config: IndexCacheConfig,
        *,
        prefix: str = "",
    ) -> None:
        self._store = store
        self._fs = fs
        self._directory = directory
        self._disk = disk
        self._clock = clock
        self._config = config
        self._prefix = prefix
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._loading: dict[str, asyncio.Lock] = {}
        self.size_bytes = 0
        """The size of all files."""

    async def reconfigure(self, config: IndexCacheConfig) -> None:
        """The dynamic configs have changed. Files beyond a lower limit are deleted at once."""
        self._config = config
        await self._shrink()

    def prepare(self) -> None:
        """Delete what an earlier process has left, and create the directory. Raises StorageError."""
        self._fs.rmtree(self._directory)
        self._fs.mkdir(self._directory)

    async def get(self, segment: RemoteSegment, suffix: str = OFFSET_INDEX) -> bytes:
        """The bytes of an index. Raises RemoteStorageError."""
        name = f"{segment.start_offset}_{uuid_to_text(segment.id.id)}{suffix}"
        lock = self._loading.setdefault(name, asyncio.Lock())
        try:
            async with lock:  # several readers of a segment share one request
                data = await self._read(name)
                if data is None:
                    data = await self._store.read(object_name(segment, suffix, self._prefix))
                    await self._write(name, data)
                return data
        finally:
            if not lock.locked():
                self._loading.pop(name, None)

    async def get_optional(self, segment: RemoteSegment, suffix: str) -> bytes:
        """Like `get`; empty if the store does not have the object."""
        try:
            return await self.get(segment, suffix)
        except ObjectMissingError:
            return b""

    async def _read(self, name: str) -> bytes | None:
        entry = self._entries.get(name)
        if entry is None:
            return None
        entry.used_ms = self._clock.now_ms()
        self._entries.move_to_end(name)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._disk, read_file, self._fs, f"{self._directory}/{name}")
        except StorageError as error:
            if not isinstance(error, FileMissingError):  # otherwise the entry has been dropped meanwhile
                log.warning("a kept index of a remote segment cannot be read", file=name, reason=str(error))
            self._forget(name)
            return None

    async def _write(self, name: str, data: bytes) -> None:
        def write() -> None:
            replace_file(self._fs, f"{self._directory}/{name}", data, durable=False)

        try:
            await asyncio.get_running_loop().run_in_executor(self._disk, write)
        except StorageError as error:
            log.warning("an index of a remote segment cannot be kept", file=name, reason=str(error))
            return
        self._forget(name)  # another reader may have written the file meanwhile
        self._entries[name] = _Entry(len(data), self._clock.now_ms())
        self.size_bytes += len(data)
        await self._shrink()

    async def _shrink(self) -> None:
        """Delete the files that were used the longest ago: those beyond the limit, and those that are too old."""
        config = self._config
        oldest_ms = self._clock.now_ms() - config.remote_log_index_file_cache_ttl_ms
        dropped = []
        for name, entry in list(self._entries.items()):
            too_old = config.remote_log_index_file_cache_ttl_ms >= 0 and entry.used_ms < oldest_ms
            if not too_old and self.size_bytes <= config.remote_log_index_file_cache_total_size_bytes:
                break
            self._forget(name)
            dropped.append(name)
        if dropped:
            await asyncio.get_running_loop().run_in_executor(self._disk, self._unlink, dropped)

    def _unlink(self, names: list[str]) -> None:
        for name in names:
            try:
                self._fs.unlink(f"{self._directory}/{name}")
            except StorageError as error:
                log.warning("a kept index of a remote segment cannot be deleted", file=name, reason=str(error))

    def _forget(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            self.size_bytes -= entry.size
