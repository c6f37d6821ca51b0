"""Shell: checks the batches of large Produce requests off the event loop, within a budget for each request.

Most requests are checked on the loop, within microseconds. The duration of a check depends on what the client has sent,
and one request may legally hold millions of records, inflate to gigabytes, or have to be recompressed. `light_cost`
and the `INLINE_...` limits say what the loop may do itself: some ten milliseconds. Everything else goes to a thread,
where inflating and compressing do not hold the interpreter lock, or, if the records are many, to a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from struct import Struct as Layout
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError, without_traceback
from barnabas.protocol.records.batch import CODEC_MASK, HEADER_SIZE, BatchHeader
from barnabas.protocol.records.compression import DECOMPRESSED_BYTES_MAX
from barnabas.protocol.records.errors import InflationError
from barnabas.protocol.records.scan import find_timestamp
from barnabas.protocol.records.validate import Checked, ValidationRules, check

INLINE_RECORDS: Final = 10_000
"""The most records of a request that are checked on the event loop: at most 0.7 us each."""
INLINE_BYTES: Final = 256 * 1024
"""The most bytes of a request that are inflated or compressed on the event loop."""
INLINE_INFLATED_BYTES: Final = 8 * 1024 * 1024
FREE_RECORDS: Final = 500
"""A request with no more records, and without compression, does not count for the turn of the event loop."""
TURN_COST_MAX: Final = INLINE_RECORDS
"""The cost of the requests that the loop checks in one turn, when many arrive at once: as much as one request may cost.
The first one is always checked. Inflating 32 bytes costs about as much as checking a record. Ten batches of 1 MB with
records of 1 KB fit; a client that sends one after the other keeps the loop in one turn."""
_BYTES_PER_RECORD: Final = 32
PROCESS_RECORDS: Final = 50_000
"""A batch of more records is checked in the process. Fewer records do not pay for the way to the process."""
REQUEST_INFLATED_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The most bytes to which the batches of one request may inflate. A request has at most socket.request.max.bytes
(100 MiB); data that compress to less than a tenth come in requests of some megabytes (max.request.size)."""
REQUEST_RECORDS_MAX: Final = 16 * 1024 * 1024
"""The most records of one request. A request of 100 MiB without compression has at most 15 million records."""
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most bytes of recompressed records, of all requests together, that wait for their append. A batch beyond them is
checked a second time, when it is appended."""
_COUNT: Final = Layout(">i")
_COUNT_AT: Final = 57
_ATTRIBUTES_AT: Final = 22
_LAST_DELTA: Final = Layout(">i")
_LAST_DELTA_AT: Final = 23

T = TypeVar("T")
Outcome = Checked | KafkaError | None
"""The result of a check; None if the append checks the batch itself."""


class ProducedBatch(Struct, frozen=True):
    """The batch of one partition in a Produce request, and the rules of its topic."""

    records: Buffer
    rules: ValidationRules

    @property
    def record_count(self) -> int:
        """The number of records that the header declares."""
        return record_count(self.records)

    @property
    def is_transformed(self) -> bool:
        """Whether the batch has to be inflated, compressed, or both."""
        codec, target = self.records[_ATTRIBUTES_AT] & CODEC_MASK, self.rules.compression_type
        return bool(codec) or (target is not None and target != codec)


class BatchProcess(Protocol):
    """Runs functions of a batch in a process. The methods block."""

    def check(self, buf: Buffer, rules: ValidationRules, now_ms: int, limit_bytes: int) -> Checked:
        """`validate.check`."""
        ...

    def find_timestamp(
        self,
        buf: Buffer,
        header: BatchHeader,
        timestamp: int,
        least_offset: int,
        max_decompressed_message_bytes: int,
    ) -> tuple[int, int] | None:
        """`scan.find_timestamp`."""
        ...

    def stop(self) -> None:
        """End the process. May be called from any thread."""
        ...


def record_count(records: Buffer) -> int:
    """The number of records that the header of a batch declares; 0 if the header is cut."""
    return max(_COUNT.unpack_from(records, _COUNT_AT)[0], 0) if len(records) >= HEADER_SIZE else 0


def _records_to_read(records: Buffer) -> int:
    """The number of records that a check of the batch reads: the record count of the header, or 0 if the last offset
    delta of the header contradicts the count, because a check rejects such a batch by its header."""
    count = record_count(records)
    if not count:
        return 0
    last_delta = _LAST_DELTA.unpack_from(records, _LAST_DELTA_AT)[0]
    return count if last_delta == count - 1 else 0


def light_cost(batches: Sequence[Buffer]) -> int | None:
    """The cost of checking these batches of one request on the event loop: the number of their records. None if the
    number of records does not give the cost: for many records, for compressed batches, and for so many bytes that the
    topic's codec matters."""
    count = size = 0
    for records in batches:
        if len(records) < HEADER_SIZE:
            continue  # will be rejected
        if records[_ATTRIBUTES_AT] & CODEC_MASK:
            return None
        declared = _COUNT.unpack_from(records, _COUNT_AT)[0]
        if declared > 0:
            count += declared
        size += len(records)
    return count if count <= INLINE_RECORDS and size <= INLINE_BYTES else None


class RequestChecks:
    """The checks of one Produce request: the budget of the request, and the results by the place of the batch.

    An error is kept as a value, without its traceback, whose frames hold what was inflated.
    """

    def __init__(self, batches: dict[int, ProducedBatch], now_ms: int) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._left = batches
        self._valid: dict[int, ProducedBatch] = {}
        """Batches that are valid, and whose recompressed records were not kept."""
        self._now_ms = now_ms
        self._kept_bytes = 0
        self._room = REQUEST_INFLATED_BYTES_MAX
        self._records = REQUEST_RECORDS_MAX

    @property
    def complete(self) -> bool:
        """Whether no batch is left for `finish`."""
        return not self._left and not self._valid

    def try_inline(self, checker: BatchChecker) -> None:
        """Check the batches now, unless that takes longer than the loop may be held: then some are left for `finish`.

        The append itself checks a batch of few records that is stored as it is.
        """
        left = self._left
        records = sum(batch.record_count for batch in left.values())
        if records > INLINE_RECORDS:
            return
        transformed = [place for place, batch in left.items() if batch.is_transformed]
        size = sum(len(left[place].records) for place in transformed)
        if size > INLINE_BYTES or not checker.take(records + size // _BYTES_PER_RECORD):
            return
        room = INLINE_INFLATED_BYTES
        for place in transformed:
            batch = left[place]
            try:
                outcome = check(batch.records, batch.rules, self._now_ms, room)
            except InflationError:
                return
            except KafkaError as error:
                self._settle(place, without_traceback(error))
            else:
                room -= outcome.inflated_bytes
                if not self._keep(outcome, checker):
                    return
                self._settle(place, outcome)
        left.clear()

    async def finish(self, place: int, checker: BatchChecker) -> Outcome:
        """The result for the batch at `place`, which the checker finds off the loop if it is not known yet."""
        batch = self._left.get(place)
        if batch is None:
            batch = self._valid.pop(place, None)
            if batch is None:
                return self.outcomes.get(place)
            return await checker.check(batch, self._now_ms, batch.rules.decompressed_bytes_max)
        if _records_to_read(batch.records) > self._records:
            return self._settle(place, _over(f"{REQUEST_RECORDS_MAX} records"))
        limit = min(batch.rules.decompressed_bytes_max, self._room)
        try:
            return self._settle(place, await checker.check(batch, self._now_ms, limit))
        except InflationError:
            return self._settle(place, _over(f"{REQUEST_INFLATED_BYTES_MAX} bytes without compression"))
        except KafkaError as error:
            return self._settle(place, without_traceback(error))

    async def decide(self, place: int, checker: BatchChecker) -> None:
        """As `finish`, for a batch that is appended later: its recompressed records are kept only if there is room."""
        batch = self._left.get(place)
        outcome = await self.finish(place, checker)
        if batch is not None and isinstance(outcome, Checked) and not self._keep(outcome, checker):
            del self.outcomes[place]
            self._valid[place] = batch

    def forget(self, place: int) -> None:
        """Free the result for the batch at `place`, which has been appended or rejected."""
        self.outcomes.pop(place, None)

    def close(self, checker: BatchChecker) -> None:
        """Free all results: the request has been handled, or was given up."""
        checker.kept_bytes -= self._kept_bytes
        self._kept_bytes = 0
        self.outcomes = {}
        self._left = {}
        self._valid = {}

    def _keep(self, outcome: Checked, checker: BatchChecker) -> bool:
        """Whether there is room for the recompressed records of a batch that waits for its append."""
        size = len(outcome.recompressed or b"")
        if checker.kept_bytes + size > KEPT_BYTES_MAX:
            return False
        checker.kept_bytes += size
        self._kept_bytes += size
        return True

    def _settle(self, place: int, outcome: Checked | KafkaError) -> Checked | KafkaError:
        batch = self._left.pop(place)
        self._records -= _records_to_read(batch.records)
        if isinstance(outcome, Checked) and batch.is_transformed:
            self._room -= outcome.inflated_bytes
        self.outcomes[place] = outcome
        return outcome


def _over(limit: str) -> KafkaError:
    # MESSAGE_TOO_LARGE, because Kafka's producer then splits the batch and sends it again
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"The request has more than {limit}: send fewer batches in one request."
    )


class BatchChecker:
    """Checks batches off the event loop. A broker has one.

    At most one batch is in the process and one is in the thread, so that memory is bounded. Batches have their turn in
    the order of their arrival: requests of several clients take turns batch by batch.
    """

    def __init__(self, process: BatchProcess | None) -> None:
        """`process` is for batches of many records; None stands for a thread, for simulations."""
        self._process = process
        # One thread: each thread that runs Python makes the event loop wait for the interpreter lock.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="barnabas-checks")
        self._process_waiter = ThreadPoolExecutor(1, thread_name_prefix="barnabas-check-process")
        self._turn_cost = 0
        self.kept_bytes = 0
        """Recompressed records, of all requests, that wait for their append."""

    async def run(self) -> None:
        """Wait until cancelled, and stop the process and the threads then."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            if self._process is not None:
                self._process.stop()
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._process_waiter.shutdown(wait=False, cancel_futures=True)

    def take(self, cost: int) -> bool:
        """Whether the event loop may check batches of this cost in its present turn; if so, the cost is counted."""
        if self._turn_cost and self._turn_cost + cost > TURN_COST_MAX:
            return False
        if not self._turn_cost:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._turn_cost += cost
        return True

    def _begin_turn(self) -> None:
        self._turn_cost = 0

    async def check(self, batch: ProducedBatch, now_ms: int, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Checked:
        """The result of `validate.check`. Raises as that does."""
        arguments = (batch.records, batch.rules, now_ms, limit_bytes)
        if self._process is not None and _records_to_read(batch.records) > PROCESS_RECORDS:
            return await _run(self._process_waiter, self._process.check, *arguments)
        return await _run(self._thread, check, *arguments)

    async def find(
        self,
        buf: Buffer,
        header: BatchHeader,
        timestamp: int,
        least_offset: int,
        max_decompressed_message_bytes: int,
    ) -> tuple[int, int] | None:
        """The result of `scan.find_timestamp`. Raises as that does."""
        arguments = (buf, header, timestamp, least_offset, max_decompressed_message_bytes)
        if self._process is not None and header.record_count > PROCESS_RECORDS:
            return await _run(self._process_waiter, self._process.find_timestamp, *arguments)
        return await _run(self._thread, find_timestamp, *arguments)


async def _run(executor: Executor, function: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(executor, function, *arguments)
