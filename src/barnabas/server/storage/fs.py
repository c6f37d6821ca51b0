"""Port and Shell: the file system. No other module of the server uses the operating system's files.

`FileSystem` and `File` are the port. `OsFileSystem` implements it with the operating system. The simulator implements
it with a disk in memory that loses unsynced data, tears writes, flips bits and fills up. The port therefore states
exactly when data are durable:

* `File.write_at` writes to the page cache: the data survive the process, but not a power failure.
* `File.sync` makes the file's content and length durable. `FileSystem.sync_dir` makes creations, renames and unlinks in
  a directory durable; `FileSystem.sync_volume` makes everything durable. No other operation makes anything durable.
* `rename` replaces its target atomically.

A file that was not closed is closed when the last reference to it is dropped, so the descriptor of a reader in an
executor thread is never reused for another file. Every failure is a `StorageError`. `write_at` writes everything or
raises; if it raises, a part may have been written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple, NoReturn, Protocol, TypeVar

from barnabas.core.buffers import Buffer
from barnabas.server.storage.descriptors import RESERVE, SHORTAGE
from barnabas.server.storage.errors import (
    DescriptorsExhaustedError,
    DiskFullError,
    DiskIoError,
    FileMissingError,
    LogDirLockedError,
    StorageError,
)
from barnabas.server.storage.read_buffers import SMALLEST, ReadBuffers

T = TypeVar("T")
_IOV_MAX = 1024
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has only fsync


class Access(Enum):
    """How a file is opened."""

    READ = "read"  # the file must exist
    WRITE = "write"  # read and write; created when missing
    REPLACE = "replace"  # read and write; created, or emptied


class FileStat(NamedTuple):
    """The size in bytes, the time of the last modification, and whether the path is a directory."""

    size: int
    mtime_ms: int
    is_dir: bool


class DiskUsage(NamedTuple):
    """The size of a volume and the space that this process may still use, in bytes."""

    total: int
    free: int


class File(Protocol):
    """An open file. Safe to read and sync from several threads."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Read `length` bytes, or fewer at the end of the file."""
        ...

    def try_read_at(self, position: int, length: int) -> Buffer | None:
        """Read like `read_at` if the data are in the page cache; otherwise return None. For the event loop only."""
        ...

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers one after the other without joining them, and return the number of bytes."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock on a file, held until released or until the process ends."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """The operations of a file system that storage needs. Paths are absolute strings with `/`."""

    def open(self, path: str, access: Access) -> File: ...

    def listdir(self, path: str) -> list[str]:
        """The names in the directory, sorted."""
        ...

    def stat(self, path: str) -> FileStat:
        """The facts about a file or a directory. Raises FileMissingError."""
        ...

    def exists(self, path: str) -> bool: ...

    def mkdir(self, path: str) -> None:
        """Create a directory and its parents. An existing directory is no error."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, and replace the target."""
        ...

    def unlink(self, path: str) -> None:
        """Delete a file. A missing file is no error."""
        ...

    def rmtree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def sync_volume(self, path: str) -> bool:
        """Make everything on the volume that holds `path` durable. Returns False if this system cannot do so, or would
        not report a failure."""
        ...

    def lock(self, path: str) -> Lock:
        """Lock a file. Raises LogDirLockedError if another process, or this one, has locked it."""
        ...

    def disk_usage(self, path: str) -> DiskUsage: ...


def read_file(fs: FileSystem, path: str) -> bytes:
    """Read a whole small file. Raises FileMissingError."""
    file = fs.open(path, Access.READ)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def replace_file(fs: FileSystem, path: str, data: bytes, *, durable: bool = True) -> None:
    """Replace the content of a file atomically: after a crash the file has the new content or the old one.

    `durable=False` omits the two syncs, for a caller that syncs later, off the event loop.
    """
    temporary = path + ".tmp"
    file = fs.open(temporary, Access.REPLACE)
    try:
        file.write_at(0, (data,))
        if durable:
            file.sync()
    except StorageError:
        file.close()
        with contextlib.suppress(StorageError):
            fs.unlink(temporary)
        raise
    file.close()
    fs.rename(temporary, path)
    if durable:
        fs.sync_dir(path.rpartition("/")[0] or "/")


@contextlib.contextmanager
def _mapped(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        _raise(e, what, path)


def _raise(e: OSError, what: str, path: str) -> NoReturn:
    if e.errno in _NO_SPACE:
        raise DiskFullError(
            f"cannot {what} {path}: {e.strerror}. Free space on the volume, or lower retention, and retry."
        ) from e
    if e.errno in (errno.ENOENT, errno.ENOTDIR):
        raise FileMissingError(f"cannot {what} {path}: it does not exist") from e
    if e.errno in SHORTAGE:
        raise DescriptorsExhaustedError(
            f"cannot {what} {path}: {e.strerror}. Raise the limit of open files (ulimit -n) or close connections."
        ) from e
    raise DiskIoError(
        f"cannot {what} {path}: {e.strerror or e}. Check the disk and the directory's permissions."
    ) from e


_READ_BUFFERS: Final = ReadBuffers()


class OsFile:
    """An open file of the operating system. OSError becomes a storage error that names the path.

    Methods that are called often do this with `try`, because a context manager would take a microsecond per call.
    """

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def size(self) -> int:
        with _mapped("stat", self.path):
            return os.fstat(self._fd).st_size

    def read_at(self, position: int, length: int) -> bytes:
        try:
            data = os.pread(self._fd, length, position)
            if len(data) == length or not data:
                return data
            pieces = [data]  # a short read: the end of the file, or a signal
            got = len(data)
            while got < length and (data := os.pread(self._fd, length - got, position + got)):
                pieces.append(data)
                got += len(data)
            return b"".join(pieces)
        except OSError as e:
            _raise(e, "read", self.path)

    def try_read_at(self, position: int, length: int) -> Buffer | None:
        if not _NOWAIT:
            return self.read_at(position, length)
        big = length >= SMALLEST
        buffer = memoryview(_READ_BUFFERS.take(length))[:length] if big else bytearray(length)
        try:
            got = os.preadv(self._fd, (buffer,), position, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as e:
            if e.errno in (errno.EOPNOTSUPP, errno.ENOSYS):  # the file system does not support RWF_NOWAIT
                return self.read_at(position, length)
            _raise(e, "read", self.path)
        if got < length and position + got < self.size():
            return None
        return buffer[:got] if big else bytes(buffer[:got])

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        expected = sum(map(len, buffers))  # buffers hold bytes, so their lengths are their sizes
        try:
            if len(buffers) > _IOV_MAX:
                return self._write_all(position, buffers)
            written = os.pwritev(self._fd, buffers, position)
            if written != expected:
                return written + self._write_all(position + written, _skip(buffers, written))
            return written
        except OSError as e:
            _raise(e, "write", self.path)

    def _write_all(self, position: int, buffers: Sequence[Buffer]) -> int:
        start = position
        rest = [memoryview(b).cast("B") for b in buffers]
        while rest:
            written = os.pwritev(self._fd, rest[:_IOV_MAX], position)
            if written == 0 and any(len(b) for b in rest):
                raise OSError(errno.ENOSPC, "the device accepted no bytes")
            position += written
            rest = _skip(rest, written)
        return position - start

    def truncate(self, size: int) -> None:
        with _mapped("truncate", self.path):
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        with _mapped("sync", self.path):
            _fdatasync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with _mapped("close", self.path):
                os.close(fd)
            if RESERVE.short:
                RESERVE.refill()

    def __del__(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            if RESERVE.short:
                RESERVE.refill()


def _skip(buffers: Sequence[Buffer], count: int) -> list[memoryview]:
    """The rest of `buffers` after the first `count` bytes, without empty buffers."""
    rest: list[memoryview] = []
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        if count >= len(view):
            count -= len(view)
        else:
            rest.append(view[count:])
            count = 0
    return rest


_LOCKED: set[str] = set()
"""The paths that this process has locked: POSIX record locks do not exclude the process that holds them."""


class OsLock:
    """A POSIX record lock on an open file."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _LOCKED.discard(self._path)
            os.close(fd)


_FLAGS = {
    Access.READ: os.O_RDONLY | os.O_CLOEXEC,
    Access.WRITE: os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
    Access.REPLACE: os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC,
}


def _from_reserve(call: Callable[[], T]) -> T:
    """Call `call`. If it finds no free descriptor, give up one of the reserve and call it again. Raises OSError."""
    while True:
        try:
            return call()
        except OSError as e:
            if e.errno not in SHORTAGE or not RESERVE.give_up():
                raise


def _syncfs_reports_errors() -> bool:
    """Whether syncfs(2) fails if data could not be written: Linux since 5.8."""
    system = os.uname()
    release = system.release.split(".")
    if system.sysname != "Linux" or len(release) < 2 or not (release[0].isdigit() and release[1].isdigit()):
        return False
    return (int(release[0]), int(release[1])) >= (5, 8)


class OsFileSystem:
    """The file system of the operating system."""

    def open(self, path: str, access: Access) -> File:
        try:
            return OsFile(path, os.open(path, _FLAGS[access], 0o644))
        except OSError as e:
            if e.errno not in SHORTAGE:
                _raise(e, "open", path)
        with _mapped("open", path):
            return OsFile(path, _from_reserve(lambda: os.open(path, _FLAGS[access], 0o644)))

    def listdir(self, path: str) -> list[str]:
        with _mapped("list", path):
            return sorted(_from_reserve(lambda: os.listdir(path)))  # noqa: PTH208 - pathlib costs ten times as much, per partition at start-up

    def stat(self, path: str) -> FileStat:
        try:
            found = os.stat(path)  # noqa: PTH116 - as above
        except OSError as e:
            _raise(e, "stat", path)
        return FileStat(found.st_size, found.st_mtime_ns // 1_000_000, (found.st_mode & 0o170000) == 0o040000)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)  # noqa: PTH110 - as above

    def mkdir(self, path: str) -> None:
        with _mapped("create directory", path):
            os.makedirs(path, exist_ok=True)  # noqa: PTH103 - as above

    def rename(self, source: str, target: str) -> None:
        with _mapped("rename", source):
            os.replace(source, target)  # noqa: PTH105 - as above

    def unlink(self, path: str) -> None:
        with _mapped("delete", path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - as above

    def rmtree(self, path: str) -> None:
        import shutil  # here: it brings bz2 and lzma, and is seldom needed

        with _mapped("delete", path), contextlib.suppress(FileNotFoundError):
            _from_reserve(lambda: shutil.rmtree(path))

    def sync_dir(self, path: str) -> None:
        with _mapped("sync directory", path):
            fd = _from_reserve(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
                if RESERVE.short:
                    RESERVE.refill()

    def sync_volume(self, path: str) -> bool:
        if not _syncfs_reports_errors():
            return False
        import ctypes  # here: only a clean stop needs it

        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            return False
        with _mapped("sync the volume of", path):
            fd = _from_reserve(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            try:
                if syncfs(fd) != 0:
                    number = ctypes.get_errno()
                    if number == errno.ENOSYS:
                        return False
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(fd)
        return True

    def lock(self, path: str) -> Lock:
        held = os.path.realpath(path)
        if held in _LOCKED:
            raise LogDirLockedError(f"{path} is locked: a broker in this process uses this data directory.")
        with _mapped("lock", path):
            fd = _from_reserve(lambda: os.open(path, _FLAGS[Access.WRITE], 0o644))
            try:
                # Java's FileChannel.tryLock uses the same kind of lock, so a Kafka broker is excluded too.
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as e:
                os.close(fd)
                if e.errno in (errno.EACCES, errno.EAGAIN):
                    raise LogDirLockedError(
                        f"{path} is locked: another broker uses this data directory. Stop it, or choose another one."
                    ) from e
                raise
        _LOCKED.add(held)
        return OsLock(held, fd)

    def disk_usage(self, path: str) -> DiskUsage:
        with _mapped("measure", path):
            found = os.statvfs(path)
            return DiskUsage(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)
