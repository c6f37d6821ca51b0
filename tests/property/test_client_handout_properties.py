"""What a consumer has received and consumed, under random calls: no record is passed over, none is consumed early."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.client.consumer.handout import HandedOut, Handout, Record
from barnabas.client.consumer.subscription import PartitionState, SubscriptionState
from barnabas.client.values import FetchedBatches, IsolationLevel
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker

PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
BATCHES = 12
RECORDS_PER_BATCH = 3
LENGTH = BATCHES * (RECORDS_PER_BATCH + 1)
"""Offsets of the log of a partition: each batch is followed by a marker, which is no record."""


def batch(index: int) -> bytes:
    base = index * (RECORDS_PER_BATCH + 1)
    records = [SimpleRecord(None, b"%d" % (base + n), 5, ()) for n in range(RECORDS_PER_BATCH)]
    return build_batch(records, base_offset=base) + build_end_txn_marker(
        EndTxn(True, 0), base_offset=base + RECORDS_PER_BATCH, producer_id=1, producer_epoch=0, timestamp=5
    )


def next_record_offset(offset: int) -> int:
    """The first offset of a record from `offset` on."""
    return offset + (offset % (RECORDS_PER_BATCH + 1) == RECORDS_PER_BATCH)


class FakeFetcher:
    """Has the log of each partition at hand: a buffer for every fetch, from the position of the partition on."""

    error = None

    def __init__(self, subscription: SubscriptionState) -> None:
        self.subscription = subscription
        self.ready: deque[tuple[FetchedBatches, PartitionState, int]] = deque()

    def fetch(self, partition: TopicPartition, batches: int) -> None:
        state = self.subscription.partitions.get(partition)
        if state is None or state.position is None:
            return
        position = state.next_fetch
        first = position // (RECORDS_PER_BATCH + 1)
        last = min(first + batches, BATCHES)
        if position >= LENGTH:
            return
        end = last * (RECORDS_PER_BATCH + 1)
        data = b"".join(map(batch, range(first, last)))
        batches = FetchedBatches(partition, position, data, LENGTH, LENGTH, 0, end=end, end_epoch=0)
        self.ready.append((batches, state, state.moves))
        state.fetch_position = end

    def take(self, wanted: Collection[TopicPartition] | None = None) -> FetchedBatches | None:
        held = []
        found = None
        while self.ready and found is None:
            batches, state, moves = self.ready.popleft()
            if state.moves != moves:
                continue
            if not state.fetchable or not (wanted is None or batches.partition in wanted):
                held.append((batches, state, moves))
            else:
                assert state.position == batches.position
                found = batches
        self.ready.extendleft(reversed(held))
        return found

    def put_back(self, batches: FetchedBatches, position: int, *, released: bool = False) -> None:
        state = self.subscription.partitions[batches.partition]
        self.ready.appendleft((replace(batches, position=position), state, state.moves))

    def release(self, partition: TopicPartition) -> None:
        """Nothing is counted here."""


class Consuming(RuleBasedStateMachine):
    """`expected` is the next offset that the program must get; `asked` the offsets that it has asked beyond."""

    @initialize()
    def begin(self) -> None:
        self.subscription = SubscriptionState()
        self.subscription.set_partitions(PARTITIONS)
        self.fetcher = FakeFetcher(self.subscription)
        self.handout = Handout(
            self.fetcher,  # type: ignore[arg-type]
            self.subscription,
            isolation=IsolationLevel.READ_UNCOMMITTED,
            check_crcs=True,
            key=None,
            value=None,
        )
        self.delivery: HandedOut | None = None
        self.expected = dict.fromkeys(PARTITIONS, 0)
        self.asked = dict.fromkeys(PARTITIONS, 0)
        for partition in PARTITIONS:
            self.subscription.seek(partition, 0)

    def got(self, records: list[Record]) -> None:
        for record in records:
            partition = record.topic_partition
            assert record.offset == next_record_offset(self.expected[partition]), "a gap, or a record again"
            self.expected[partition] = record.offset + 1

    def ask(self) -> None:
        """The program asks for more: what a thread was given and has not taken note of is put back."""
        if self.delivery is not None:
            self.delivery.put_back()
            self.delivery = None
        self.handout.ask()
        self.asked = dict(self.expected)

    @rule(partition=st.sampled_from(PARTITIONS), batches=st.integers(1, 3))
    def fetch(self, partition: TopicPartition, batches: int) -> None:
        self.fetcher.fetch(partition, batches)

    @rule(limit=st.integers(1, 9), wanted=st.sampled_from([None, *[frozenset([p]) for p in PARTITIONS]]))
    def poll(self, limit: int, wanted: frozenset[TopicPartition] | None) -> None:
        self.ask()
        delivery = HandedOut(self.handout, self.handout.take(limit, wanted))
        assert len(delivery.records) <= limit
        self.got(delivery.records)
        delivery.receive(len(delivery.records))

    @rule(limit=st.integers(1, 9), count=st.integers(0, 9), one_by_one=st.booleans())
    def poll_of_a_thread(self, limit: int, count: int, one_by_one: bool) -> None:
        """A program in another thread gets some of the records; an interrupt, or `break`, takes the others from it."""
        self.ask()
        self.delivery = HandedOut(self.handout, self.handout.take(limit))
        self.delivery.one_by_one = one_by_one
        received = self.delivery.records[:count]
        if one_by_one and received:
            self.got(received[:-1])
            self.asked = dict(self.expected)
        self.got(received[-1:] if one_by_one else received)
        self.delivery.receive(len(received))

    @rule(limit=st.integers(1, 9))
    def iterate(self, limit: int) -> None:
        if (record := self.handout.next_at_once()) is not None:
            self.asked[record.topic_partition] = self.expected[record.topic_partition]
            self.got([record])
            return
        self.ask()
        if (record := self.handout.next_record(limit)) is not None:
            self.got([record])

    @rule()
    def columns(self) -> None:
        self.ask()
        batches = self.handout.buffer()
        if batches is not None:
            offset = self.expected[batches.partition]
            assert batches.position <= next_record_offset(offset) and batches.end > offset
            self.expected[batches.partition] = batches.end
            self.handout.finish_buffer(batches)

    @rule()
    def columns_that_do_not_arrive(self) -> None:
        self.ask()
        batches = self.handout.buffer()
        if batches is not None:
            self.handout.put_back_buffer(batches)

    @rule()
    def commit(self) -> None:
        self.handout.ask()
        self.asked = dict(self.expected)

    @rule(partition=st.sampled_from(PARTITIONS), offset=st.integers(0, LENGTH))
    def seek(self, partition: TopicPartition, offset: int) -> None:
        if self.delivery is not None:
            self.delivery.put_back()
            self.delivery = None
        self.subscription.seek(partition, offset)
        self.expected[partition] = self.asked[partition] = offset

    @rule(partition=st.sampled_from(PARTITIONS), paused=st.booleans())
    def pause(self, partition: TopicPartition, paused: bool) -> None:
        self.subscription.state(partition).paused = paused

    @precondition(lambda self: self.delivery is None)
    @rule(partition=st.sampled_from(PARTITIONS), offset=st.integers(0, LENGTH))
    def revoke_and_assign_again(self, partition: TopicPartition, offset: int) -> None:
        self.subscription.set_partitions([p for p in PARTITIONS if p != partition])
        self.subscription.set_partitions(PARTITIONS)
        self.subscription.seek(partition, offset)
        self.expected[partition] = self.asked[partition] = offset

    @invariant()
    def nothing_is_committed_that_the_program_has_not_got(self) -> None:
        returned, consumed = self.subscription.all_returned(), self.subscription.all_consumed()
        for partition in PARTITIONS:
            assert next_record_offset(returned[partition].offset) == next_record_offset(self.expected[partition])
            assert next_record_offset(consumed[partition].offset) <= next_record_offset(self.asked[partition])

    def teardown(self) -> None:
        """In the end every record arrives."""
        if not hasattr(self, "handout"):
            return
        self.ask()
        for partition in PARTITIONS:
            self.subscription.state(partition).paused = False
        for _ in range(4 * BATCHES):
            for partition in PARTITIONS:
                self.fetcher.fetch(partition, 2)
            delivery = HandedOut(self.handout, self.handout.take(1_000))
            self.got(delivery.records)
            delivery.receive(len(delivery.records))
        assert {next_record_offset(offset) for offset in self.expected.values()} == {LENGTH}
        assert {mark.offset for mark in self.subscription.all_returned().values()} == {LENGTH}


Consuming.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestConsuming = Consuming.TestCase
