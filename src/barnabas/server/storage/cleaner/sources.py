"""Shell: the source segments of a pass, read in chunks, and the aborted transactions that overlap each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from barnabas.protocol.records.batch import LOG_OVERHEAD, iter_batches
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.server.storage import names
from barnabas.server.storage.cleaner.grouping import Sizes
from barnabas.server.storage.cleaner.keys import Placed
from barnabas.server.storage.cleaner.task import CleaningTask
from barnabas.server.storage.errors import FileMissingError
from barnabas.server.storage.fs import Access, FileSystem
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.values import AbortedTxn

_CHUNK_MIN: Final = 65_536
Chunk = tuple[memoryview, list[Placed]]


class CleanedSegments:
    """The segments of `CleaningTask.segments`."""

    def __init__(self, fs: FileSystem, task: CleaningTask, take: Callable[[int], None]) -> None:
        self._fs = fs
        self._task = task
        self._take = take
        self._chunk = max(task.config.log_cleaner_io_buffer_size // 2, _CHUNK_MIN)
        self.segments = [
            Segment(
                fs,
                task.path,
                source.base_offset,
                index_interval_bytes=task.index_interval_bytes,
                created_ms=task.now_ms,
                size=source.size,
            )
            for source in task.segments
        ]

    def end_of(self, index: int) -> int:
        """The base offset of the next segment."""
        following = index + 1
        return self.segments[following].base_offset if following < len(self.segments) else self._task.upper_offset

    def index_of(self, base_offset: int) -> int:
        return next(i for i, s in enumerate(self.segments) if s.base_offset == base_offset)

    def sizes(self, below: int) -> list[Sizes]:
        """The file sizes of the segments with a base offset below `below`."""
        return [
            Sizes(
                segment.base_offset,
                segment.size,
                self._file_size(segment, names.OFFSET_INDEX),
                self._file_size(segment, names.TIME_INDEX),
                self.end_of(i),
            )
            for i, segment in enumerate(self.segments)
            if segment.base_offset < below
        ]

    def _file_size(self, segment: Segment, kind: str) -> int:
        try:
            return self._fs.stat(segment.file_path(kind)).size
        except FileMissingError:
            return 0

    def chunks(self, index: int, start_offset: int = 0) -> Iterator[Chunk]:
        """The batches of one segment in chunks; batches that end below `start_offset` may be left out.

        Raises CorruptBatchError.
        """
        segment = self.segments[index]
        size = segment.size
        position = segment.lookup(start_offset) if start_offset > segment.base_offset else 0
        file = self._fs.open(segment.file_path(names.LOG), Access.READ)
        length = self._chunk
        try:
            while position < size:
                buf = memoryview(file.read_at(position, min(length, size - position)))
                self._take(len(buf))
                batches = list(iter_batches(buf))
                if batches:
                    yield buf, batches
                    last_pos, last = batches[-1]
                    position, length = position + last_pos + last.size, self._chunk
                    continue
                # The buffer contains no whole batch: the batch is larger than the chunk, or incomplete.
                needed = LOG_OVERHEAD + int.from_bytes(buf[8:12], "big", signed=True) if len(buf) >= LOG_OVERHEAD else 0
                if not len(buf) < needed <= size - position:
                    raise CorruptBatchError(
                        f"{file.path} contains no whole batch at byte {position} of {size}; "
                        "delete the replica's directory to fetch the log again, or the topic if it has one replica"
                    )
                length = needed
        finally:
            file.close()
        segment.cool()

    def aborted(self, index: int) -> list[AbortedTxn]:
        """The aborted transactions with records in the segment. Their markers can be in later segments."""
        start, end = self.segments[index].base_offset, self.end_of(index)
        found: list[AbortedTxn] = []
        for segment in self.segments[index:]:
            some, complete = segment.txn_index.collect(start, end)
            found += some
            if complete:
                return found
        return found + [t for t in self._task.later_aborted if t.last_offset >= start and t.first_offset < end]
