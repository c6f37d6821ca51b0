"""Machine: which fetched records the program has received, and which of them are consumed.

    buffers ──take──▶ taken ──receive──▶ returned ──ask──▶ consumed
                        ▲                    │
                        └──── put_back ──────┘  of what was taken and not received

A record counts as consumed when the program has received it and has asked for the next one. So three positions of a
partition follow each other: `position` (the next record to take from the buffers), `returned` (what `commit()` commits)
and `consumed` (what automatic commits commit). With a blocking client the program runs in another thread: the
program's next call tells the loop how many records the program has received. Records that the program has not received,
because its call was interrupted, are returned by that next call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any

from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.consumer.record_stream import RecordStream
from barnabas.client.consumer.subscription import Mark, PartitionState, SubscriptionState
from barnabas.client.serialization import Decode
from barnabas.client.values import ConsumerRecord, FetchedBatches, IsolationLevel
from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition

Record = ConsumerRecord[Any, Any]
Wanted = Collection[TopicPartition] | None
"""The partitions to take records from; None for all."""


class HandoutRun:
    """Consecutive records of one partition that were taken from a buffer."""

    __slots__ = ("at", "end", "moves", "records", "state")

    def __init__(self, state: PartitionState, records: list[Record], end: Mark) -> None:
        self.state = state
        self.moves = state.moves
        self.records = records
        """May be empty: a buffer can end with markers, or with records that were compacted away."""
        self.end = end
        """The position after these records, and after what follows them in the buffer without being a record."""
        self.at = 0
        """The number of records that the program has received."""

    @property
    def is_current(self) -> bool:
        """Whether the partition is still assigned and was not moved since the records were taken."""
        return self.state.moves == self.moves


class HandedOut:
    """The records that one call returns. With a blocking client, the program's next call tells how many of these
    records the program has received."""

    def __init__(self, handout: Handout, runs: list[HandoutRun]) -> None:
        self.ended = False
        """Whether the records that the program has not received were put back."""
        self.one_by_one = False
        """Whether the program asks for each record by itself, so that all but the last one are consumed."""
        self._handout = handout
        self._runs = runs
        self.records = records_of(runs)
        self._received = 0

    def receive(self, count: int) -> None:
        """The program has received the first `count` records."""
        if self.one_by_one and count - self._received > 1:
            self._runs = self._handout.receive(self._runs, count - 1 - self._received)
            self._handout.ask()
            self._received = count - 1
        self._runs = self._handout.receive(self._runs, count - self._received)
        self._received = count

    def put_back(self) -> None:
        """The program will not receive the other records: the next call takes them."""
        self.ended = True
        self._handout.put_back(self._runs)


class ColumnDelivery:
    """A buffer whose records a call returns as columns: `HandedOut` with one RecordBatch."""

    def __init__(self, handout: Handout, state: PartitionState, batches: FetchedBatches, records: Any) -> None:
        self.ended = self.one_by_one = False
        self._state = state
        self._moves = state.moves
        self.records = [records]
        self._handout = handout
        self._batches: FetchedBatches | None = batches

    def receive(self, count: int) -> None:
        if count and self._batches is not None:
            if self._state.moves == self._moves:
                self._handout.finish_buffer(self._batches)
            self._batches = None

    def put_back(self) -> None:
        self.ended = True
        if self._batches is not None and self._state.moves == self._moves:
            self._handout.put_back_buffer(self._batches)


class Handout:
    """Takes buffers from the fetcher for the program. At most one buffer is partly read."""

    def __init__(
        self,
        fetcher: Fetcher,
        subscription: SubscriptionState,
        *,
        isolation: IsolationLevel,
        check_crcs: bool,
        key: Decode | None,
        value: Decode | None,
    ) -> None:
        self._fetcher = fetcher
        self._subscription = subscription
        self._isolation = isolation
        self._check_crcs = check_crcs
        self._key = key
        self._value = value
        self._stream: RecordStream | None = None
        self._source: tuple[PartitionState, int] | None = None
        """The partition of the partly read buffer, and its `moves` when the buffer was taken. If these differ, the
        buffer is stale, even if the partition is at the same position again: it is fetched again from there."""
        self._left: deque[HandoutRun] = deque()
        """Runs that were taken and not received, of an iteration or of an interrupted call, in order."""
        self._returned: dict[TopicPartition, PartitionState] = {}
        """The partitions of records that the program has received since it asked last."""
        self._iterated: HandoutRun | None = None
        """The run of the last record of an iteration, if more of the run is left; None after any other call."""

    # -- what the program has received -----------------------------------------------------------------------------

    def ask(self) -> None:
        """Count all records that the program has received as consumed. Called when the program asks for more records or
        commits its positions."""
        for state in self._returned.values():
            state.consumed = state.returned
        self._returned.clear()
        self._iterated = None

    def receive(self, runs: list[HandoutRun], count: int | None = None) -> list[HandoutRun]:
        """The program has received the first `count` records of these runs, or all. Returns the other runs."""
        left = sum(len(run.records) - run.at for run in runs) if count is None else count
        for index, run in enumerate(runs):
            waiting = len(run.records) - run.at
            if left < waiting:
                run.at += left
                if left:
                    self._return(run, _mark_after(run.records[run.at - 1]))
                return runs[index:]
            left -= waiting
            run.at = len(run.records)
            self._return(run, run.end)
        return []

    def _return(self, run: HandoutRun, mark: Mark) -> None:
        if run.is_current:
            run.state.returned = mark
            self._returned[run.state.partition] = run.state

    def put_back(self, runs: list[HandoutRun]) -> None:
        """Keep runs that the program has not received for the next call."""
        self._left.extendleft(reversed(runs))

    # -- records ---------------------------------------------------------------------------------------------------

    def next_at_once(self) -> Record | None:
        """`ask` and `next_record`, for a record that follows the last one in its run; None if it takes more work."""
        run = self._iterated
        if run is None:
            return None
        state, records, at = run.state, run.records, run.at + 1
        if at >= len(records) or state.moves != run.moves or state.paused or state.revoking:
            return None
        record = records[run.at]
        run.at = at
        state.consumed = state.returned
        state.returned = (record.offset + 1, record.leader_epoch)
        return record

    def next_record(self, limit: int, wanted: Wanted = None) -> Record | None:
        """The next record, which the program receives; None if none has arrived. Up to `limit` records are taken from
        the buffers at a time. Raises the error that stopped fetching if there are none."""
        run = self._next_left(wanted)
        if run is None:
            self._left.extend(self._take_from_buffers(limit, wanted))
            run = self._next_left(wanted)
            if run is None:
                return None
        record = run.records[run.at]
        if self.receive([run], 1):
            self._iterated = run
        else:
            self._left.remove(run)
        return record

    def take(self, limit: int, wanted: Wanted = None) -> list[HandoutRun]:
        """Up to `limit` records that have arrived. Raises the error that stopped fetching if there are none."""
        runs: list[HandoutRun] = []
        while limit > 0 and (run := self._next_left(wanted)) is not None:
            self._left.remove(run)
            if len(run.records) - run.at > limit:
                records = run.records[run.at : run.at + limit]
                self._left.appendleft(HandoutRun(run.state, run.records[run.at + limit :], run.end))
                run = HandoutRun(run.state, records, _mark_after(records[-1]))
            runs.append(run)
            limit -= len(run.records) - run.at
        return runs + self._take_from_buffers(limit, wanted, first=not runs)

    def _next_left(self, wanted: Wanted) -> HandoutRun | None:
        """The first run that was taken and not received, of a partition that may be read now."""
        left = self._left
        while left and not (left[0].is_current and left[0].records):
            self.receive([left.popleft()])
        for run in left:
            state = run.state
            if run.is_current and run.records and state.fetchable and (wanted is None or state.partition in wanted):
                return run
        return None

    def _take_from_buffers(self, limit: int, wanted: Wanted, *, first: bool = True) -> list[HandoutRun]:
        """Up to `limit` records. With `first` the program gets no others, so that an error is raised at once."""
        runs: list[HandoutRun] = []
        while limit > 0 and (first or self._fetcher.error is None):  # else the next call raises the error
            try:
                stream = self._current(wanted)
                part = None if stream is None else stream.take(limit)
            except BarnabasError:
                if not first:
                    break  # return the records now; the next call raises the error again
                self.put_back(runs)
                raise
            if stream is None or part is None:
                break
            state = self._subscription.partitions[stream.batches.partition]
            if stream.is_exhausted:
                self._stream = None
                self._fetcher.release(state.partition)
                runs.append(self._advance(state, part, stream.batches.end, stream.batches.end_epoch))
            else:
                runs.append(self._advance(state, part, part[-1].offset + 1, stream.leader_epoch))
                if len(part) < limit:
                    break  # before a record that cannot be read
            if part:
                first = False
                limit -= len(part)
        return runs

    def _current(self, wanted: Wanted) -> RecordStream | None:
        stream = self._stream
        if stream is not None:
            assert self._source is not None
            state, moves = self._source
            if state.moves == moves and state.fetchable and (wanted is None or state.partition in wanted):
                return stream
            self._set_aside()
        batches = self._fetcher.take(wanted)
        if batches is None:
            return None
        state = self._subscription.partitions[batches.partition]
        self._source = state, state.moves
        self._stream = RecordStream(
            batches, isolation=self._isolation, check_crcs=self._check_crcs, key=self._key, value=self._value
        )
        return self._stream

    def _set_aside(self) -> None:
        """Give the partly read buffer back to the fetcher, for a partition that is paused or not wanted, or for
        `buffer`; drop it if the position has changed or the partition was revoked."""
        stream, self._stream = self._stream, None
        assert stream is not None
        assert self._source is not None
        state, moves = self._source
        if state.moves == moves:
            assert state.position is not None
            self._fetcher.put_back(stream.batches, state.position)
        else:
            self._fetcher.release(state.partition)

    def _advance(self, state: PartitionState, records: list[Record], position: int, leader_epoch: int) -> HandoutRun:
        """Move the position past records, and return them as a run."""
        state.position = position
        if leader_epoch >= 0:
            state.leader_epoch = leader_epoch
        return HandoutRun(state, records, (position, state.leader_epoch))

    # -- whole buffers ---------------------------------------------------------------------------------------------

    def buffer(self) -> FetchedBatches | None:
        """A whole buffer, or the rest of a partly read one; None if none has arrived. Raises the error that stopped
        fetching. Call `finish_buffer` when the program has the buffer, or `put_back_buffer`."""
        for run in self._left:
            if run.is_current:
                run.state.rewind()  # records that were taken are fetched again, as columns
        self._left.clear()
        if self._stream is not None:
            self._set_aside()
        batches = self._fetcher.take()
        if batches is not None:
            self._fetcher.release(batches.partition)
        return batches

    def put_back_buffer(self, batches: FetchedBatches) -> None:
        """Keep a buffer that the program has not received."""
        self._fetcher.put_back(batches, batches.position, released=True)

    def finish_buffer(self, batches: FetchedBatches) -> None:
        """Move the position past a buffer that the program has received."""
        state = self._subscription.partitions.get(batches.partition)
        if state is not None and state.position == batches.position:
            self.receive([self._advance(state, [], batches.end, batches.end_epoch)])


def _mark_after(record: Record) -> Mark:
    return record.offset + 1, record.leader_epoch


def records_of(runs: list[HandoutRun]) -> list[Record]:
    """The records of these runs that the program has not received."""
    if len(runs) == 1 and not runs[0].at:
        return runs[0].records
    return [record for run in runs for record in run.records[run.at :]]
