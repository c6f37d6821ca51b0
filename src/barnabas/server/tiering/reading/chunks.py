"""Shell: reads ranges of objects in chunks, which are kept for a while and fetched ahead.

A consumer reads a segment from front to back in small steps, and the store takes tens of milliseconds for each request.
A chunk of some megabytes serves many steps; while it is read, the next one is already fetched. Readers of the same
chunk share one request. `ChunkLimits` bounds the requests at the same time, those that wait, and the memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from msgspec import Struct

from barnabas.core.objects.ports import ObjectStore
from barnabas.core.telemetry import get_logger
from barnabas.server.tiering.errors import DamagedObjectError, RemoteStorageError, StoreUnavailableError
from barnabas.server.tiering.slots import Slots

log = get_logger("barnabas.server.tiering")

CHUNK_BYTES: Final = 4 * 1024 * 1024


class ChunkLimits(Struct, frozen=True):
    """The limits of one broker."""

    remote_log_reader_threads: int
    """The number of chunks that are fetched at the same time, at first."""
    remote_log_reader_max_pending_tasks: int
    """The number of chunks that wait to be fetched. Further reads are refused."""
    cache_bytes_max: int
    """The bytes of complete chunks that are kept."""
    chunk_bytes: int = CHUNK_BYTES
    chunks_ahead: int = 1
    """The number of chunks that are fetched ahead of a reader."""


class _Chunk(Struct, frozen=True, order=True):
    """A part of an object: the object's name, and the position of the part."""

    name: str
    position: int


class ChunkReader:
    """Reads objects. `run` must be running, because a request goes on if the reader that needed it has left."""

    def __init__(self, store: ObjectStore, limits: ChunkLimits) -> None:
        self._store = store
        self._limits = limits
        self._kept: OrderedDict[_Chunk, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._pending: dict[_Chunk, asyncio.Future[bytes]] = {}
        self._slots = Slots(limits.remote_log_reader_threads)
        self._tasks: asyncio.TaskGroup | None = None
        self._stopped = asyncio.Event()

    @property
    def kept_bytes(self) -> int:
        """The memory of the chunks that are kept."""
        return self._kept_bytes

    @property
    def waiting(self) -> int:
        """The chunks that wait to be fetched."""
        return max(len(self._pending) - self._slots.count, 0)

    def resize(self, remote_log_reader_threads: int) -> None:
        """Fetch another number of chunks at the same time."""
        self._slots.resize(remote_log_reader_threads)

    async def run(self) -> None:
        """Fetch chunks until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._stopped.wait()
        finally:
            self._tasks = None
            for future in self._pending.values():  # of tasks that were cancelled before their first step
                _fail(future, _stopping())

    async def read(self, name: str, size: int, start: int, end: int) -> bytes:
        """The bytes [start, end) of an object of `size` bytes. Raises RemoteStorageError."""
        end = min(end, size)
        step = self._limits.chunk_bytes
        first = start - start % step
        for position in range(first, min(end + self._limits.chunks_ahead * step, size), step):
            if position == first or not self._is_full:
                self._fetch(_Chunk(name, position), min(step, size - position))
        pieces: list[bytes] = []
        for position in range(first, end, step):
            data = await self._get(_Chunk(name, position), min(step, size - position))
            pieces.append(data[max(start - position, 0) : end - position])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def _is_full(self) -> bool:
        return len(self._pending) >= self._slots.count + self._limits.remote_log_reader_max_pending_tasks

    async def _get(self, chunk: _Chunk, length: int) -> bytes:
        """The data of a chunk. A chunk that was kept may have been dropped since it was requested."""
        data = self._kept.get(chunk)
        if data is not None:
            return data
        return await asyncio.shield(self._fetch(chunk, length))

    def _fetch(self, chunk: _Chunk, length: int) -> asyncio.Future[bytes]:
        """Request a chunk, unless it is there or under way."""
        data = self._kept.get(chunk)
        if data is not None:
            self._kept.move_to_end(chunk)
            done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            done.set_result(data)
            return done
        future = self._pending.get(chunk)
        if future is not None:
            return future
        if self._tasks is None:
            raise _stopping()
        if self._is_full:
            raise StoreUnavailableError(
                "Too many reads wait for the object store; the client may repeat its request. "
                "remote.log.reader.threads and remote.log.reader.max.pending.tasks are the limits."
            )
        future = self._pending[chunk] = asyncio.get_running_loop().create_future()
        self._tasks.create_task(self._load(chunk, length, future))
        return future

    async def _load(self, chunk: _Chunk, length: int, future: asyncio.Future[bytes]) -> None:
        try:
            async with self._slots:
                data = await self._store.get(chunk.name, chunk.position, chunk.position + length)
            if len(data) != length:
                raise DamagedObjectError(
                    f"The object {chunk.name} has {len(data)} of {length} bytes at {chunk.position}."
                )
            self._keep(chunk, data)
            if not future.done():
                future.set_result(data)
        except RemoteStorageError as error:
            _fail(future, error)
        except asyncio.CancelledError:
            _fail(future, _stopping())
            raise
        finally:
            del self._pending[chunk]

    def _keep(self, chunk: _Chunk, data: bytes) -> None:
        self._kept[chunk] = data
        self._kept_bytes += len(data)
        while self._kept_bytes > self._limits.cache_bytes_max and self._kept:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped)


def _fail(future: asyncio.Future[bytes], error: RemoteStorageError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # marks it as retrieved: a chunk that was fetched ahead may have no reader


def _stopping() -> StoreUnavailableError:
    return StoreUnavailableError("The broker is stopping and does not read the object store any more.")
