"""An in-memory disk that forgets what was not synced, fills up and fails on demand.

What is durable: a file's bytes as of its last `sync`; a name as of the last `sync_dir` of its directory. `crash()` is
kill -9 (the page cache survives), `lose_power()` keeps only what is durable, and as many unsynced bytes as asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.core.buffers import Buffer
from barnabas.storage.errors import DiskFullError, DiskIoError, FileMissingError, LogDirLockedError
from barnabas.storage.fs import Access, DiskUsage, File, FileStat, Lock

Predicate = Callable[[str], bool]


def _never(path: str) -> bool:
    return False


class _Inode:
    def __init__(self, data: bytes = b"", durable: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = durable


class _MemoryFile:
    def __init__(self, disk: MemoryDisk, path: str, inode: _Inode, access: Access) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._access = access
        self._generation = disk.generation

    def _check(self) -> None:
        assert self._generation == self._disk.generation, "a file handle outlived the crash of its process"

    def size(self) -> int:
        return len(self._inode.data)

    def read_at(self, position: int, length: int) -> bytes:
        self._check()
        if self._disk.fail_reads(self.path):
            raise DiskIoError(f"cannot read {self.path}: Input/output error")
        return bytes(self._inode.data[position : position + length])

    def try_read_at(self, position: int, length: int) -> bytes | None:
        return None if self._disk.cold else self.read_at(position, length)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        self._check()
        assert self._access is not Access.READ, f"{self.path} is open for reading"
        if self._disk.fail_writes(self.path):
            raise DiskIoError(f"cannot write {self.path}: Input/output error")
        data = b"".join(buffers)
        growth = max(position + len(data) - len(self._inode.data), 0)
        room = self._disk.free
        fitting = data if growth <= room else data[: len(data) - (growth - room)]
        if position > len(self._inode.data):
            self._inode.data.extend(bytes(position - len(self._inode.data)))
        self._inode.data[position : position + len(fitting)] = fitting
        if len(fitting) < len(data):
            raise DiskFullError(f"cannot write {self.path}: No space left on device")
        return len(data)

    def truncate(self, size: int) -> None:
        self._check()
        if self._disk.fail_truncates(self.path):
            raise DiskIoError(f"cannot truncate {self.path}: Input/output error")
        del self._inode.data[size:]

    def sync(self) -> None:
        self._check()
        self._disk.syncs.append(self.path)
        if self._disk.fail_syncs(self.path):
            raise DiskIoError(f"cannot sync {self.path}: Input/output error")
        self._inode.durable = bytes(self._inode.data)

    def close(self) -> None:
        pass


class _MemoryLock:
    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class MemoryDisk:
    """A `FileSystem`. Knobs: `capacity`, `cold` (nothing in the page cache) and the `fail_*` predicates over paths."""

    def __init__(self, capacity: int = 1 << 40) -> None:
        self.capacity = capacity
        self.cold = False
        self.fail_reads: Predicate = _never
        self.fail_writes: Predicate = _never
        self.fail_syncs: Predicate = _never
        self.fail_truncates: Predicate = _never
        self.generation = 0
        self.locks: set[str] = set()
        self.syncs: list[str] = []
        self.opened: list[str] = []
        self.now_ms = 0
        self._names: dict[str, _Inode | None] = {"/": None}  # None: a directory
        self._durable_names: dict[str, _Inode | None] = {"/": None}

    # --- the world's side

    @property
    def used(self) -> int:
        return sum(len(inode.data) for inode in set(self._names.values()) if inode is not None)

    @property
    def free(self) -> int:
        return max(self.capacity - self.used, 0)

    def crash(self) -> None:
        """kill -9: handles and locks are gone, every byte and name stays."""
        self.generation += 1
        self.locks.clear()

    def lose_power(self, unsynced_bytes_kept: int = 0) -> None:
        """Only what was synced stays, and of each longer file so many bytes more."""
        self.crash()
        names: dict[str, _Inode | None] = {}
        for path, inode in self._durable_names.items():
            if inode is None:
                names[path] = None
                continue
            kept = inode.durable
            if bytes(inode.data[: len(kept)]) == kept:
                kept = bytes(inode.data[: len(kept) + unsynced_bytes_kept])
            names[path] = _Inode(kept, kept)
        self._names = names
        self._durable_names = dict(names)

    def data(self, path: str) -> bytearray:
        """The bytes of a file, to look at or to damage."""
        inode = self._names[path]
        assert inode is not None
        return inode.data

    def put(self, path: str, data: bytes) -> None:
        """A file that was always there."""
        self._names[path] = self._durable_names[path] = _Inode(data, data)

    def files(self, directory: str) -> dict[str, bytes]:
        """name -> bytes."""
        return {name: bytes(self.data(f"{directory}/{name}")) for name in self.listdir(directory)}

    def clone(self) -> MemoryDisk:
        """The same contents on another disk."""
        twin = MemoryDisk(self.capacity)
        copies = {id(i): _Inode(bytes(i.data), i.durable) for i in self._names.values() if i is not None}
        twin._names = {p: None if i is None else copies[id(i)] for p, i in self._names.items()}
        twin._durable_names = dict(twin._names)
        return twin

    # --- the log's side

    def open(self, path: str, access: Access) -> File:
        inode = self._names.get(path)
        if inode is None:
            if access is Access.READ:
                raise FileMissingError(f"cannot open {path}: it does not exist")
            if path.rpartition("/")[0] not in self._names:
                raise FileMissingError(f"cannot open {path}: its directory does not exist")
            inode = self._names[path] = _Inode()
        elif access is Access.REPLACE:
            inode.data.clear()
        self.opened.append(path)
        return _MemoryFile(self, path, inode, access)

    def listdir(self, path: str) -> list[str]:
        if path not in self._names:
            raise FileMissingError(f"cannot list {path}: it does not exist")
        prefix = path + "/"
        return sorted(p[len(prefix) :] for p in self._names if p.startswith(prefix) and "/" not in p[len(prefix) :])

    def stat(self, path: str) -> FileStat:
        if path not in self._names:
            raise FileMissingError(f"cannot stat {path}: it does not exist")
        inode = self._names[path]
        return FileStat(0 if inode is None else len(inode.data), self.now_ms, inode is None)

    def exists(self, path: str) -> bool:
        return path in self._names

    def mkdir(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for i in range(1, len(parts) + 1):
            self._names.setdefault("/" + "/".join(parts[:i]), None)

    def rename(self, source: str, target: str) -> None:
        if source not in self._names:
            raise FileMissingError(f"cannot rename {source}: it does not exist")
        for path in [p for p in self._names if p == source or p.startswith(source + "/")]:
            self._names[target + path[len(source) :]] = self._names.pop(path)

    def unlink(self, path: str) -> None:
        self._names.pop(path, None)

    def rmtree(self, path: str) -> None:
        for name in [p for p in self._names if p == path or p.startswith(path + "/")]:
            del self._names[name]

    def sync_dir(self, path: str) -> None:
        self.syncs.append(path)
        if self.fail_syncs(path):
            raise DiskIoError(f"cannot sync directory {path}: Input/output error")
        here = {p for p in {*self._names, *self._durable_names} if p.rpartition("/")[0] == path}
        for name in here:
            if name in self._names:
                self._durable_names[name] = self._names[name]
            else:
                for gone in [p for p in self._durable_names if p == name or p.startswith(name + "/")]:
                    del self._durable_names[gone]

    def lock(self, path: str) -> Lock:
        if path in self.locks:
            raise LogDirLockedError(f"{path} is locked")
        self._names.setdefault(path, _Inode())
        self.locks.add(path)
        return _MemoryLock(self, path)

    def disk_usage(self, path: str) -> DiskUsage:
        return DiskUsage(self.capacity, self.free)
