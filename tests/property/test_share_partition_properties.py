"""Share partitions, offset by offset: a plain model says what may be true of each record, whatever happens in between.

The log has holes, control batches and a start that moves; writes fail; the leader changes at any moment, and its
successor knows no more than what was written.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.coordination.share.state import PersisterStateBatch, merge_batches
from barnabas.server.replication.rules.share_partition import SharePartitionState
from barnabas.server.replication.rules.share_runs import OffsetRuns
from barnabas.server.replication.rules.share_values import (
    TERMINAL,
    Ack,
    AckType,
    AcquireRequest,
    LogRange,
    RecordState,
    StateBatch,
)
from tests.configs import share_partition_config

MEMBERS = ("a", "b", "c")
LIMITS = share_partition_config(
    share_delivery_count_limit=3, share_partition_max_record_locks=12, share_record_lock_duration_ms=100
)


class ShareMachine(RuleBasedStateMachine):
    """A leader of one share partition, three members, a share coordinator."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.log: list[LogRange] = []
        self.log_end = 0
        self.log_start = 0
        self.stored_start = 0
        self.stored: tuple[PersisterStateBatch, ...] = ()
        self.state = SharePartitionState(0)
        self.holders: dict[int, tuple[str, int]] = {}  # offset -> who has it, until when
        self.accepted: set[int] = set()  # told so, so never again
        self.deliveries: dict[int, int] = {}
        self.writing: Any = None
        self.pending: dict[int, str] = {}  # offsets whose acceptance is not written yet
        self.in_write: dict[int, str] = {}

    # -- the log

    @rule(size=st.integers(1, 6), gap=st.integers(0, 3), skip=st.booleans())
    def produce(self, size: int, gap: int, skip: bool) -> None:
        first = self.log_end + gap
        self.log.append(LogRange(first, first + size - 1, skip and size == 1))
        self.log_end = first + size

    @rule(up=st.integers(1, 8))
    def retention(self, up: int) -> None:
        self.log_start = min(self.log_start + up, self.log_end)
        self.state.on_log_start(self.log_start)
        self._forget_below_start()

    def records(self) -> set[int]:
        return {o for b in self.log if not b.skip for o in range(b.first, b.last + 1) if o >= self.log_start}

    # -- members

    @rule(member=st.sampled_from(MEMBERS), most=st.integers(1, 8), strict=st.booleans(), span=st.integers(1, 4))
    def acquire(self, member: str, most: int, strict: bool, span: int) -> None:
        offset = self.state.next_fetch_offset()
        ranges = [b for b in self.log if b.last >= offset][:span]
        got = self.state.acquire(AcquireRequest(member, most, 4, strict), LIMITS, offset, ranges, self.now_ms)
        count = 0
        for piece in got:
            for o in range(piece.first, piece.last + 1):
                count += 1
                assert o not in self.holders, f"{o} is acquired by {self.holders[o]} already"
                assert o not in self.accepted, f"{o} was acknowledged, and is delivered again"
                assert o in self.records(), f"{o} is no record of the log"
                assert 1 <= piece.deliveries <= LIMITS.share_delivery_count_limit
                self.holders[o] = (member, self.now_ms + LIMITS.share_record_lock_duration_ms)
                self.deliveries[o] = piece.deliveries
        assert not strict or count <= most
        assert len(self.holders) <= max(LIMITS.share_partition_max_record_locks, count)

    @rule(member=st.sampled_from(MEMBERS), kind=st.sampled_from(list(AckType)), data=st.data())
    def acknowledge(self, member: str, kind: AckType, data: st.DataObject) -> None:
        mine = sorted(o for o, (holder, _) in self.holders.items() if holder == member and o not in self.pending)
        if not mine:
            return
        chosen = sorted(data.draw(st.sets(st.sampled_from(mine), min_size=1)))
        self.state.acknowledge(member, [Ack(o, o, [kind]) for o in chosen], LIMITS, self.now_ms)
        for o in chosen:
            if kind is AckType.RENEW:
                self.holders[o] = (member, self.now_ms + LIMITS.share_record_lock_duration_ms)
            else:
                self.pending[o] = "accept" if kind is AckType.ACCEPT else "other"

    @rule(member=st.sampled_from(MEMBERS), offset=st.integers(0, 60))
    def acknowledge_what_is_not_mine(self, member: str, offset: int) -> None:
        mine = offset in self.holders and self.holders[offset][0] == member and offset not in self.pending
        if mine or offset < self.state.start_offset:
            return
        try:
            self.state.acknowledge(member, [Ack(offset, offset, [1])], LIMITS, self.now_ms)
        except KafkaError as error:
            assert error.code in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
        else:
            raise AssertionError(f"{member} acknowledged {offset}, which it does not hold")

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        self.state.release(member, LIMITS)
        for o, (holder, _) in self.holders.items():
            if holder == member:
                self.pending.setdefault(o, "other")

    @rule(ms=st.integers(1, 150))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.state.expire(LIMITS, self.now_ms)
        for o, (_, until) in self.holders.items():
            if until <= self.now_ms:
                self.pending.setdefault(o, "other")

    # -- the share coordinator

    @precondition(lambda self: self.writing is None and self.state.unwritten)
    @rule()
    def begin_write(self) -> None:
        self.writing = self.state.take_write()
        self.in_write = dict(self.pending)

    @precondition(lambda self: self.writing is not None)
    @rule(written=st.booleans())
    def end_write(self, written: bool) -> None:
        write, self.writing = self.writing, None
        if written:
            self._store(write)
        self.state.settle(written=written)
        for o, what in self.in_write.items():
            if o not in self.pending:
                continue
            del self.pending[o]
            if written:
                self.holders.pop(o, None)
                if what == "accept":
                    self.accepted.add(o)
        self._forget_below_start()

    def _store(self, write: Any) -> None:
        self.stored = merge_batches(self.stored, [PersisterStateBatch(*b) for b in write.batches], write.start_offset)
        self.stored_start = write.start_offset
        done = sum(b.last - b.first + 1 for b in self.stored if RecordState(b.state) in TERMINAL)
        assert done <= write.complete_count

    @rule()
    def new_leader(self) -> None:
        if self.writing is not None:  # it may have been written all the same
            self._store(self.writing)
            self.writing = None
        self.state = SharePartitionState(self.stored_start, [StateBatch(*b) for b in self.stored])
        self.state.on_log_start(self.log_start)
        self.holders.clear()
        self.pending.clear()
        self.in_write.clear()

    def _forget_below_start(self) -> None:
        start = self.state.start_offset
        for gone in [o for o in self.holders if o < start]:
            del self.holders[gone]
        for gone in [o for o in self.pending if o < start]:
            del self.pending[gone]

    # -- always

    @invariant()
    def holders_are_known(self) -> None:
        held = {
            o: cell.member
            for first, last, cell in self.state.runs()
            if cell.state is RecordState.ACQUIRED
            for o in range(first, last + 1)
        }
        assert held == {o: member for o, (member, _) in self.holders.items()}

    @invariant()
    def nothing_is_lost(self) -> None:
        """No record is passed over that was never delivered, and none that was accepted is held."""
        assert all(cell.deliveries <= LIMITS.share_delivery_count_limit for _, _, cell in self.state.runs())
        assert all(o in self.deliveries for o in self.records() if o < self.state.start_offset)
        assert not self.accepted & set(self.holders)

    @invariant()
    def runs_are_whole(self) -> None:
        runs = self.state.runs()
        for (_, last, cell), (first, _, after) in pairwise(runs):
            assert last + 1 == first
            assert cell != after
        if runs:
            assert runs[0][2].state not in TERMINAL or runs[0][2].pending is not None

    def teardown(self) -> None:
        """Whatever happened, patient members bring every record to its end."""
        if self.writing is not None:
            self.state.settle(written=False)
        self.state.release("a", LIMITS)
        self.state.release("b", LIMITS)
        self.state.release("c", LIMITS)
        for _ in range(1_000):
            if self.state.unwritten:
                self._store(self.state.take_write())
                self.state.settle(written=True)
            offset = self.state.next_fetch_offset()
            ranges = [b for b in self.log if b.last >= offset]
            if not ranges and self.state.start_offset == self.state.end_offset:
                break
            if not ranges:
                self.state.on_log_start(self.log_end)  # nothing but holes is left, which only a later batch would show
                continue
            for piece in self.state.acquire(AcquireRequest("a", 5), LIMITS, offset, ranges, self.now_ms):
                self.state.acknowledge("a", [Ack(piece.first, piece.last, [1])], LIMITS, self.now_ms)
        assert self.state.start_offset >= max((b.last + 1 for b in self.log), default=0)


TestShareMachine = ShareMachine.TestCase
TestShareMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class RunsMachine(RuleBasedStateMachine):
    """OffsetRuns against a plain dict."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: OffsetRuns[int] = OffsetRuns(10)
        self.model: dict[int, int] = {}
        self.end = 10

    @rule(size=st.integers(1, 9), cell=st.integers(0, 2))
    def append(self, size: int, cell: int) -> None:
        self.runs.append(self.end + size - 1, cell)
        self.model.update((o, cell) for o in range(self.end, self.end + size))
        self.end += size

    @precondition(lambda self: self.model)
    @rule(data=st.data(), cell=st.integers(0, 2))
    def put(self, data: st.DataObject, cell: int) -> None:
        first = data.draw(st.integers(min(self.model), self.end - 1))
        last = data.draw(st.integers(first, self.end - 1))
        self.runs.put(first, last, cell)
        self.model.update((o, cell) for o in range(first, last + 1))

    @rule(offset=st.integers(0, 60))
    def drop(self, offset: int) -> None:
        self.runs.drop_below(offset)
        self.end = max(self.end, offset)
        self.model = {o: cell for o, cell in self.model.items() if o >= offset}

    @invariant()
    def same(self) -> None:
        shown = [(o, cell) for first, last, cell in self.runs for o in range(first, last + 1)]
        assert shown == sorted(self.model.items())
        assert self.runs.end == self.end
        cells = [cell for _, _, cell in self.runs]
        assert all(one != other for one, other in pairwise(cells))


TestRunsMachine = RunsMachine.TestCase
TestRunsMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
