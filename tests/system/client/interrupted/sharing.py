"""Programs of share consumers.

The rules:

* While the program is the only member of its group, each record is returned once (again only after RELEASE, or after an
  acknowledgement whose result was an error), and all are returned without waiting for a lock to expire.
* No record is acknowledged that the program has not received, or (implicit mode) has not asked beyond: after `close`
  another consumer of the group gets all of these.
* What a commit has acknowledged is not delivered again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest

from barnabas.client.errors import ClientClosedError, WakeupError
from barnabas.client.share.session import AcknowledgeType
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from tests.system.client.interrupted.attempts import Interrupted, Interrupting
from tests.system.client.interrupted.world import JOBS, PARTITIONS, World

CALLS = 60
"""The number of calls of one program."""
RELEASES = 2
"""How often the programs release a record. (A broker delivers it five times.)"""

Place = tuple[int, int]
"""The partition and the offset of a record."""
ALL = frozenset((partition, offset) for partition in range(PARTITIONS) for offset in range(JOBS))


class Worker:
    """One program: a share consumer, and what is known of it."""

    def __init__(self, world: World, *, explicit: bool) -> None:
        self.world = world
        self.attempts = world.attempts
        self.rng = world.rng
        self.consumer: Any = None
        self.explicit = explicit
        self.received: set[Place] = set()
        self.released: set[Place] = set()
        """Received and released: these are returned again."""
        self.refused: dict[Place, KafkaError] = {}
        """Records whose acknowledgement has failed: these may be returned again."""
        self.held: dict[Place, Any] = {}
        """Records of the last call."""
        self.maybe: set[Place] = set()
        """Those that may be acknowledged."""
        self.done: set[Place] = set()
        """Those that are acknowledged for certain."""

    async def begin(self, group: str) -> None:
        self.consumer = await self.world.share_consumer(
            group,
            max_poll_records=5,
            share_acknowledgement_mode="explicit" if self.explicit else "implicit",
            share_acquire_mode=self.rng.choice(["batch_optimized", "record_limit"]),
            on_acknowledged=self.on_acknowledged,
        )
        await self.attempts.repeated("subscribe", lambda: self.consumer.subscribe([self.world.jobs]))

    # -- the model -------------------------------------------------------------------------------------------------

    def on_acknowledged(self, partition: TopicPartition, offsets: frozenset[int], error: KafkaError | None) -> None:
        """The result of acknowledgements. (Called by the loop.)"""
        if error is not None:
            self.refused.update({(partition.partition, offset): error for offset in offsets})

    def ask(self) -> None:
        """The program asks for more, or commits: in implicit mode this acknowledges what it holds."""
        if not self.explicit:
            self.maybe.update(self.held)

    def receive(self, records: Iterable[Any]) -> None:
        self.held = {}
        for record in records:
            place = (record.partition, record.offset)
            if place in self.received and place not in self.released:
                assert self.refused.pop(place, None), f"{place} was returned twice: {record}"
            self.received.add(place)
            self.released.discard(place)
            self.held[place] = record

    async def acknowledge(self) -> None:
        """Acknowledge what the last call has returned (explicit mode)."""
        for place, record in self.held.items():
            kind = AcknowledgeType.ACCEPT
            if self.rng.random() < 0.2 and record.delivery_count <= RELEASES:
                kind = AcknowledgeType.RELEASE
                self.released.add(place)
            else:
                self.maybe.add(place)
            call = self.attempts.repeated if self.rng.random() < 0.2 else self.attempts.plainly
            await call("acknowledge", lambda record=record, kind=kind: self.consumer.acknowledge(record, kind))

    # -- calls -----------------------------------------------------------------------------------------------------

    async def poll(self) -> None:
        self.ask()
        self.receive(await self.attempts.attempt("poll", lambda: self.consumer.poll(20)))
        if self.explicit:
            await self.acknowledge()

    async def getone(self) -> None:
        if len(self.received) == len(ALL) or self.explicit:
            return
        self.ask()
        self.receive([await self.attempts.attempt("getone", lambda: self.consumer.getone())])

    async def iterate(self) -> None:
        """A loop with a break; each of its steps may be interrupted, and is repeated."""
        if self.explicit:
            return
        records = iter(self.consumer) if self.world.is_blocking else aiter(self.consumer)
        step = records.__next__ if self.world.is_blocking else records.__anext__
        for _ in range(self.rng.randrange(1, 6)):
            if len(self.received) == len(ALL):
                return
            self.ask()
            self.receive([await self.attempts.repeated("iteration", step)])

    async def commit(self) -> None:
        self.ask()
        outcomes = await self.attempts.repeated("commit", lambda: self.consumer.commit())
        assert not any(outcomes.values()), outcomes
        self.done |= self.maybe
        self.held = {}

    async def wakeup(self) -> None:
        await self.attempts.plain(lambda: self.consumer.wakeup())
        self.ask()
        try:
            self.receive(await self.attempts.repeated("woken poll", lambda: self.consumer.poll(20)))
        except WakeupError:
            return
        if self.explicit:
            await self.acknowledge()

    # -- the end ---------------------------------------------------------------------------------------------------

    async def receive_all(self) -> None:
        """Everything arrives, and long before a lock expires."""
        for _ in range(1_000):
            if len(self.received) == len(ALL) and not self.released:
                return
            self.ask()
            self.receive(await self.attempts.plain(lambda: self.consumer.poll(20)))
            if self.explicit:
                await self.acknowledge()
        raise AssertionError(f"never returned: {sorted(ALL - self.received)}, or again: {sorted(self.released)}")

    async def close(self) -> None:
        """`close` is interrupted, and called again."""
        await self.attempts.tried("close", lambda: self.consumer.close())
        await self.attempts.plain(lambda: self.consumer.close())

    async def close_after_interrupt(self) -> None:
        try:
            self.ask()
            try:
                self.receive(await self.attempts.attempt("last poll", lambda: self.consumer.poll(20)))
            finally:
                await self.attempts.plain(lambda: self.consumer.close())
        except Interrupted:
            pass

    async def unsubscribe(self) -> None:
        await self.attempts.repeated("unsubscribe", lambda: self.consumer.unsubscribe())
        await self.attempts.plain(lambda: self.consumer.close())

    async def close_elsewhere(self) -> None:
        """`close` is called by a signal handler, or another thread or task, while a poll waits for records."""
        attempts, consumer = self.attempts, self.consumer
        await self.receive_all()
        self.ask()
        with pytest.raises(ClientClosedError):
            if not isinstance(attempts, Interrupting):
                self.receive(await attempts.plain(self._poll_and_close))
            elif self.rng.random() < 0.5:
                self.receive(await attempts.signalled(0.002, consumer.close, lambda: consumer.poll(30_000)))
            else:
                closer = threading.Timer(0.002, consumer.close)
                closer.start()
                try:
                    self.receive(await attempts.plain(lambda: consumer.poll(30_000)))
                finally:
                    closer.join()
            assert self.held, "the poll ended without records before its time-out"
            await attempts.plain(lambda: consumer.poll(0))
        await attempts.plain(lambda: consumer.close())

    async def _poll_and_close(self) -> Any:
        polling = asyncio.ensure_future(self.consumer.poll(30_000))
        await asyncio.sleep(0)  # the poll begins
        await self.consumer.close()
        return await polling


async def share(world: World, *, explicit: bool) -> None:
    """One program: calls of all kinds, an end, and another consumer that gets the rest."""
    group = await world.new_share_group()
    worker = Worker(world, explicit=explicit)
    await worker.begin(group)
    calls = [worker.poll, worker.poll, worker.getone, worker.iterate, worker.commit, worker.wakeup]
    for _ in range(CALLS):
        with suppress(Interrupted):  # the model stands as it was
            await world.rng.choice(calls)()
    if world.rng.random() < 0.5:
        await worker.receive_all()
    end = world.rng.choice([worker.close, worker.close_after_interrupt, worker.unsubscribe, worker.close_elsewhere])
    await end()
    await take_over(world, worker, group)


async def take_over(world: World, worker: Worker, group: str) -> None:
    """Another consumer gets all records that the program has not acknowledged."""
    consumer = await world.share_consumer(group, max_poll_records=1_000)
    await world.attempts.plain(lambda: consumer.subscribe([world.jobs]))
    found: set[Place] = set()
    needed = ALL - worker.maybe
    certain = worker.done - worker.refused.keys()
    for _ in range(1_000):
        if needed <= found:
            break
        for record in await world.attempts.plain(lambda: consumer.poll(20)):
            found.add((record.partition, record.offset))
    assert needed <= found, f"acknowledged, and not received by the program: {sorted(needed - found)}"
    assert not found & certain, f"delivered again after a commit: {sorted(found & certain)}"
    await world.attempts.plain(lambda: consumer.commit())
    await world.attempts.plain(lambda: consumer.close())
