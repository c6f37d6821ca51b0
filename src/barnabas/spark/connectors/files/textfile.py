"""Shell: the complete lines of a text file to which lines are appended."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from barnabas.spark.connectors.files.errors import FileReadError

_CHUNK: Final = 1024 * 1024
_MARK_BYTES: Final = 4096
"""So many bytes before a position tell the file from another one of its name."""


class TextFile:
    """A local file. One that does not exist yet is empty."""

    def __init__(self, place: str) -> None:
        self._path = Path(place)

    def end_of_lines(self, start: int, bytes_max: int | None = None) -> int:
        """Where the last complete line after `start` ends; at most `bytes_max` bytes further, unless the first line is
        longer. Raises FileReadError if the file is shorter than `start`.
        """
        size = self._path.stat().st_size if self._path.exists() else 0
        if size < start:
            raise FileReadError(
                f"{self._path} has {size} bytes, and {start} were read: it was replaced or cut. Start the query with a"
                " new checkpoint to read it from its beginning"
            )
        if size == start:
            return start
        limit = size if bytes_max is None else min(size, start + bytes_max)
        with self._path.open("rb") as file:
            end = limit
            while end > start:
                begin = max(start, end - _CHUNK)
                file.seek(begin)
                found = file.read(end - begin).rfind(b"\n")
                if found >= 0:
                    return begin + found + 1
                end = begin
            position = limit
            file.seek(limit)
            while chunk := file.read(_CHUNK):
                found = chunk.find(b"\n")
                if found >= 0:
                    return position + found + 1
                position += len(chunk)
        return start

    def offset(self, position: int) -> dict[str, Any]:
        """The offset of a query at a position, with a digest of what is before it."""
        return {"position": position, "digest": self._digest(position)}

    def check(self, offset: Mapping[str, Any]) -> None:
        """Raise FileReadError if the offset belongs to another file of the name. One of an earlier release does not
        say to which file it belongs."""
        position, digest = int(offset["position"]), offset.get("digest")
        if digest is not None and self._digest(position) != digest:
            raise FileReadError(
                f"{self._path} was replaced: its content before the position {position} is not what was read. Lines of"
                " the new file up to there were never read. Start the query with a new checkpoint to read it from its"
                " beginning, or put the file back that was read"
            )

    def _digest(self, position: int) -> str:
        if not position:
            return ""
        begin = max(0, position - _MARK_BYTES)
        with self._path.open("rb") as file:
            file.seek(begin)
            return hashlib.sha256(file.read(position - begin)).hexdigest()[:16]

    def chunks(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` to `end`. Raises FileReadError if the file has become shorter."""
        with self._path.open("rb") as file:
            file.seek(start)
            while start < end:
                chunk = file.read(min(_CHUNK, end - start))
                if not chunk:
                    raise FileReadError(
                        f"{self._path} has {start} bytes, and had at least {end} when the micro-batch was planned: it"
                        " was cut. Restore it, or start the query with a new checkpoint"
                    )
                start += len(chunk)
                yield chunk
