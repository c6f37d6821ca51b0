"""Shell: a read of a log, planned on the event loop and carried out in any thread that may wait for the disk.

The plan holds everything that may change after planning: the segments' open files, their sizes, and the position of
the batch in the active segment. Carrying out the plan uses nothing else, so it is safe in another thread while the loop
appends to the log. A segment that is deleted in between is still read through its descriptor.
"""

from __future__ import annotations

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.fs import File
from barnabas.server.storage.segments.segment import Found, Segment
from barnabas.server.storage.state import LogState
from barnabas.server.storage.values import EMPTY_READ, ReadResult


class ReadCandidate(Struct, frozen=True):
    """A segment that may contain the requested offset."""

    segment: Segment
    file: File
    end: int
    """The position at which the read ends. -1: the read ends at the batch with the upper offset, not looked up yet."""
    found: Found | None
    """The position of the batch, or None if it is still to be looked up in the file."""


class _MustWait(Exception):  # noqa: N818 - control flow inside this module, not an error
    """The bytes are not in the page cache."""


class _CachedFile:
    """Reads a file from the page cache only. Raises _MustWait if the bytes are not there."""

    __slots__ = ("_file", "path")

    def __init__(self, file: File) -> None:
        self._file = file
        self.path = file.path

    def read_at(self, position: int, length: int) -> Buffer:
        data = self._file.try_read_at(position, length)
        if data is None:
            raise _MustWait
        return data


class LogReadPlan:
    """A read that can be carried out. Call `try_run()` on the loop, and if it returns None, `run()` in an executor."""

    __slots__ = ("_candidates", "_max_bytes", "_min_one_batch", "_offset", "_upper")

    def __init__(
        self, candidates: list[ReadCandidate], offset: int, upper: int, max_bytes: int, min_one_batch: bool
    ) -> None:
        self._candidates = candidates
        self._offset = offset
        self._upper = upper
        self._max_bytes = max_bytes
        self._min_one_batch = min_one_batch

    def run(self) -> ReadResult:
        """Read the batches. Raises StorageError, which the caller has to pass to `Log.fail` on the loop."""
        for candidate in self._candidates:
            result = self._read(candidate, candidate.file)
            if result is not None:
                return result
        return EMPTY_READ

    def try_run(self) -> ReadResult | None:
        """Read the batches if they are in the page cache; otherwise return None."""
        try:
            for candidate in self._candidates:
                if candidate.found is None and not candidate.segment.indexed:
                    return None
                result = self._read(candidate, _CachedFile(candidate.file))
                if result is not None:
                    return result
        except _MustWait:
            return None
        return EMPTY_READ

    def _read(self, candidate: ReadCandidate, file: File | _CachedFile) -> ReadResult | None:
        segment = candidate.segment
        found = candidate.found or segment.find(self._offset, file)
        if found is None:
            return None
        end = candidate.end
        if end < 0:
            upper = segment.find(self._upper, file)
            end = segment.size if upper is None else upper.position
        position, first_size = found
        length = self._max_bytes
        if length < first_size:
            if not self._min_one_batch:
                return EMPTY_READ
            length = first_size
        length = min(length, end - position)
        if length <= 0:
            return EMPTY_READ
        data = file.read_at(position, length)
        return ReadResult(data, int.from_bytes(data[:8], "big"))


def plan_read(
    state: LogState, offset: int, max_bytes: int, upper_offset: int | None, min_one_batch: bool
) -> LogReadPlan:
    """Plan a read of about `max_bytes` from the batch that contains `offset`; see `Log.plan_read`."""
    if state.failure is not None:
        state.check_usable()
    end = state.log_end_offset
    if not state.log_start_offset <= offset <= end:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {state.topic_partition} is outside {state.log_start_offset}..{end}",
        )
    if state.config.tiered and offset < state.segments.first.base_offset:
        raise KafkaError(
            ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
            f"offset {offset} of {state.topic_partition} is in the object store; the local log starts at "
            f"{state.local_log_start_offset}",
        )
    upper = end if upper_offset is None or upper_offset > end else upper_offset
    candidates: list[ReadCandidate] = []
    if offset < upper:
        try:
            _collect(state, offset, upper, candidates)
        except StorageError as e:
            state.fail(e)
            raise
    return LogReadPlan(candidates, offset, upper, max_bytes, min_one_batch)


def _collect(state: LogState, offset: int, upper: int, candidates: list[ReadCandidate]) -> None:
    """Add the segment that contains `offset`, and the following ones up to the first that is not empty.

    Compaction can remove the last batches of a segment; then the first batch at or above `offset` lies in a later one.
    """
    segments = state.segments
    segment = segments.active
    if offset >= segment.base_offset:
        _add_active(state, segment, offset, upper, candidates)
        return
    first = segment = segments.floor(offset) or segments.first
    while True:
        if segment is segments.active:
            _add_active(state, segment, offset, upper, candidates)
            return
        following = segments.after(segment)
        assert following is not None
        segment.delete_damaged_index()
        end = segment.size if upper >= following.base_offset else -1
        candidates.append(ReadCandidate(segment, segment.file(), end, None))
        if following.base_offset >= upper or (segment is not first and segment.size):
            return
        segment = following


def _add_active(state: LogState, segment: Segment, offset: int, upper: int, candidates: list[ReadCandidate]) -> None:
    """Add the active segment. Its batches are looked up now, because each append changes the positions that the segment
    remembers."""
    found = segment.find(offset)
    if found is None:
        return
    end = segment.size
    if upper < state.log_end_offset:
        bound = segment.find(upper)
        end = end if bound is None else bound.position
    candidates.append(ReadCandidate(segment, segment.file(), end, found))
