"""Shell: a disk in memory that loses unsynced data, fills up and fails on demand. Implements `storage.fs.FileSystem`.

As the port defines, a file's bytes are durable as of its last `sync`, and a name as of the last `sync_dir` of its
directory. `crash()` is kill -9: the page cache survives. `lose_power()` keeps the durable data, and a part of the other
data that a real disk may have written by itself: a prefix, or some sectors with zeros between them. The caller or the
random generator chooses that part.

Tests control the disk with `capacity`, `cold` (the page cache is empty) and the `fail_*` predicates over paths. A
process uses a `mount`, which stops working at the next crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.core.buffers import Buffer
from barnabas.core.rng import Rng
from barnabas.server.storage.errors import (
    DescriptorsExhaustedError,
    DiskFullError,
    DiskIoError,
    FileMissingError,
    LogDirLockedError,
)
from barnabas.server.storage.fs import Access, DiskUsage, File, FileStat, FileSystem, Lock
from barnabas.testing.sim.platter import Inode, left_by_chance, left_of

Predicate = Callable[[str], bool]


def never(path: str) -> bool:
    """The predicate that no path fulfils."""
    return False


class MemoryFile:
    def __init__(self, disk: MemoryDisk, path: str, inode: Inode, access: Access) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._access = access
        self._generation = disk.generation
        self._closed = False

    def _check(self) -> None:
        assert self._generation == self._disk.generation, "a file handle outlived the crash of its process"
        assert not self._closed, f"{self.path} is used after it was closed"

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
        disk, inode = self._disk, self._inode
        if disk.fail_writes(self.path):
            raise DiskIoError(f"cannot write {self.path}: Input/output error")
        data = b"".join(buffers)
        before = len(inode.data)
        growth = max(position + len(data) - before, 0)
        room = disk.free
        fitting = data if growth <= room else data[: len(data) - (growth - room)]
        inode.before_change(position)
        inode.mtime_ms = disk.time_ms()
        if position > before:
            inode.data.extend(bytes(position - before))
        inode.data[position : position + len(fitting)] = fitting
        disk.used += len(inode.data) - before
        if len(fitting) < len(data):
            raise DiskFullError(f"cannot write {self.path}: No space left on device")
        return len(data)

    def truncate(self, size: int) -> None:
        self._check()
        if self._disk.fail_truncates(self.path):
            raise DiskIoError(f"cannot truncate {self.path}: Input/output error")
        inode = self._inode
        inode.before_change(size)
        self._disk.used -= max(len(inode.data) - size, 0)
        del inode.data[size:]

    def sync(self) -> None:
        self._check()
        self._disk.syncs.append(self.path)
        if self._disk.fail_syncs(self.path):
            raise DiskIoError(f"cannot sync {self.path}: Input/output error")
        self._inode.sync()

    def close(self) -> None:
        self._closed = True


class _MemoryLock:
    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class MemoryDisk:
    """One disk. The disk survives the processes that use it."""

    def __init__(self, capacity: int = 1 << 40) -> None:
        self.capacity = capacity
        self.used = 0
        self.cold = False
        self.fail_reads: Predicate = never
        self.fail_writes: Predicate = never
        self.fail_syncs: Predicate = never
        self.fail_truncates: Predicate = never
        self.lacks_descriptors: Predicate = never
        """Paths that cannot be opened, listed or synced by name, as if the process had no file descriptor left."""
        self.generation = 0
        """The number of crashes so far."""
        self.locks: set[str] = set()
        self.syncs: list[str] = []
        self.opened: list[str] = []
        self.now_ms = 0
        self.wall: Callable[[], int] | None = None
        """The clock for modification times; None uses `now_ms`."""
        self._names: dict[str, Inode | None] = {"/": None}  # None: a directory
        self._durable_names: dict[str, Inode | None] = {"/": None}

    # --- the world's side

    @property
    def free(self) -> int:
        return max(self.capacity - self.used, 0)

    def time_ms(self) -> int:
        return self.now_ms if self.wall is None else self.wall()

    def mount(self) -> FileSystem:
        """The file system for one process."""
        return Mount(self)

    def crash(self) -> None:
        """The effect of kill -9: all handles and locks are released; all bytes and names stay."""
        self.generation += 1
        self.locks.clear()

    def lose_power(self, unsynced_bytes_kept: int = 0, *, rng: Rng | None = None) -> None:
        """The effect of a power cut: synced bytes stay, and `unsynced_bytes_kept` further bytes of each file.

        With `rng` the unsynced data that stays is random, and names may have become durable without `sync_dir`, as by
        the commit of a file system's journal.
        """
        self.crash()
        source = self._durable_names
        if rng is not None and rng.random() < 0.5:
            source = self._names
        names: dict[str, Inode | None] = {}
        kept_inodes: dict[int, Inode] = {}
        for path in sorted(source):
            inode = source[path]
            if inode is None:
                names[path] = None
                continue
            if id(inode) not in kept_inodes:
                kept = left_of(inode, unsynced_bytes_kept) if rng is None else left_by_chance(inode, rng)
                kept_inodes[id(inode)] = Inode(kept)
            names[path] = kept_inodes[id(inode)]
        self._names = names
        self._durable_names = dict(names)
        self._measure()

    def wipe(self, directory: str) -> None:
        """Replaces the directory by an empty one."""
        for names in (self._names, self._durable_names):
            for path in [path for path in names if path.startswith(f"{directory}/")]:
                del names[path]
        self._measure()

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Flips a bit of a file, in the page cache and on the platter."""
        inode = self._names[path]
        assert inode is not None
        inode.data[position] ^= 1 << bit
        if inode.shadow is not None and position < len(inode.shadow):
            damaged = bytearray(inode.shadow)
            damaged[position] ^= 1 << bit
            inode.shadow = bytes(damaged)

    def data(self, path: str) -> bytearray:
        """The bytes of a file in the page cache. The caller may change them."""
        inode = self._names[path]
        assert inode is not None
        return inode.data

    def put(self, path: str, data: bytes) -> None:
        """Creates a file whose bytes and name are durable."""
        self._names[path] = self._durable_names[path] = Inode(data)
        self._measure()

    def files(self, directory: str) -> dict[str, bytes]:
        """The files of a directory, as a mapping from name to bytes."""
        return {name: bytes(self.data(f"{directory}/{name}")) for name in self.listdir(directory)}

    def paths(self) -> list[str]:
        """The paths of all files, sorted."""
        return sorted(path for path, inode in self._names.items() if inode is not None)

    def clone(self) -> MemoryDisk:
        """Another disk with the same contents."""
        twin = MemoryDisk(self.capacity)
        copies: dict[int, Inode] = {}
        for inode in self._names.values():
            if inode is not None:
                copies[id(inode)] = copy = Inode(bytes(inode.data))
                copy.synced, copy.shadow = inode.synced, inode.shadow
        twin._names = {p: None if i is None else copies[id(i)] for p, i in self._names.items()}
        twin._durable_names = dict(twin._names)
        twin._measure()
        return twin

    def _measure(self) -> None:
        self.used = sum(len(inode.data) for inode in self._names.values() if inode is not None)

    # --- the log's side

    def _take_descriptor(self, what: str, path: str) -> None:
        if self.lacks_descriptors(path):
            raise DescriptorsExhaustedError(f"cannot {what} {path}: Too many open files")

    def open(self, path: str, access: Access) -> File:
        self._take_descriptor("open", path)
        inode = self._names.get(path)
        if inode is None:
            if access is Access.READ:
                raise FileMissingError(f"cannot open {path}: it does not exist")
            if path.rpartition("/")[0] not in self._names:
                raise FileMissingError(f"cannot open {path}: its directory does not exist")
            inode = self._names[path] = Inode()
            inode.mtime_ms = self.time_ms()
        elif access is Access.REPLACE:
            inode.before_change(0)
            self.used -= len(inode.data)
            inode.data.clear()
        self.opened.append(path)
        return MemoryFile(self, path, inode, access)

    def listdir(self, path: str) -> list[str]:
        self._take_descriptor("list", path)
        if path not in self._names:
            raise FileMissingError(f"cannot list {path}: it does not exist")
        prefix = path + "/"
        start = len(prefix)
        return sorted(p[start:] for p in self._names if p.startswith(prefix) and "/" not in p[start:])

    def stat(self, path: str) -> FileStat:
        if path not in self._names:
            raise FileMissingError(f"cannot stat {path}: it does not exist")
        inode = self._names[path]
        return FileStat(0, self.time_ms(), True) if inode is None else FileStat(len(inode.data), inode.mtime_ms, False)

    def exists(self, path: str) -> bool:
        return path in self._names

    def mkdir(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for i in range(1, len(parts) + 1):
            self._names.setdefault("/" + "/".join(parts[:i]), None)

    def rename(self, source: str, target: str) -> None:
        if source not in self._names:
            raise FileMissingError(f"cannot rename {source}: it does not exist")
        replaced = self._names.get(target)
        if self._names[source] is None:
            moved = [p for p in self._names if p == source or p.startswith(source + "/")]
        else:
            moved = [source]
        for path in moved:
            self._names[target + path[len(source) :]] = self._names.pop(path)
        if replaced is not None:
            self._forget(replaced)

    def unlink(self, path: str) -> None:
        inode = self._names.pop(path, None)
        if inode is not None:
            self._forget(inode)

    def rmtree(self, path: str) -> None:
        self._take_descriptor("delete", path)
        for name in [p for p in self._names if p == path or p.startswith(path + "/")]:
            self.unlink(name)

    def _forget(self, inode: Inode) -> None:
        """Removes a file that has lost its name. There are no hard links, so a file has one name only."""
        self.used -= len(inode.data)

    def sync_dir(self, path: str) -> None:
        self._take_descriptor("sync directory", path)
        self.syncs.append(path)
        if self.fail_syncs(path):
            raise DiskIoError(f"cannot sync directory {path}: Input/output error")
        prefix = path.rstrip("/") + "/"
        start = len(prefix)
        names, durable = self._names, self._durable_names
        for name, inode in names.items():
            if name.startswith(prefix) and "/" not in name[start:]:
                durable[name] = inode
        gone = [n for n in durable if n.startswith(prefix) and "/" not in n[start:] and n not in names]
        for name in gone:
            for lost in [p for p in durable if p == name or p.startswith(name + "/")]:
                del durable[lost]

    def sync_volume(self, path: str) -> bool:
        self._take_descriptor("sync the volume of", path)
        self.syncs.append("/")
        if self.fail_syncs("/"):
            raise DiskIoError(f"cannot sync the volume of {path}: Input/output error")
        for inode in self._names.values():
            if inode is not None:
                inode.sync()
        self._durable_names = dict(self._names)
        return True

    def lock(self, path: str) -> Lock:
        self._take_descriptor("lock", path)
        if path in self.locks:
            raise LogDirLockedError(f"{path} is locked")
        self._names.setdefault(path, Inode())
        self.locks.add(path)
        return _MemoryLock(self, path)

    def disk_usage(self, path: str) -> DiskUsage:
        return DiskUsage(self.capacity, self.free)


class Mount:
    """The `FileSystem` of one process. After the process was killed, every operation raises DiskIoError, so that code
    that still runs for the process, such as a `finally` block, changes nothing."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._generation = disk.generation

    def _live(self) -> MemoryDisk:
        if self._generation != self._disk.generation:
            raise DiskIoError("this process is dead")
        return self._disk

    def open(self, path: str, access: Access) -> File:
        return self._live().open(path, access)

    def listdir(self, path: str) -> list[str]:
        return self._live().listdir(path)

    def stat(self, path: str) -> FileStat:
        return self._live().stat(path)

    def exists(self, path: str) -> bool:
        return self._live().exists(path)

    def mkdir(self, path: str) -> None:
        self._live().mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self._live().rename(source, target)

    def unlink(self, path: str) -> None:
        self._live().unlink(path)

    def rmtree(self, path: str) -> None:
        self._live().rmtree(path)

    def sync_dir(self, path: str) -> None:
        self._live().sync_dir(path)

    def sync_volume(self, path: str) -> bool:
        return self._live().sync_volume(path)

    def lock(self, path: str) -> Lock:
        return self._live().lock(path)

    def disk_usage(self, path: str) -> DiskUsage:
        return self._live().disk_usage(path)
