"""Shell: a read of a log, planned on the event loop and carried out wherever it may wait for the disk.

Planning fixes what must not change meanwhile: the segments' open files, how much of them is log, and where in the
active segment the batch lies. Carrying it out touches nothing but those, so that it is safe in another thread while
the log goes on; a segment that is deleted in between is still read through its descriptor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.fs import File
from barnabas.server.storage.segments.segment import Found, Segment
from barnabas.server.storage.values import EMPTY_READ, ReadResult

if TYPE_CHECKING:
    from barnabas.server.storage.log import Log


class Candidate(Struct, frozen=True):
    """A segment that may hold the offset. `found` is known where looking it up took no disk."""

    segment: Segment
    file: File
    end: int
    """Bytes that may be read, or -1: up to the batch that holds the upper offset, still to be found."""
    found: Found | None


class _MustWait(Exception):  # noqa: N818 - control flow inside this module, not an error
    """The bytes are not in the page cache."""


class _NoWait:
    """A file that refuses to wait; only the reading half of `File`."""

    __slots__ = ("_file", "path")

    def __init__(self, file: File) -> None:
        self._file = file
        self.path = file.path

    def read_at(self, position: int, length: int) -> Buffer:
        data = self._file.try_read_at(position, length)
        if data is None:
            raise _MustWait
        return data


class ReadPlan:
    """`try_run()` on the loop first; if that gives None, `run()` in an executor."""

    __slots__ = ("_candidates", "_max_bytes", "_min_one_batch", "_offset", "_upper")

    def __init__(
        self, candidates: list[Candidate], offset: int, upper: int, max_bytes: int, min_one_batch: bool
    ) -> None:
        self._candidates = candidates
        self._offset = offset
        self._upper = upper
        self._max_bytes = max_bytes
        self._min_one_batch = min_one_batch

    def run(self) -> ReadResult:
        """Raises StorageError; hand that to `Log.fail` on the loop."""
        for candidate in self._candidates:
            result = self._read(candidate, candidate.file)
            if result is not None:
                return result
        return EMPTY_READ

    def try_run(self) -> ReadResult | None:
        """The same, unless it would wait for the device: then None."""
        try:
            for candidate in self._candidates:
                if candidate.found is None and not candidate.segment.indexed:
                    return None
                result = self._read(candidate, _NoWait(candidate.file))
                if result is not None:
                    return result
        except _MustWait:
            return None
        return EMPTY_READ

    def _read(self, candidate: Candidate, file: File | _NoWait) -> ReadResult | None:
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
        return ReadResult(data, int.from_bytes(data[:8], "big"), segment.base_offset, position)


def read(
    self: Log, offset: int, max_bytes: int, *, upper_offset: int | None = None, min_one_batch: bool = True
) -> ReadResult:
    """`plan_read` carried out at once."""
    plan = self.plan_read(offset, max_bytes, upper_offset=upper_offset, min_one_batch=min_one_batch)
    try:
        return plan.run()
    except StorageError as e:
        self.fail(e)
        raise


def plan_read(
    self: Log, offset: int, max_bytes: int, *, upper_offset: int | None = None, min_one_batch: bool = True
) -> ReadPlan:
    """From the batch that holds `offset`, about `max_bytes`, below `upper_offset` (default: the log's end).

    `min_one_batch`: a first batch larger than `max_bytes` is given whole, otherwise nothing.
    Raises KafkaError(OFFSET_OUT_OF_RANGE) outside [log start, log end], StorageError.
    """
    self.check_usable()
    end = self.log_end_offset
    if not self.log_start_offset <= offset <= end:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {self.topic_partition} is outside {self.log_start_offset}..{end}",
        )
    upper = end if upper_offset is None or upper_offset > end else upper_offset
    candidates: list[Candidate] = []
    if offset < upper:
        try:
            _collect(self, offset, upper, candidates)
        except StorageError as e:
            self.fail(e)
            raise
    return ReadPlan(candidates, offset, upper, max_bytes, min_one_batch)


def _collect(log: Log, offset: int, upper: int, candidates: list[Candidate]) -> None:
    """The segment of `offset`, and what follows up to the first one that is not empty.

    Compaction can remove the end of a segment; then the following one has the first batch from `offset` on.
    """
    segments = log.segments
    segment = segments.active
    if offset >= segment.base_offset:
        _add_active(log, segment, offset, upper, candidates)
        return
    first = segment = segments.floor(offset) or segments.first
    while True:
        if segment is segments.active:
            _add_active(log, segment, offset, upper, candidates)
            return
        following = segments.after(segment)
        assert following is not None
        if (
            segment.base_offset < log.recovery_point
        ):  # an unflushed one keeps its descriptor: errors of fsync show there
            log.warm.touch(segment)
        end = segment.size if upper >= following.base_offset else -1
        candidates.append(Candidate(segment, segment.file(), end, None))
        if following.base_offset >= upper or (segment is not first and segment.size):
            return
        segment = following


def _add_active(log: Log, segment: Segment, offset: int, upper: int, candidates: list[Candidate]) -> None:
    """Looked up here and now: what the active segment remembers of its tail changes with every append."""
    found = segment.find(offset)
    if found is None:
        return
    end = segment.size
    if upper < log.log_end_offset:
        bound = segment.find(upper)
        end = end if bound is None else bound.position
    candidates.append(Candidate(segment, segment.file(), end, found))
