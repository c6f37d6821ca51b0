"""Machine: the delivery state of a share partition (KIP-932): one topic-partition in one share group.

    start_offset                                                end_offset
    all records below are completed                             no record from here on has been delivered yet

                    acquire                     accept
    Available ───────────────► Acquired ───────────────────► Acknowledged ─┐
        ▲                         │  reject, or a gap                      ├─► completed: start_offset moves past it
        │                         ├──────────────────────────► Archived ───┘
        └─────────────────────────┘
          release, lock expired, member left the group;
          Archived instead after share.delivery.count.limit deliveries

The acquired state exists only in memory: a new leader delivers acquired records again. A transition out of the acquired
state takes effect when the share coordinator has written it (`take_write`, `settle`). Until then the record stays
acquired, and no other member can acquire it. An acknowledged record is therefore never delivered again, even by another
leader.

Kafka's counterpart is SharePartition. This class has no locks and no timers; the shell `shares/partition.py` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.replication.rules.share_runs import OffsetRuns
from barnabas.server.replication.rules.share_values import (
    TERMINAL,
    Ack,
    AckType,
    Acquired,
    AcquireRequest,
    LogRange,
    RecordState,
    SharePartitionConfig,
    ShareStateWrite,
    StateBatch,
)


class PendingTransition(Struct, frozen=True):
    """A transition that is not written yet. A `ShareStateWrite` covers all transitions up to its own `sequence`."""

    sequence: int
    state: RecordState
    deliveries: int


class InFlightState(Struct, frozen=True):
    """The delivery state of an offset."""

    state: RecordState
    deliveries: int = 0
    member: str = ""
    lock_until_ms: int = 0
    pending: PendingTransition | None = None


_AVAILABLE: Final = InFlightState(RecordState.AVAILABLE)
_ARCHIVED: Final = InFlightState(RecordState.ARCHIVED)
THROTTLE_FROM_MIN: Final = 2
"""The smallest delivery count from which fewer records are delivered together (see `_throttle`)."""


class SharePartitionState:
    """The delivery states of one share partition, at the leader of the partition."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """`batches` are the stored states. All other offsets from `start_offset` on are available."""
        self._runs: OffsetRuns[InFlightState] = OffsetRuns(start_offset)
        self._sequence = 0
        self._written = 0
        self._writing = 0
        for batch in sorted(batches):
            if batch.last < self._runs.end:
                continue
            if batch.first > self._runs.end:
                self._runs.append(batch.first - 1, _AVAILABLE)
            self._runs.append(batch.last, InFlightState(RecordState(batch.state), batch.deliveries))
        self._advance()

    # -- queries -------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self._runs.start

    @property
    def end_offset(self) -> int:
        """The offset after the last delivered one."""
        return self._runs.end

    def runs(self) -> list[tuple[int, int, InFlightState]]:
        """The runs between the start and end offsets, for tests and diagnostics."""
        return list(self._runs)

    def next_fetch_offset(self) -> int:
        """The offset of the first record that can be acquired; the end offset if there is none below it."""
        for first, _, entry in self._runs:
            if entry.state is RecordState.AVAILABLE:
                return first
        return self._runs.end

    def held(self) -> int:
        """The number of in-flight records, which share.partition.max.record.locks limits."""
        return sum(last - first + 1 for first, last, entry in self._runs if entry.state not in TERMINAL)

    def may_acquire(self, config: SharePartitionConfig) -> bool:
        """Whether records are available again, or the limit of in-flight records allows new ones."""
        return self.next_fetch_offset() < self._runs.end or self.held() < config.share_partition_max_record_locks

    def next_deadline_ms(self) -> int | None:
        """The time at which the first acquisition lock expires, or None."""
        deadlines = [
            entry.lock_until_ms
            for _, _, entry in self._runs
            if entry.state is RecordState.ACQUIRED and entry.pending is None
        ]
        return min(deadlines, default=None)

    # -- acquire -------------------------------------------------------------------------------------------------

    def acquire(
        self,
        request: AcquireRequest,
        config: SharePartitionConfig,
        fetch_offset: int,
        ranges: Iterable[LogRange],
        now_ms: int,
    ) -> list[Acquired]:
        """Acquire records of `ranges`, the batches that the log holds from `fetch_offset` on, for one member."""
        cursor = max(fetch_offset, self.start_offset)
        acquired: list[Acquired] = []
        taken = 0
        for batch in ranges:
            first = max(batch.first, cursor)
            if batch.last < first:
                continue
            if first > cursor:
                self._archive_missing(cursor, first - 1)
            if batch.skip:
                self._archive_missing(first, batch.last)
                cursor = batch.last + 1
                continue
            got, more = self._acquire_batch(request, config, first, batch.last, request.max_records - taken, now_ms)
            for piece in got:
                taken += piece.last - piece.first + 1
                _add(acquired, piece, request.batch_size)
            cursor = batch.last + 1
            if taken >= request.max_records or not more:
                break
        self._advance()
        return acquired

    def _archive_missing(self, first: int, last: int) -> None:
        """Archive offsets without records for members. No write is needed: a new leader sees them in the log."""
        for low, high, entry in self._runs.within(first, last):
            if entry.state is RecordState.AVAILABLE:
                self._runs.put(low, high, _ARCHIVED)
        if last >= self._runs.end:
            self._runs.append(last, _ARCHIVED)

    def _acquire_batch(
        self, request: AcquireRequest, config: SharePartitionConfig, first: int, last: int, wanted: int, now_ms: int
    ) -> tuple[list[Acquired], bool]:
        """Acquire records of one batch of the log. The second result is whether the next batch may be acquired too."""
        lock_until_ms = now_ms + config.share_record_lock_duration_ms
        got: list[Acquired] = []
        for low, high, entry in self._runs.within(first, last):
            if entry.state is not RecordState.AVAILABLE:
                continue
            share, throttled = _throttle(entry.deliveries, high - low + 1, config.share_delivery_count_limit)
            if request.strict:
                share = min(share, wanted)
            if share <= 0:
                return got, False
            fresh = InFlightState(RecordState.ACQUIRED, entry.deliveries + 1, request.member, lock_until_ms)
            self._runs.put(low, low + share - 1, fresh)
            got.append(Acquired(low, low + share - 1, fresh.deliveries))
            wanted -= share
            if throttled:
                return got, False
        if last >= self._runs.end:
            begin = self._runs.end
            share = min(last - begin + 1, config.share_partition_max_record_locks - self.held())
            if request.strict:
                share = min(share, wanted)
            if share <= 0:
                return got, False
            self._runs.append(begin + share - 1, InFlightState(RecordState.ACQUIRED, 1, request.member, lock_until_ms))
            got.append(Acquired(begin, begin + share - 1, 1))
            return got, begin + share - 1 == last
        return got, True

    # -- transitions ---------------------------------------------------------------------------------------------

    def acknowledge(self, member: str, acks: Sequence[Ack], config: SharePartitionConfig, now_ms: int) -> int | None:
        """Apply all acknowledgements or none.

        Returns the sequence number that must be written before the response is sent, or None if nothing must be
        written. Acknowledgements below the start offset are ignored. Raises KafkaError INVALID_RECORD_STATE,
        INVALID_REQUEST.
        """
        pieces = [piece for ack in acks for piece in _pieces(ack, self.start_offset)]
        for first, last, kind in pieces:
            if last >= self._runs.end:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Offsets {first} to {last} were never acquired.")
            if kind is AckType.RENEW and not config.share_renew_acknowledge_enable:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Lock renewal is disabled for this group: set share.renew.acknowledge.enable to allow it.",
                )
            for low, high, entry in self._runs.within(first, last):
                if entry.state is not RecordState.ACQUIRED or entry.pending is not None or entry.member != member:
                    raise KafkaError(
                        ErrorCode.INVALID_RECORD_STATE,
                        f"Offsets {low} to {high} are not acquired by member {member}.",
                    )
        lock_until_ms = now_ms + config.share_record_lock_duration_ms
        sequence = self._sequence + 1
        for first, last, kind in pieces:
            if kind is AckType.RENEW:
                self._runs.change(first, last, partial(replace, lock_until_ms=lock_until_ms))
            else:
                self._sequence = sequence
                self._runs.change(first, last, partial(_changed, kind=kind, sequence=sequence, config=config))
        return sequence if self._sequence == sequence else None

    def release(self, member: str, config: SharePartitionConfig) -> int | None:
        """Release the records of a member that left. The interrupted delivery still counts, as in Kafka 4.3.

        Returns the sequence number that must be written, or None if no record was released.
        """
        return self._free(lambda entry: entry.member == member, partial(_returned, config=config))

    def expire(self, config: SharePartitionConfig, now_ms: int) -> int | None:
        """Release the records whose acquisition lock has expired.

        Returns the sequence number that must be written, or None if no record was released.
        """
        return self._free(lambda entry: entry.lock_until_ms <= now_ms, partial(_returned, config=config))

    def _free(
        self, chosen: Callable[[InFlightState], bool], after: Callable[[InFlightState], tuple[RecordState, int]]
    ) -> int | None:
        sequence = self._sequence + 1
        for first, last, entry in list(self._runs):
            if entry.state is RecordState.ACQUIRED and entry.pending is None and chosen(entry):
                self._sequence = sequence
                self._runs.put(first, last, replace(entry, pending=PendingTransition(sequence, *after(entry))))
        return sequence if self._sequence == sequence else None

    def on_log_start(self, offset: int) -> None:
        """The log start offset is now `offset`: all records below are completed."""
        if offset > self.start_offset:
            self._runs.drop_below(offset)
            self._advance()

    # -- writes --------------------------------------------------------------------------------------------------

    @property
    def unwritten(self) -> bool:
        """Whether transitions wait to be written and no write is in progress."""
        return self._sequence > self._written and self._writing == 0

    def take_write(self) -> ShareStateWrite:
        """All transitions that wait to be written. `settle` must be called before the next `take_write`."""
        assert self._writing == 0, "one write at a time: the start offset of the next write may depend on this one"
        self._writing = self._sequence
        batches: list[StateBatch] = []
        complete = 0
        for first, last, entry in self._runs:
            state, deliveries = entry.state, entry.deliveries
            if entry.pending is not None:
                state, deliveries = entry.pending.state, entry.pending.deliveries
                _add_batch(batches, StateBatch(first, last, state, deliveries))
            if state in TERMINAL:
                complete += last - first + 1
        return ShareStateWrite(self._writing, self.start_offset, complete, batches)

    def settle(self, *, written: bool) -> None:
        """The write was committed or failed. After a failure the records stay acquired with their previous locks."""
        sequence, self._writing = self._writing, 0
        self._written = sequence
        for first, last, entry in list(self._runs):
            pending = entry.pending
            if pending is None or pending.sequence > sequence:
                continue
            self._runs.put(
                first,
                last,
                InFlightState(pending.state, pending.deliveries) if written else replace(entry, pending=None),
            )
        self._advance()

    def _advance(self) -> None:
        """Move the start offset past the completed records at the start."""
        start = self._runs.end
        for first, _, entry in self._runs:
            if entry.state not in TERMINAL:
                start = first
                break
        self._runs.drop_below(start)


def _returned(entry: InFlightState, config: SharePartitionConfig) -> tuple[RecordState, int]:
    """The next state and delivery count of a record that was released without an acknowledgement."""
    exhausted = entry.deliveries >= config.share_delivery_count_limit
    return (RecordState.ARCHIVED if exhausted else RecordState.AVAILABLE, entry.deliveries)


def _changed(entry: InFlightState, kind: AckType, sequence: int, config: SharePartitionConfig) -> InFlightState:
    match kind:
        case AckType.ACCEPT:
            state = RecordState.ACKNOWLEDGED
        case AckType.RELEASE if entry.deliveries < config.share_delivery_count_limit:
            state = RecordState.AVAILABLE
        case _:
            state = RecordState.ARCHIVED
    return replace(entry, pending=PendingTransition(sequence, state, entry.deliveries))


def _pieces(ack: Ack, start_offset: int) -> list[tuple[int, int, AckType]]:
    """Split the acknowledgement into runs of one type, without offsets below `start_offset`.

    Raises KafkaError INVALID_REQUEST.
    """
    first, last, types = ack
    if first > last or len(types) not in (1, last - first + 1):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{len(types)} acknowledgement types for the offsets {first} to {last}."
        )
    try:
        kinds = [AckType(number) for number in types]
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown acknowledgement type in {list(types)}.") from None
    if last < start_offset:
        return []
    low = max(first, start_offset)
    if len(kinds) == 1:
        return [(low, last, kinds[0])]
    pieces: list[tuple[int, int, AckType]] = []
    for offset in range(low, last + 1):
        kind = kinds[offset - first]
        if pieces and pieces[-1][2] is kind:
            pieces[-1] = (pieces[-1][0], offset, kind)
        else:
            pieces.append((offset, offset, kind))
    return pieces


def _throttle(deliveries: int, size: int, limit: int) -> tuple[int, bool]:
    """The number of records, out of `size` with `deliveries` deliveries each, to deliver together; whether it is less.

    A record that cannot be processed fails all records that are delivered with it. The more often a run was delivered,
    the fewer of its records are therefore delivered together; on the last attempt each record is delivered alone
    (SharePartition.throttleRecordsDelivery).
    """
    throttle_from = max(THROTTLE_FROM_MIN, -(-limit // 2))
    if deliveries < throttle_from:
        return size, False
    share = 1 if deliveries >= limit - 1 else max(size >> (deliveries - throttle_from + 1), 1)
    return share, share < size


def _add(acquired: list[Acquired], piece: Acquired, batch_size: int) -> None:
    """Append a run, merged with the previous adjacent run as long as the result has at most `batch_size` records."""
    if acquired:
        before = acquired[-1]
        together = before.last + 1 == piece.first and before.deliveries == piece.deliveries
        if together and before.last - before.first + 1 < batch_size:
            acquired[-1] = before._replace(last=piece.last)
            return
    acquired.append(piece)


def _add_batch(batches: list[StateBatch], batch: StateBatch) -> None:
    if batches and batches[-1].last + 1 == batch.first and batches[-1][2:] == batch[2:]:
        batches[-1] = batches[-1]._replace(last=batch.last)
    else:
        batches.append(batch)
