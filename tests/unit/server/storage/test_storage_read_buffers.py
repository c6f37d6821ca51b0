"""Buffers of large reads: not reused while a view exists, and bounded in number and size."""

from __future__ import annotations

from pathlib import Path

from barnabas.server.storage.fs import Access, OsFileSystem
from barnabas.server.storage.read_buffers import SMALLEST, ReadBuffers


def test_buffer_is_reused_after_its_last_view() -> None:
    buffers = ReadBuffers()
    view = memoryview(buffers.take(SMALLEST))
    first = id(view.obj)
    part = view[10:20]
    del view
    other = memoryview(buffers.take(SMALLEST))
    assert id(other.obj) != first, "a slice still looks at the first buffer"
    del part
    assert id(buffers.take(SMALLEST)) == first


def test_a_reference_without_a_view_counts_too() -> None:
    buffers = ReadBuffers()
    held = buffers.take(SMALLEST)
    assert buffers.take(SMALLEST) is not held


def test_sizes_are_rounded_up_so_that_similar_reads_share() -> None:
    buffers = ReadBuffers()
    first = id(buffers.take(1_000_000))
    buffer = buffers.take(1 << 20)
    assert (id(buffer), len(buffer)) == (first, 1 << 20)
    del buffer
    assert id(buffers.take(SMALLEST)) == first


def test_buffers_beyond_the_limits_are_not_kept() -> None:
    buffers = ReadBuffers()
    held = [buffers.take(1 << 20) for _ in range(8)]
    extra = buffers.take(100_000)
    assert len(extra) == 100_000
    assert len({id(buffer) for buffer in [*held, extra]}) == 9
    many = ReadBuffers()
    assert len({id(buffer) for buffer in [many.take(SMALLEST) for _ in range(40)]}) == 40
    assert len(ReadBuffers().take(50_000_000)) == 50_000_000


def test_reads_in_flight_do_not_disturb_each_other(tmp_path: Path) -> None:
    fs = OsFileSystem()
    file = fs.open(str(tmp_path / "log"), Access.WRITE)
    data = b"".join(bytes([i]) * SMALLEST for i in range(4))
    file.write_at(0, [data])
    reads = [file.try_read_at(i * SMALLEST, SMALLEST) for i in range(4)]
    assert all(read is None or read == bytes([i]) * SMALLEST for i, read in enumerate(reads))
    short = file.try_read_at(3 * SMALLEST, 2 * SMALLEST)
    assert short is None or short == bytes([3]) * SMALLEST
    assert all(read is None or read == bytes([i]) * SMALLEST for i, read in enumerate(reads))
