"""Shell: an object store in a directory, such as a mounted network file system.

An object is written under a temporary name, synced, and renamed. A temporary file that a crash leaves is listed under
its own name, which ends with `.upload`. It can be deleted by this name, and the next `delete` of the object removes it,
too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from barnabas.core.buffers import Buffer
from barnabas.core.objects.ports import StoredObject
from barnabas.server.storage.errors import FileMissingError, StorageError
from barnabas.server.storage.fs import Access, File, FileSystem, read_file
from barnabas.server.tiering.errors import ObjectMissingError, StoreUnavailableError

T = TypeVar("T")

_TEMPORARY: Final = ".upload"


class FileObjectStore:
    """Objects as files below `root`, an absolute path. Files are read and written in `executor`."""

    def __init__(self, fs: FileSystem, root: str, executor: Executor) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self._executor = executor

    async def put(self, name: str, parts: AsyncIterator[Buffer]) -> None:
        path = self._path(name)
        temporary = path + _TEMPORARY
        file = await self._run(name, lambda: self._create(temporary))
        try:
            position = 0
            async for part in parts:
                position += await self._run(name, file.write_at, position, (part,))
            await self._run(name, file.sync)
        finally:
            with contextlib.suppress(StorageError):
                file.close()
        await self._run(name, lambda: self._publish(temporary, path))

    def _create(self, temporary: str) -> File:
        self._fs.mkdir(temporary.rpartition("/")[0])
        return self._fs.open(temporary, Access.REPLACE)

    def _publish(self, temporary: str, path: str) -> None:
        """Rename the file, and make its name and those of its directories durable."""
        self._fs.rename(temporary, path)
        directory = path
        while directory != self._root:
            directory = directory.rpartition("/")[0]
            self._fs.sync_dir(directory)

    async def get(self, name: str, start: int, end: int) -> bytes:
        return await self._run(name, lambda: self._read(self._path(name), start, end))

    def _read(self, path: str, start: int, end: int) -> bytes:
        file = self._fs.open(path, Access.READ)
        try:
            return file.read_at(start, end - start)
        finally:
            file.close()

    async def read(self, name: str) -> bytes:
        return await self._run(name, read_file, self._fs, self._path(name))

    async def size(self, name: str) -> int:
        return await self._run(name, lambda: self._fs.stat(self._path(name)).size)

    async def delete(self, name: str) -> None:
        await self._run(name, lambda: self._unlink(self._path(name)))

    def _unlink(self, path: str) -> None:
        with contextlib.suppress(FileMissingError):  # the directory does not exist
            self._fs.unlink(path + _TEMPORARY)
            self._fs.unlink(path)

    async def objects(self, prefix: str) -> AsyncIterator[StoredObject]:
        directories = [prefix.rstrip("/")]
        while directories:
            directory = directories.pop()
            found, inner = await self._run(directory, lambda directory=directory: self._listed(directory))
            directories += inner
            for entry in found:
                yield entry

    def _listed(self, directory: str) -> tuple[list[StoredObject], list[str]]:
        """The objects of a directory, and the directories in it."""
        path = self._path(directory) if directory else self._root
        found: list[StoredObject] = []
        inner: list[str] = []
        names = self._fs.listdir(path) if self._fs.exists(path) else []
        for name in sorted(names):
            inside = f"{directory}/{name}" if directory else name
            stat = self._fs.stat(self._path(inside))
            if stat.is_dir:
                inner.append(inside)
            else:
                found.append(StoredObject(inside, stat.size))
        return found, inner

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    async def _run(self, name: str, call: Callable[..., T], *arguments: object) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, call, *arguments)
        except FileMissingError as error:
            raise ObjectMissingError(f"The object {name} does not exist in {self._root}.") from error
        except StorageError as error:
            raise StoreUnavailableError(f"The object store failed at {name}: {error}") from error
