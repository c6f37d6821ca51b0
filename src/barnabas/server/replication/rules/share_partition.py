"""Machine: the delivery state of a share partition (KIP-932): one partition, as one share group sees it.

    start_offset                                                end_offset
    everything below is done with                               nothing above has been offered yet

                    acquire                     accept
    Available ───────────────► Acquired ───────────────────► Acknowledged ─┐
        ▲                         │  reject, or a gap                      ├─► done: start_offset passes over it
        │                         ├──────────────────────────► Archived ───┘
        └─────────────────────────┘
          release, lock ran out, member gone;
          after the last delivery allowed: Archived instead

Acquiring is remembered nowhere but here: a new leader offers acquired records again. Every other step takes effect
when it has been written (`take_write`, `settle`); until then the record stays acquired, and no one else can touch it.
So a record that was acknowledged is never offered again, whoever leads.

Kafka's counterpart is SharePartition; this has no locks and no timers, the driver (`replication.shares`) has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.replication.rules.share_runs import Runs
from barnabas.server.replication.rules.share_values import (
    TERMINAL,
    Ack,
    AckType,
    Acquired,
    LogRange,
    RecordState,
    SharePartitionConfig,
    StateBatch,
    Wish,
    Write,
)


class Change(Struct, frozen=True):
    """A step that is not written yet; it belongs to the turn that asked for it."""

    turn: int
    state: RecordState
    deliveries: int


class Cell(Struct, frozen=True):
    """What is known of an offset."""

    state: RecordState
    deliveries: int = 0
    member: str = ""
    lock_until_ms: int = 0
    change: Change | None = None


_AVAILABLE: Final = Cell(RecordState.AVAILABLE)
_ARCHIVED: Final = Cell(RecordState.ARCHIVED)
THROTTLE_FROM_MIN: Final = 2


class SharePartitionState:
    """One share partition at its leader."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """As read from the share coordinator. Offsets that no batch names were never offered, or not settled."""
        self._runs: Runs[Cell] = Runs(start_offset)
        self._turn = 0
        self._written = 0
        self._writing = 0
        for batch in sorted(batches):
            if batch.last < self._runs.end:
                continue
            if batch.first > self._runs.end:
                self._runs.append(batch.first - 1, _AVAILABLE)
            self._runs.append(batch.last, Cell(RecordState(batch.state), batch.deliveries))
        self._advance()

    # -- questions -----------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self._runs.start

    @property
    def end_offset(self) -> int:
        """One past the last offset that has been offered."""
        return self._runs.end

    def runs(self) -> list[tuple[int, int, Cell]]:
        """Everything between start and end, for those who want to look."""
        return list(self._runs)

    def next_fetch_offset(self) -> int:
        """Where the next record that may be acquired is, or will be."""
        for first, _, cell in self._runs:
            if cell.state is RecordState.AVAILABLE:
                return first
        return self._runs.end

    def held(self) -> int:
        """Records that count against the limit of locks: offered, and not done with."""
        return sum(last - first + 1 for first, last, cell in self._runs if cell.state not in TERMINAL)

    def may_acquire(self, limits: SharePartitionConfig) -> bool:
        """Records are available again, or there is room for new ones."""
        return self.next_fetch_offset() < self._runs.end or self.held() < limits.share_partition_max_record_locks

    def next_deadline_ms(self) -> int | None:
        """When the first lock runs out."""
        deadlines = [
            cell.lock_until_ms
            for _, _, cell in self._runs
            if cell.state is RecordState.ACQUIRED and cell.change is None
        ]
        return min(deadlines, default=None)

    # -- acquire -------------------------------------------------------------------------------------------------

    def acquire(
        self, wish: Wish, limits: SharePartitionConfig, fetch_offset: int, ranges: Iterable[LogRange], now_ms: int
    ) -> list[Acquired]:
        """Give the member what it may have of `ranges`, which the log has from `fetch_offset` on."""
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
            got, more = self._acquire_batch(wish, limits, first, batch.last, wish.max_records - taken, now_ms)
            for piece in got:
                taken += piece.last - piece.first + 1
                _add(acquired, piece, wish.batch_size)
            cursor = batch.last + 1
            if taken >= wish.max_records or not more:
                break
        self._advance()
        return acquired

    def _archive_missing(self, first: int, last: int) -> None:
        """Offsets that hold nothing to deliver. That need not be written: the log says so again."""
        for low, high, cell in self._runs.within(first, last):
            if cell.state is RecordState.AVAILABLE:
                self._runs.put(low, high, _ARCHIVED)
        if last >= self._runs.end:
            self._runs.append(last, _ARCHIVED)

    def _acquire_batch(
        self, wish: Wish, limits: SharePartitionConfig, first: int, last: int, wanted: int, now_ms: int
    ) -> tuple[list[Acquired], bool]:
        """What was acquired of one batch of the log, and whether the next one may be tried."""
        lock_until_ms = now_ms + limits.share_record_lock_duration_ms
        got: list[Acquired] = []
        for low, high, cell in self._runs.within(first, last):
            if cell.state is not RecordState.AVAILABLE:
                continue
            share, throttled = _throttle(cell.deliveries, high - low + 1, limits.share_delivery_count_limit)
            if wish.strict:
                share = min(share, wanted)
            if share <= 0:
                return got, False
            fresh = Cell(RecordState.ACQUIRED, cell.deliveries + 1, wish.member, lock_until_ms)
            self._runs.put(low, low + share - 1, fresh)
            got.append(Acquired(low, low + share - 1, fresh.deliveries))
            wanted -= share
            if throttled:
                return got, False
        if last >= self._runs.end:
            begin = self._runs.end
            share = min(last - begin + 1, limits.share_partition_max_record_locks - self.held())
            if wish.strict:
                share = min(share, wanted)
            if share <= 0:
                return got, False
            self._runs.append(begin + share - 1, Cell(RecordState.ACQUIRED, 1, wish.member, lock_until_ms))
            got.append(Acquired(begin, begin + share - 1, 1))
            return got, begin + share - 1 == last
        return got, True

    # -- what members, clocks and logs say -----------------------------------------------------------------------

    def acknowledge(self, member: str, acks: Sequence[Ack], limits: SharePartitionConfig, now_ms: int) -> int | None:
        """All of it or nothing. Gives the turn that must be written before the member is told; None: nothing must.

        Raises KafkaError INVALID_RECORD_STATE, INVALID_REQUEST. What lies below the start is done with, and fine.
        """
        pieces = [piece for ack in acks for piece in _pieces(ack, self.start_offset)]
        for first, last, kind in pieces:
            if last >= self._runs.end:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Offsets {first} to {last} were never acquired.")
            if kind is AckType.RENEW and not limits.share_renew_acknowledge_enable:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "This group's members may not renew their locks.")
            for low, high, cell in self._runs.within(first, last):
                if cell.state is not RecordState.ACQUIRED or cell.change is not None or cell.member != member:
                    raise KafkaError(
                        ErrorCode.INVALID_RECORD_STATE,
                        f"Offsets {low} to {high} are not acquired by member {member}.",
                    )
        lock_until_ms = now_ms + limits.share_record_lock_duration_ms
        turn = self._turn + 1
        for first, last, kind in pieces:
            if kind is AckType.RENEW:
                self._runs.change(first, last, partial(replace, lock_until_ms=lock_until_ms))
            else:
                self._turn = turn
                self._runs.change(first, last, partial(_changed, kind=kind, turn=turn, limits=limits))
        return turn if self._turn == turn else None

    def release(self, member: str, limits: SharePartitionConfig) -> int | None:
        """The member is gone. What it held was delivered: that counts since Kafka 4.3. Gives the turn."""
        return self._free(lambda cell: cell.member == member, partial(_returned, limits=limits))

    def expire(self, limits: SharePartitionConfig, now_ms: int) -> int | None:
        """Locks that have run out. Gives the turn, if there are any."""
        return self._free(lambda cell: cell.lock_until_ms <= now_ms, partial(_returned, limits=limits))

    def _free(self, chosen: Callable[[Cell], bool], after: Callable[[Cell], tuple[RecordState, int]]) -> int | None:
        turn = self._turn + 1
        for first, last, cell in list(self._runs):
            if cell.state is RecordState.ACQUIRED and cell.change is None and chosen(cell):
                self._turn = turn
                self._runs.put(first, last, replace(cell, change=Change(turn, *after(cell))))
        return turn if self._turn == turn else None

    def on_log_start(self, offset: int) -> None:
        """The log no longer has what is below `offset`: whatever was to become of it, it is done with."""
        if offset > self.start_offset:
            self._runs.drop_below(offset)
            self._advance()

    # -- what is written -----------------------------------------------------------------------------------------

    @property
    def unwritten(self) -> bool:
        """Something waits to be written, and nothing is being written."""
        return self._turn > self._written and self._writing == 0

    def take_write(self) -> Write:
        """Everything that waits to be written. `settle` must follow before the next."""
        assert self._writing == 0, "one write at a time: the next may say where the partition starts after it"
        self._writing = self._turn
        batches: list[StateBatch] = []
        complete = 0
        for first, last, cell in self._runs:
            state, deliveries = cell.state, cell.deliveries
            if cell.change is not None:
                state, deliveries = cell.change.state, cell.change.deliveries
                _add_batch(batches, StateBatch(first, last, state, deliveries))
            if state in TERMINAL:
                complete += last - first + 1
        return Write(self._writing, self.start_offset, complete, batches)

    def settle(self, *, written: bool) -> None:
        """The write has been committed, or failed: then everything is as it was, and the locks hold as long as
        before.
        """
        turn, self._writing = self._writing, 0
        self._written = turn
        for first, last, cell in list(self._runs):
            change = cell.change
            if change is None or change.turn > turn:
                continue
            self._runs.put(
                first, last, Cell(change.state, change.deliveries) if written else replace(cell, change=None)
            )
        self._advance()

    def _advance(self) -> None:
        """Pass over what is done with at the start."""
        start = self._runs.end
        for first, _, cell in self._runs:
            if cell.state not in TERMINAL:
                start = first
                break
        self._runs.drop_below(start)


def _returned(cell: Cell, limits: SharePartitionConfig) -> tuple[RecordState, int]:
    """What becomes of a record that comes back without an acknowledgement."""
    exhausted = cell.deliveries >= limits.share_delivery_count_limit
    return (RecordState.ARCHIVED if exhausted else RecordState.AVAILABLE, cell.deliveries)


def _changed(cell: Cell, kind: AckType, turn: int, limits: SharePartitionConfig) -> Cell:
    match kind:
        case AckType.ACCEPT:
            state = RecordState.ACKNOWLEDGED
        case AckType.RELEASE if cell.deliveries < limits.share_delivery_count_limit:
            state = RecordState.AVAILABLE
        case _:
            state = RecordState.ARCHIVED
    return replace(cell, change=Change(turn, state, cell.deliveries))


def _pieces(ack: Ack, start_offset: int) -> list[tuple[int, int, AckType]]:
    """Runs of the same type, without what lies below the start. Raises KafkaError INVALID_REQUEST."""
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
    """How many of `size` records that were delivered `deliveries` times may go out together, and whether that is fewer.

    One bad record fails all that are delivered with it. So the more often a run has come back, the fewer go out
    together, and on the last attempt each goes alone (SharePartition.throttleRecordsDelivery).
    """
    throttle_from = max(THROTTLE_FROM_MIN, -(-limit // 2))
    if deliveries < throttle_from:
        return size, False
    share = 1 if deliveries >= limit - 1 else max(size >> (deliveries - throttle_from + 1), 1)
    return share, share < size


def _add(acquired: list[Acquired], piece: Acquired, batch_size: int) -> None:
    """Neighbours go together until there are `batch_size`."""
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
