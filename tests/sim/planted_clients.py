"""Planted bugs of our clients. Each one makes the production code wrong in one place, in a way that a programmer might.

They show themselves to programs that leave a loop in the middle, cancel calls, and fail (`workload/impatience.py`).

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.consumer.consumer_coordinator import ConsumerProtocolCoordinator
from barnabas.client.consumer.coordinator import ConsumerCoordinator, call_listener
from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.consumer.handout import Handout
from barnabas.client.consumer.subscription import PartitionState
from barnabas.client.membership.consumer_protocol import ConsumerMember
from barnabas.client.producer.transactions import Transactions
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.testing.sim import CorrectnessError, LivenessError
from barnabas.testing.sim.faults import NodeFaultMenu

Patch = pytest.MonkeyPatch
WRONG = (CorrectnessError,)
WRONG_OR_STUCK = (CorrectnessError, LivenessError)


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, the menu of faults with which it must be found, and the kinds of failure that it may cause."""

    name: str
    plant: Callable[[Patch], None]
    seeds: int
    """The number of seeds within which the bug must be found."""
    caught_by: tuple[type[Exception], ...] = WRONG
    first: int = 0
    """The first seed to run."""
    menu: NodeFaultMenu = NodeFaultMenu.KILL


def _poll_counts_at_its_first_record(patch: Patch) -> None:
    """The first record of an iteration moves the position behind all records that were taken with it."""
    real = Handout.next_record

    def next_record(self: Handout, limit: int, wanted: Any = None) -> Any:
        record = real(self, limit, wanted)
        if record is not None:
            for run in self._left:
                self._return(run, run.end)
        return record

    patch.setattr(Handout, "next_record", next_record)
    patch.setattr(Handout, "next_at_once", lambda self: None)


def _records_of_cancelled_polls_lost(patch: Patch) -> None:
    """A poll waits once more after it has taken the records."""
    real = AsyncConsumer._take

    async def take(self: AsyncConsumer, *args: Any, **options: Any) -> Any:
        runs = await real(self, *args, **options)
        await asyncio.sleep(0.01)
        return runs

    patch.setattr(AsyncConsumer, "_take", take)


def _cancelled_commit_stays_ending(patch: Patch) -> None:
    """The end of a transaction is cancelled with its caller, and cannot be repeated."""

    async def end(self: Transactions, *, commit: bool, settle: Any, deadline: float) -> None:
        self._check_can_end(commit)
        self._commits = commit
        await self._settle_and_end(commit, settle, deadline)

    patch.setattr(Transactions, "end", end)


def _cancelled_listener_not_called_again(patch: Patch) -> None:
    """A listener is cancelled with the poll that has called it, and counts as called."""

    class Direct:
        is_under_way = False

        async def run(self, work: Any) -> None:
            await work()

        async def settle(self) -> None: ...

        async def stop(self) -> None: ...

    real = ConsumerCoordinator.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        self._change = Direct()

    async def announce_gain(self: Any, added: Any = ()) -> None:
        await call_listener(self.listener.on_partitions_assigned, sorted(frozenset(added) & self.owned))

    patch.setattr(ConsumerCoordinator, "__init__", init)
    patch.setattr(ConsumerCoordinator, "_announce_gain", announce_gain)


def _failed_callback_leaves_partition_revoking(patch: Patch) -> None:
    """With group.protocol=consumer, the assignment counts as reached before the listener has let a partition go."""
    real = ConsumerMember.reconcile

    def reconcile(self: ConsumerMember, names: Any) -> Any:
        step = real(self, names)
        if step is not None:
            self._target = None
        return step

    async def announce_loss(self: Any, partitions: Any, *, lost: bool) -> None:
        gone = sorted(partitions)
        for state in [state for p in gone if (state := self._subscription.partitions.get(p)) is not None]:
            state.revoking = True
        if lost:
            await call_listener(self.listener.on_partitions_lost, gone)
        elif gone:
            await self._before_revoke()
            await call_listener(self.listener.on_partitions_revoked, gone)

    patch.setattr(ConsumerMember, "reconcile", reconcile)
    patch.setattr(ConsumerMember, "on_interrupted", lambda self: None)
    patch.setattr(ConsumerProtocolCoordinator, "_announce_loss", announce_loss)


def _left_records_acknowledged(patch: Patch) -> None:
    """In implicit mode a share consumer that is closed acknowledges the records of the last poll."""
    real = AsyncShareConsumer._let_go

    async def let_go(self: AsyncShareConsumer) -> None:
        self._fetcher.collect()
        await real(self)

    patch.setattr(AsyncShareConsumer, "_let_go", let_go)


def _created_again_is_the_same_topic(patch: Patch) -> None:
    """The position in a topic that was deleted counts in the topic that was created again."""

    def on_diverging(self: Fetcher, state: PartitionState, end_offset: int, leader_epoch: int) -> None:
        assert state.position is not None
        state.seek(min(end_offset, state.position))

    patch.setattr(PartitionState, "belongs_to", lambda self, topic_id: True)
    patch.setattr(Fetcher, "_on_diverging", on_diverging)


PLANTED = [
    Planted("a loop's first record counts for the whole poll", _poll_counts_at_its_first_record, 10, first=6),
    Planted("records of cancelled polls lost", _records_of_cancelled_polls_lost, 10, first=6),
    Planted("a cancelled commit cannot be repeated", _cancelled_commit_stays_ending, 10, first=3),
    Planted("a cancelled listener not called again", _cancelled_listener_not_called_again, 10, WRONG_OR_STUCK, first=6),
    Planted(
        "a failed callback leaves its partition",
        _failed_callback_leaves_partition_revoking,
        10,
        WRONG_OR_STUCK,
        first=106,
    ),
    Planted("a topic created again is read from its end", _created_again_is_the_same_topic, 10, WRONG_OR_STUCK),
    Planted("records of an ended share consumer acknowledged", _left_records_acknowledged, 10, first=3),
]
