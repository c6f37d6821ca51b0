"""Value: a file of the simulated disk, with its content in the page cache and its durable content on the platter. The
functions compute the content that remains after a power cut."""

from __future__ import annotations

from typing import Final

from barnabas.core.rng import Rng

SECTOR: Final = 512
"""Bytes that the disk writes atomically."""


class Inode:
    """One file of the simulated disk. `data` is the file in the page cache. The durable content is `shadow`; while
    `shadow` is None, the durable content is the first `synced` bytes of `data`, so that append-only files need no
    copy."""

    __slots__ = ("data", "mtime_ms", "shadow", "synced")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = len(data)
        self.shadow: bytes | None = None
        self.mtime_ms = 0

    @property
    def durable(self) -> bytes:
        return bytes(self.data[: self.synced]) if self.shadow is None else self.shadow

    def before_change(self, position: int) -> None:
        """Must be called before bytes from `position` on change; copies the durable content if necessary."""
        if self.shadow is None and position < self.synced:
            self.shadow = bytes(self.data[: self.synced])

    def sync(self) -> None:
        self.shadow = None
        self.synced = len(self.data)


def left_of(inode: Inode, extra: int) -> bytes:
    """The durable content, and for an append-only file `extra` more bytes."""
    kept = inode.durable
    if inode.shadow is None or inode.data[: len(kept)] == kept:
        return bytes(inode.data[: len(kept) + extra])
    return kept


def left_by_chance(inode: Inode, rng: Rng) -> bytes:
    """Draws the content after a power cut. Of the unsynced bytes a disk may have written none, a prefix that ends at
    any byte, all, or some sectors with holes of zeros between them; with few holes often only the middle is missing."""
    durable = inode.durable
    if inode.shadow is None and len(inode.data) == inode.synced:
        return durable
    if inode.shadow is not None and not inode.data.startswith(durable):  # rewritten: the old or the new
        return durable if rng.random() < 0.5 else bytes(inode.data)
    chance = rng.random()
    length = len(inode.data) - len(durable)
    if chance < 0.2:
        return durable
    if chance < 0.45:
        return bytes(inode.data[: len(durable) + rng.randrange(length + 1)])
    if chance < 0.6:
        return bytes(inode.data)
    kept = bytearray(inode.data)
    starts = range(len(durable) // SECTOR * SECTOR, len(kept), SECTOR)
    holes = rng.random() ** 2 * 0.6
    lost = [start for start in starts if rng.random() < holes] or [starts[rng.randrange(len(starts))]]
    for start in lost:
        begin, end = max(start, len(durable)), min(start + SECTOR, len(kept))
        kept[begin:end] = bytes(end - begin)
    return bytes(kept)
