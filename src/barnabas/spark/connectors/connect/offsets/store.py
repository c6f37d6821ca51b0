"""Shell: the checkpoints of connectors, on any storage that PyArrow opens (a shared directory, S3, HDFS, GCS).

    <storage.location>/checkpoints/<connector>/<n>/                the newest n counts
                                              /<n>/<query>/        a checkpoint, if there are several queries
                                              /<n>/_complete       written last, with the number <s>; 0 needs none
                                              /staging-<s>/        what a source has copied; a reset begins another

A character of a connector's name that is no letter of ASCII, no digit and none of `_.-~` has the form `=20`. Earlier
releases wrote `%20`; a directory of this form is used for as long as there is none of the other.

Changing offsets never changes the files of a checkpoint: a worker that is cut off from the others could still be
writing to them. A new checkpoint with the next number is written, and counts when `_complete` is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from barnabas.core.ids import TopicPartition
from barnabas.spark.connectors.connect.cluster.ports import ConnectorPlaces
from barnabas.spark.connectors.connect.cluster.values import ConnectorConfig, ConnectRequestError
from barnabas.spark.connectors.connect.offsets.checkpoint import (
    COMMIT_TEXT,
    OffsetChange,
    OffsetEntry,
    QueryOffsets,
    altered,
    offsets_document,
    topic_partition,
)
from barnabas.spark.delivery.checkpoints import open_location

_COMPLETE: Final = "_complete"
_FILE_BYTES_MAX: Final = 64 * 1024 * 1024

Earliest = Callable[[Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
"""Returns the log start offsets of partitions that exist."""


class CheckpointStore:
    """The `OffsetStore` below `storage.location`. The methods work in threads, because storage may be remote."""

    def __init__(self, storage_location: str, earliest: Earliest) -> None:
        self._earliest = earliest
        self._root = f"{storage_location.rstrip('/')}/checkpoints"
        self._writing = asyncio.Lock()

    async def places(self, name: str) -> ConnectorPlaces:
        return await asyncio.to_thread(self._places, name)

    async def read(self, name: str, config: ConnectorConfig) -> list[dict[str, Any]]:
        return await asyncio.to_thread(lambda: offsets_document(self._queries(name), config))

    async def alter(self, name: str, config: ConnectorConfig, offsets: Sequence[OffsetChange]) -> None:
        changes = await self._with_earliest(offsets)
        async with self._writing:
            await asyncio.to_thread(self._alter, name, config, changes)

    async def reset(self, name: str) -> None:
        async with self._writing:
            await asyncio.to_thread(self._reset, name)

    async def _with_earliest(self, offsets: Sequence[OffsetChange]) -> list[OffsetChange]:
        """Replace the reset of a partition of a topic by its log start offset."""
        reset = [tp for partition, offset in offsets if offset is None and (tp := topic_partition(partition))]
        starts = await self._earliest(reset) if reset else {}
        changes: list[OffsetChange] = []
        for partition, offset in offsets:
            tp = topic_partition(partition)
            if offset is None and tp is not None and tp in starts:
                changes.append((partition, {"kafka_offset": starts[tp]}))
            else:
                changes.append((partition, offset))
        return changes

    # -- in a thread

    def _places(self, name: str) -> ConnectorPlaces:
        staging = self._staging(name)
        return ConnectorPlaces(self._location(name), f"{self._connector(name)}/staging-{staging}")

    def _staging(self, name: str) -> int:
        newest = self._newest(name)
        text = _Directory(self._connector(name)).read(f"{newest}/{_COMPLETE}") if newest else "0"
        return int(text)

    def _location(self, name: str) -> str:
        return f"{self._connector(name)}/{self._newest(name)}"

    def _connector(self, name: str) -> str:
        location, earlier = f"{self._root}/{directory_name(name)}", f"{self._root}/{quote(name, safe='')}"
        if location == earlier or _Directory(location).exists("") or not _Directory(earlier).exists(""):
            return location
        return earlier

    def _newest(self, name: str) -> int:
        directory = _Directory(self._connector(name))
        numbers = [int(child) for child in directory.children() if child.isdecimal()]
        complete = [n for n in numbers if n == 0 or directory.exists(f"{n}/{_COMPLETE}")]
        return max(complete, default=0)

    def _next(self, name: str) -> str:
        """The next number that was never used, even by a change that did not complete."""
        numbers = [int(child) for child in _Directory(self._connector(name)).children() if child.isdecimal()]
        return f"{self._connector(name)}/{max(numbers, default=0) + 1}"

    def _queries(self, name: str) -> list[QueryOffsets]:
        location = _Directory(self._location(name))
        return [_read_query(location, query) for query in _query_names(location)]

    def _alter(
        self,
        name: str,
        config: ConnectorConfig,
        offsets: Sequence[OffsetChange],
    ) -> None:
        queries = self._queries(name)
        entries = altered(queries, config, offsets)
        old, new = _Directory(self._location(name)), _Directory(self._next(name))
        for query in queries:
            entry = entries.get(query.query)
            if entry is not None and not any(entry.sources):
                continue  # the query begins anew
            _copy_query(old, new, query, entry)
        new.write(_COMPLETE, str(self._staging(name)))

    def _reset(self, name: str) -> None:
        if not _query_names(_Directory(self._location(name))):
            return
        new = self._next(name)
        _Directory(new).write(_COMPLETE, new.rpartition("/")[2])


def directory_name(name: str) -> str:
    """The name of a connector as that of a directory: without characters that a path or a URI gives a meaning to.

    PyArrow decodes percent signs in URIs, and Hadoop's `Path`, which Spark uses, does not.
    """
    quoted = quote(name, safe="").replace("%", "=")
    return quoted.replace(".", "=2E") if name in (".", "..") else quoted


def _query_names(location: _Directory) -> list[str]:
    """The queries with a checkpoint below a location; "" if the location is the checkpoint of the only query."""
    if location.exists("offsets"):
        return [""]
    return [child for child in sorted(location.children()) if location.exists(f"{child}/offsets")]


def _read_query(location: _Directory, query: str) -> QueryOffsets:
    prefix = f"{query}/" if query else ""
    planned = _batches(location, f"{prefix}offsets")
    done = sorted(set(planned) & set(_batches(location, f"{prefix}commits")))

    def entry(batch_id: int) -> OffsetEntry:
        return OffsetEntry.parse(batch_id, location.read(f"{prefix}offsets/{batch_id}"))

    return QueryOffsets(query, entry(done[-1]) if done else None, entry(planned[-1]) if planned else None)


def _batches(location: _Directory, path: str) -> list[int]:
    return sorted(int(child) for child in location.children(path) if child.isdecimal())


def _copy_query(old: _Directory, new: _Directory, query: QueryOffsets, entry: OffsetEntry | None) -> None:
    """Copy the checkpoint of a query: its id, what its sources keep, and the last entries; then add `entry`.

    Spark reads the last entry and the one before.
    """
    prefix = f"{query.query}/" if query.query else ""
    for path in [*old.files(f"{prefix}sources"), *([] if entry is not None else old.files(f"{prefix}offsets"))]:
        new.write_bytes(path, old.read_bytes(path))
    if entry is None:
        for path in old.files(f"{prefix}commits"):
            new.write_bytes(path, old.read_bytes(path))
    else:
        assert query.planned is not None
        for one in (query.planned, entry):
            new.write(f"{prefix}offsets/{one.batch_id}", one.render())
            new.write(f"{prefix}commits/{one.batch_id}", COMMIT_TEXT)
    new.write_bytes(f"{prefix}metadata", old.read_bytes(f"{prefix}metadata"))


class _Directory:
    """A directory of a file system that PyArrow opens. Paths are relative to the directory."""

    def __init__(self, location: str) -> None:
        try:
            self._system, self._path = open_location(location)
        except (OSError, ValueError) as error:
            raise ConnectRequestError(500, f"storage.location cannot be opened: {error}") from error

    def children(self, path: str = "") -> list[str]:
        """The names of the files and directories, without those that Spark hides."""
        return [info.base_name for info in self._infos(path, recursive=False)]

    def files(self, path: str) -> list[str]:
        """The paths of all files below a directory."""
        prefix = f"{self._path}/"
        return [info.path[len(prefix) :] for info in self._infos(path, recursive=True) if info.is_file]

    def _infos(self, path: str, *, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(self._full(path), allow_not_found=True, recursive=recursive)
        return [info for info in self._system.get_file_info(selector) if not info.base_name.startswith(".")]

    def exists(self, path: str) -> bool:
        from pyarrow.fs import FileType

        return bool(self._system.get_file_info(self._full(path)).type is not FileType.NotFound)

    def read(self, path: str) -> str:
        return self.read_bytes(path).decode()

    def read_bytes(self, path: str) -> bytes:
        with self._system.open_input_file(self._full(path)) as file:
            if file.size() > _FILE_BYTES_MAX:
                raise ConnectRequestError(500, f"{path} in the checkpoint has more than {_FILE_BYTES_MAX} bytes.")
            return bytes(file.read())

    def write(self, path: str, text: str) -> None:
        self.write_bytes(path, text.encode())

    def write_bytes(self, path: str, data: bytes) -> None:
        full = self._full(path)
        self._system.create_dir(full.rpartition("/")[0], recursive=True)
        with self._system.open_output_stream(full) as file:
            file.write(data)

    def _full(self, path: str) -> str:
        return f"{self._path}/{path}" if path else self._path
