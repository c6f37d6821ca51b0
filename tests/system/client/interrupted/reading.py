"""Programs of consumers that read partitions of their own, and commit for a group.

The rules, checked after each call, interrupted or not:

* The next record of a partition is the one after the last that the program has received: nothing is passed over, and
  a call that was interrupted has no effect.
* Everything before a committed offset has been received. An automatic commit does not reach beyond the records after
  which the program has asked for more.
* A commit that has returned has committed the positions.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest

from barnabas.client.errors import ClientClosedError, WakeupError
from barnabas.core.ids import TopicPartition
from tests.system.client.interrupted.attempts import Interrupted, Interrupting
from tests.system.client.interrupted.world import RECORDS, World

CALLS = 60
"""The number of calls of one program."""


class BodyError(Exception):
    """Raised by the body of a loop."""


class Reader:
    """One program: a consumer, and what is known of it."""

    def __init__(self, world: World, group: str, consumer: Any, *, automatic: bool) -> None:
        self.world = world
        self.attempts = world.attempts
        self.rng = world.rng
        self.group = group
        self.consumer = consumer
        self.automatic = automatic
        self.next: dict[TopicPartition, int] = dict.fromkeys(world.partitions, 0)
        """The offset after the last record that the program has received."""
        self.asked: dict[TopicPartition, int] = dict.fromkeys(world.partitions, 0)
        """The highest offset that an automatic commit may have committed."""
        self.possible: dict[TopicPartition, set[int | None]] = {p: {None} for p in world.partitions}
        """The offsets that may be committed, without automatic commits."""
        self.paused: set[TopicPartition] = set()

    # -- the model -------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        for partition, offset in self.next.items():
            self.asked[partition] = max(self.asked[partition], offset)

    def receive(self, records: Iterable[Any]) -> None:
        for record in records:
            self.receive_one(record.topic_partition, record.offset)

    def receive_one(self, partition: TopicPartition, offset: int) -> None:
        assert partition not in self.paused, f"{partition} is paused"
        assert offset == self.next[partition], f"{partition}: {offset} was returned and {self.next[partition]} is due"
        self.next[partition] = offset + 1

    async def check(self) -> None:
        """Compare the committed offsets."""
        for partition, offset in (await self.world.committed(self.group, self.world.partitions)).items():
            self.check_offset(partition, offset)

    def check_offset(self, partition: TopicPartition, offset: int | None) -> None:
        if self.automatic:
            bound = self.asked[partition]
            assert offset is None or offset <= bound, f"{partition}: {offset} is committed, {bound} is consumed"
        else:
            assert offset in self.possible[partition], (
                f"{partition}: {offset} is committed, and not one of {self.possible[partition]}"
            )

    # -- calls -----------------------------------------------------------------------------------------------------

    async def poll(self) -> None:
        timeout_ms = self.rng.choice([0, 20])
        most = self.rng.choice([None, 1, 4])
        self.ask()
        self.receive(await self.attempts.attempt("poll", lambda: self.consumer.poll(timeout_ms, max_records=most)))

    async def getmany(self) -> None:
        wanted = self.rng.sample(self.world.partitions, self.rng.randrange(3))
        self.ask()
        found = await self.attempts.attempt("getmany", lambda: self.consumer.getmany(*wanted, timeout_ms=20))
        assert not wanted or found.keys() <= set(wanted)
        for records in found.values():
            self.receive(records)

    async def getone(self) -> None:
        wanted = self.rng.choice([(), (self.rng.choice(self.world.partitions),)])
        if not self._has_more(wanted):
            return
        self.ask()
        self.receive([await self.attempts.attempt("getone", lambda: self.consumer.getone(*wanted))])

    async def iterate(self) -> None:
        """A loop with a break; each of its steps may be interrupted, and is repeated."""
        records = iter(self.consumer) if self.world.is_blocking else aiter(self.consumer)
        step = records.__next__ if self.world.is_blocking else records.__anext__
        for _ in range(self.rng.randrange(1, 6)):
            if not self._has_more():
                return
            self.ask()
            self.receive([await self.attempts.repeated("iteration", step)])

    async def poll_arrow(self) -> None:
        self.ask()
        batch = await self.attempts.attempt("poll_arrow", lambda: self.consumer.poll_arrow(20))
        if batch is not None:
            self._receive_columns(batch)

    async def iterate_arrow(self) -> None:
        """`iterate`, with columns."""
        batches = self.consumer.arrow(columns=("partition", "offset"))
        step = batches.__next__ if self.world.is_blocking else batches.__anext__
        for _ in range(self.rng.randrange(1, 3)):
            if not self._has_more():
                return
            self.ask()
            self._receive_columns(await self.attempts.repeated("arrow", step))

    def _receive_columns(self, batch: Any) -> None:
        columns = (batch.column(name).to_pylist() for name in ("partition", "offset"))
        for partition, offset in zip(*columns, strict=True):
            self.receive_one(TopicPartition(self.world.topic, partition), offset)

    def _has_more(self, wanted: Iterable[TopicPartition] = ()) -> bool:
        """Whether a call for records of these partitions, or of all, gets any."""
        return any(p not in self.paused and self.next[p] < RECORDS for p in wanted or self.world.partitions)

    async def commit(self) -> None:
        self.ask()
        for partition, offset in self.next.items():
            self.possible[partition].add(offset)
        if await self.attempts.tried("commit", lambda: self.consumer.commit()):
            self.possible = {p: {offset} for p, offset in self.next.items()}
            if not self.automatic:
                await self.check()

    async def commit_offsets(self) -> None:
        partition = self.rng.choice(self.world.partitions)
        offset = self.rng.randrange(self.next[partition] + 1)
        self.possible[partition].add(offset)
        self.asked[partition] = max(self.asked[partition], offset)
        if await self.attempts.tried("commit of offsets", lambda: self.consumer.commit({partition: offset})):
            self.possible[partition] = {offset}
            if not self.automatic:
                await self.check()

    async def commit_nowait(self) -> None:
        self.ask()
        for partition, offset in self.next.items():
            self.possible[partition].add(offset)
        await self.attempts.tried("commit_nowait", lambda: self.consumer.commit_nowait())

    async def position(self) -> None:
        partition = self.rng.choice(self.world.partitions)
        offset = await self.attempts.attempt("position", lambda: self.consumer.position(partition))
        assert offset == self.next[partition]

    async def seek(self) -> None:
        partition = self.rng.choice(self.world.partitions)
        offset = self.rng.randrange(self.next[partition] + 1)
        await self.attempts.repeated("seek", lambda: self.consumer.seek(partition, offset))
        self.next[partition] = offset

    async def seek_to_beginning(self) -> None:
        partition = self.rng.choice(self.world.partitions)
        await self.attempts.repeated("seek_to_beginning", lambda: self.consumer.seek_to_beginning(partition))
        self.next[partition] = 0
        await self._find([partition])

    async def pause(self) -> None:
        partition = self.rng.choice(self.world.partitions)
        if partition in self.paused:
            await self.attempts.repeated("resume", lambda: self.consumer.resume(partition))
            self.paused.discard(partition)
        elif len(self.paused) < 2:
            await self.attempts.repeated("pause", lambda: self.consumer.pause(partition))
            self.paused.add(partition)

    async def wakeup(self) -> None:
        await self.attempts.plain(lambda: self.consumer.wakeup())
        self.ask()
        was_interrupted = False
        while True:
            try:
                records = await self.attempts.attempt("woken poll", lambda: self.consumer.poll(20))
            except Interrupted:
                was_interrupted = True
                continue
            except WakeupError:
                return
            assert was_interrupted, "a poll after wakeup() raises WakeupError"
            self.receive(records)
            return

    async def unsubscribe(self) -> None:
        await self.attempts.repeated("unsubscribe", lambda: self.consumer.unsubscribe())
        await self.begin()

    async def begin(self) -> None:
        """Assign the partitions, and find out where reading begins."""
        await self.attempts.repeated("assign", lambda: self.consumer.assign(self.world.partitions))
        self.paused.clear()
        await self._find(self.world.partitions)

    async def _find(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            make = self.attempts.repeated if self.rng.random() < 0.1 else self.attempts.plainly
            offset = await make("first position", lambda p=partition: self.consumer.position(p))
            if self.next[partition] != offset:
                if offset or not self.possible[partition] & {0, None}:
                    self.check_offset(partition, offset)
                self.next[partition] = offset

    def choose(self) -> Callable[[], Awaitable[None]]:
        records = [self.poll, self.poll, self.getmany, self.getone, self.getone, self.iterate]
        reads = [*records, self.poll_arrow, self.iterate_arrow]
        commits = [self.commit, self.commit_offsets, self.commit_nowait]
        others = [self.position, self.seek, self.pause, self.wakeup]
        seldom = [self.seek_to_beginning, self.unsubscribe]
        return self.rng.choice(self.rng.choice([reads, reads, reads, commits, others, others, seldom]))

    # -- the end ---------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """`close` is interrupted, and called again."""
        self.ask()
        await self.attempts.tried("close", lambda: self.consumer.close())
        await self.attempts.plain(lambda: self.consumer.close())
        await self._check_end(everything=True)

    async def close_after_error(self) -> None:
        """An exception in the body of a loop, and `close` in the `finally` around it."""
        await self.attempts.repeated("resume", lambda: self.consumer.resume(*self.paused))
        self.paused.clear()
        await self.attempts.repeated("seek", lambda: self.consumer.seek(self.world.partitions[0], 0))
        self.next[self.world.partitions[0]] = 0
        left = self.rng.randrange(1, 4)
        with pytest.raises(BodyError):
            await self.attempts.plain(lambda: (self._loop if self.world.is_blocking else self._async_loop)(left))
        await self._check_end(everything=False)

    def _loop(self, left: int) -> None:
        try:
            self.ask()
            for record in self.consumer:
                self.receive([record])
                left -= 1
                if not left:
                    raise BodyError
                self.ask()
        finally:
            self.consumer.close()

    async def _async_loop(self, left: int) -> None:
        try:
            self.ask()
            async for record in self.consumer:
                self.receive([record])
                left -= 1
                if not left:
                    raise BodyError
                self.ask()
        finally:
            await self.consumer.close()

    async def close_after_interrupt(self) -> None:
        """A poll that is interrupted, and `close` in the `finally` around it."""
        self.ask()
        try:
            try:
                self.receive(await self.attempts.attempt("last poll", lambda: self.consumer.poll(20)))
            finally:
                await self.attempts.plain(lambda: self.consumer.close())
        except Interrupted:
            await self._check_end(everything=False)
        else:
            self.ask()
            await self._check_end(everything=True)

    async def close_elsewhere(self) -> None:
        """`close` is called by a signal handler, or another thread or task, while a poll waits."""
        self.ask()
        await self.attempts.repeated("pause", lambda: self.consumer.pause(*self.world.partitions))
        self.paused.update(self.world.partitions)
        attempts, consumer = self.attempts, self.consumer
        with pytest.raises(ClientClosedError):
            if not isinstance(attempts, Interrupting):
                await attempts.plain(self._poll_and_close)
            elif self.rng.random() < 0.5:
                await attempts.signalled(0.002, consumer.close, lambda: consumer.poll(30_000))
            else:
                closer = threading.Timer(0.002, consumer.close)
                closer.start()
                try:
                    await attempts.plain(lambda: consumer.poll(30_000))
                finally:
                    closer.join()
        await attempts.plain(lambda: consumer.close())
        await self._check_end(everything=False)

    async def _poll_and_close(self) -> None:
        polling = asyncio.ensure_future(self.consumer.poll(30_000))
        await asyncio.sleep(0)  # the poll begins
        await self.consumer.close()
        await polling

    async def _check_end(self, *, everything: bool) -> None:
        """Compare what is committed. `everything`: automatic commits have committed all that was received."""
        committed = await self.world.committed(self.group, self.world.partitions)
        for partition, offset in committed.items():
            self.check_offset(partition, offset)
            if self.automatic and everything:
                assert offset == self.next[partition], f"{partition}: {offset} is committed at a quiet close"
        await self._take_over(committed)

    async def _take_over(self, committed: dict[TopicPartition, int | None]) -> None:
        """Another consumer of the group reads the rest."""
        if self.rng.random() < 0.7:
            return
        successor = await self.world.consumer(self.group, max_poll_records=2_000)
        await self.attempts.plain(lambda: successor.assign(self.world.partitions))
        expected = {partition: offset or 0 for partition, offset in committed.items()}
        while any(offset < RECORDS for offset in expected.values()):
            for record in await self.attempts.plain(lambda: successor.poll(1_000)):
                assert record.offset == expected[record.topic_partition]
                expected[record.topic_partition] += 1
        await self.attempts.plain(lambda: successor.close())


async def read(world: World, *, automatic: bool) -> None:
    """One program: calls of all kinds, and an end."""
    group = world.new_name()
    consumer = await world.consumer(
        group,
        max_poll_records=7,
        max_partition_fetch_bytes=100,
        enable_auto_commit=automatic,
        auto_commit_interval_ms=world.rng.choice([1, 10, 5_000]),
    )
    reader = Reader(world, group, consumer, automatic=automatic)
    await reader.begin()
    for number in range(CALLS):
        with suppress(Interrupted):  # the model stands as it was
            await reader.choose()()
        if number % 5 == 0:
            await reader.check()
    end = world.rng.choice(
        [reader.close, reader.close_after_error, reader.close_after_interrupt, reader.close_elsewhere]
    )
    await end()
