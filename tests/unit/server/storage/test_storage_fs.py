"""The operating system's file system."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.server.storage.errors import DiskFullError, DiskIoError, FileMissingError, LogDirLockedError
from barnabas.server.storage.fs import Access, OsFileSystem, read_file, replace_file

FS = OsFileSystem()


def test_write_and_read(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    file = FS.open(path, Access.WRITE)
    assert file.write_at(0, (b"hello ", memoryview(b"big "), bytearray(b"world"))) == 15
    assert file.write_at(6, (b"new",)) == 3
    assert file.read_at(0, 100) == b"hello newbig world"[:6] + b"new" + b" world"
    assert file.read_at(6, 3) == b"new"
    assert file.try_read_at(0, 5) in (b"hello", None)
    assert file.read_at(99, 5) == b""
    file.truncate(5)
    file.sync()
    assert file.size() == 5
    file.close()
    file.close()
    assert read_file(FS, path) == b"hello"
    with pytest.raises(FileMissingError):
        FS.open(path + "x", Access.READ)
    assert FS.open(path, Access.REPLACE).size() == 0


def test_write_of_more_buffers_than_iov_max(tmp_path: Path) -> None:
    file = FS.open(str(tmp_path / "f"), Access.WRITE)
    parts = [bytes([i % 256]) * (i % 5) for i in range(5000)]
    file.write_at(3, parts)
    assert file.read_at(3, 20_000) == b"".join(parts)


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(fd: int, buffers: list[bytes], position: int) -> int:
        return real(fd, [bytes(buffers[0])[:3]], position)

    file = FS.open(str(tmp_path / "f"), Access.WRITE)
    monkeypatch.setattr(os, "pwritev", short)
    assert file.write_at(0, (b"abcdefg", b"hijk")) == 11
    assert file.read_at(0, 20) == b"abcdefghijk"


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EIO, DiskIoError),
        (errno.EROFS, DiskIoError),
    ],
)
def test_os_errors_map_to_storage_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[Exception]
) -> None:
    file = FS.open(str(tmp_path / "f"), Access.WRITE)

    def fail(*args: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwritev", fail)
    with pytest.raises(expected, match="f: "):
        file.write_at(0, (b"x",))


def test_replace_file(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    for durable in (True, False):
        replace_file(FS, path, b"new", durable=durable)
        assert FS.listdir(str(tmp_path)) == ["f"]
        assert read_file(FS, path) == b"new"


def test_directories(tmp_path: Path) -> None:
    root = str(tmp_path / "a" / "b")
    FS.mkdir(root)
    FS.mkdir(root)
    assert FS.stat(root).is_dir
    replace_file(FS, root + "/f", b"12345")
    assert FS.stat(root + "/f")[::2] == (5, False)
    FS.rename(root + "/f", root + "/g")
    assert FS.exists(root + "/g")
    FS.sync_dir(root)
    FS.unlink(root + "/g")
    FS.unlink(root + "/g")
    FS.rmtree(root)
    FS.rmtree(root)
    with pytest.raises(FileMissingError):
        FS.listdir(root)
    usage = FS.disk_usage(str(tmp_path))
    assert 0 < usage.free <= usage.total


def test_lock_excludes_this_process_and_others(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = FS.lock(path)
    with pytest.raises(LogDirLockedError):
        FS.lock(path)
    probe = "import sys; from barnabas.server.storage.fs import OsFileSystem; OsFileSystem().lock(sys.argv[1])"
    other = subprocess.run([sys.executable, "-c", probe, path], capture_output=True, text=True, check=False)
    assert "LogDirLockedError" in other.stderr
    lock.release()
    lock.release()
    assert subprocess.run([sys.executable, "-c", probe, path], check=False).returncode == 0
    FS.lock(path).release()


def test_unreferenced_file_is_closed(tmp_path: Path) -> None:
    before = open_descriptors()
    for _ in range(50):
        FS.open(str(tmp_path / "f"), Access.WRITE)
    assert open_descriptors() <= before + 1


def open_descriptors() -> int:
    listing = Path("/dev/fd")
    return sum(1 for _ in listing.iterdir()) if listing.exists() else 0
