"""Shell: finishes or undoes the operations on a log's files that the end of the previous process interrupted.

Files of interrupted operations are recognized by their second suffix. `.deleted` and `.cleaned` files are deleted.
`.swap` files belong to a completed compaction: the old segments are deleted, and the `.swap` files take their place.
"""

from __future__ import annotations

from barnabas.server.storage import names
from barnabas.server.storage.fs import FileSystem
from barnabas.server.storage.segments.batches import walk_headers
from barnabas.server.storage.segments.segment import Segment


def remove_leftovers(fs: FileSystem, path: str) -> list[str]:
    """Finish or undo interrupted operations. Returns the names of the remaining files."""
    listing = fs.listdir(path)
    if not any(name.endswith((names.DELETED, names.CLEANED, names.SWAP, names.TEMPORARY)) for name in listing):
        return listing
    cleaned = [p[0] for name in listing if (p := names.parse_offset_file(name)) and p[2] == names.CLEANED]
    # Compaction renames its segments to .swap from the last to the first. If a .cleaned segment is left, the .swap
    # files at or above its offset are an incomplete set (KAFKA-6264).
    incomplete_from = min(cleaned, default=None)
    for name in listing:
        parsed = names.parse_offset_file(name)
        second = parsed[2] if parsed else ""
        torn_swap = (
            parsed is not None and second == names.SWAP and incomplete_from is not None and parsed[0] >= incomplete_from
        )
        if second in (names.DELETED, names.CLEANED) or torn_swap or name.endswith(names.TEMPORARY):
            fs.unlink(f"{path}/{name}")
    _finish_swaps(fs, path, fs.listdir(path))
    fs.sync_dir(path)
    return fs.listdir(path)


def _finish_swaps(fs: FileSystem, path: str, listing: list[str]) -> None:
    swaps = [(name, p[0], p[1]) for name in listing if (p := names.parse_offset_file(name)) and p[2] == names.SWAP]
    bases = [base for _, base, kind in swaps if kind == names.LOG]
    if bases:
        low, high = min(bases), max(bases)
        for base in bases:
            swap = Segment(fs, path, base, index_interval_bytes=4096, created_ms=0, suffix=names.SWAP)
            for _, header in walk_headers(swap.file(), 0, swap.size):
                high = max(high, header.next_offset)
        for name in listing:
            parsed = names.parse_offset_file(name)
            if parsed and not parsed[2] and parsed[1] != names.SNAPSHOT and low <= parsed[0] < high:
                fs.unlink(f"{path}/{name}")
        fs.sync_dir(path)
    for name, _, kind in swaps:
        if kind != names.LOG:
            fs.rename(f"{path}/{name}", f"{path}/{name.removesuffix(names.SWAP)}")
    for name, _, kind in swaps:  # the log files last, because their suffix shows that the operation is unfinished
        if kind == names.LOG:
            fs.rename(f"{path}/{name}", f"{path}/{name.removesuffix(names.SWAP)}")
