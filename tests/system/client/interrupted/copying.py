"""Programs that read numbers, and write them with their offsets in transactions.

The rules: the committed offset says how many numbers were copied; a read_committed consumer reads each of these exactly
once, and no other; when the producer is closed no transaction is open; a call that was interrupted can be repeated. A
prepared transaction (two-phase commit) survives its producer, and becomes what was decided.
"""

from __future__ import annotations

from typing import Any

import pyarrow

from barnabas.client.values import PreparedTransaction
from barnabas.core.ids import TopicPartition
from tests.system.client.interrupted.attempts import Interrupted
from tests.system.client.interrupted.world import PARTITIONS, World
from tests.system.client.interrupted.writing import read_values

TRANSACTIONS = 12
"""The number of transactions of one program."""


class BodyError(Exception):
    """Raised within a transaction."""


class Copier:
    """One program: a transactional producer, and the group whose offset it commits."""

    def __init__(self, world: World, producer: Any, name: str, settings: dict[str, Any]) -> None:
        self.world = world
        self.attempts = world.attempts
        self.rng = world.rng
        self.producer = producer
        self.name = name
        self.settings = settings
        self.source = TopicPartition(world.topic, 0)
        self.position = 0

    def _send(self, number: int) -> Any:
        value = b"%s:%d" % (self.name.encode(), number)
        return self.producer.send(self.world.written, value, partition=number % PARTITIONS)

    def _send_columns(self, end: int) -> Any:
        numbers = range(self.position, end)
        values = pyarrow.array([b"%s:%d" % (self.name.encode(), number) for number in numbers], pyarrow.binary())
        table = pyarrow.table({"value": values, "at": [number % PARTITIONS for number in numbers]})
        return self.producer.send_arrow(self.world.written, table, partition="at")

    def _send_offsets(self, position: int) -> Any:
        return self.producer.send_offsets_to_transaction({self.source: position}, self.name)

    async def call_by_call(self) -> None:
        """Each call is interrupted, and repeated; a transaction in which a `send` was interrupted is aborted."""
        attempts, producer = self.attempts, self.producer
        await attempts.repeated("begin", lambda: producer.begin_transaction())
        end = self.position + self.rng.randrange(4)
        aborts = self.rng.random() < 0.25
        try:
            if self.rng.random() < 0.2 and end > self.position:
                await attempts.attempt("send_arrow", lambda: self._send_columns(end))
            else:
                for number in range(self.position, end):
                    await attempts.attempt("send", lambda number=number: self._send(number))
        except Interrupted:
            aborts = True
        if end > self.position or self.rng.random() < 0.5:
            await attempts.repeated("send_offsets", lambda: self._send_offsets(end))
        else:
            end = self.position
        if not aborts and self.rng.random() < 0.2:
            # a commit that was interrupted may be given up, as long as nothing was sent for it
            if not await attempts.tried("commit", lambda: producer.commit_transaction()):
                await self._leave()
                return
        elif aborts:
            await attempts.repeated("abort", lambda: producer.abort_transaction())
            return
        else:
            await attempts.repeated("commit", lambda: producer.commit_transaction())
        self.position = end

    async def in_two_phases(self) -> None:
        """Prepare, and complete as decided; in between the producer may end, and another one takes over."""
        attempts, rng = self.attempts, self.rng
        await attempts.repeated("begin", lambda: self.producer.begin_transaction())
        end = self.position + rng.randrange(1, 4)
        try:
            for number in range(self.position, end):
                await attempts.attempt("send", lambda number=number: self._send(number))
        except Interrupted:
            await attempts.repeated("abort", lambda: self.producer.abort_transaction())
            return
        await attempts.repeated("send_offsets", lambda: self._send_offsets(end))
        kept = await attempts.repeated("prepare", lambda: self.producer.prepare_transaction())
        assert self.producer.prepared_transaction == kept
        if rng.random() < 0.3:
            await attempts.tried("close", lambda: self.producer.close())
            await attempts.plain(lambda: self.producer.close())
            self.producer = await self.world.producer(**self.settings)
            await attempts.repeated("init", lambda: self.producer.init_transactions(keep_prepared=True))
            assert self.producer.prepared_transaction == kept
        decided = rng.choice([kept, str(kept), PreparedTransaction(1, 1)])
        committed = await attempts.repeated("complete", lambda: self.producer.complete_transaction(decided))
        assert committed is (decided in (kept, str(kept)))
        assert self.producer.prepared_transaction is None
        if committed:
            self.position = end

    async def _leave(self) -> None:
        """End the transaction whatever its state is, as `close` and `with` do, and find out what became of it."""
        if self.world.is_blocking:
            await self.attempts.plain(self._leave_blocking)
        else:
            await self.attempts.plain(lambda: self.producer.leave_transaction())
        await self.find_position()

    def _leave_blocking(self) -> None:
        if self.producer.in_transaction:
            self.producer.abort_transaction()
        else:
            self.producer.commit_transaction()

    async def by_block(self) -> None:
        """`with producer.transaction()`, interrupted anywhere. The offset says what became of it."""
        end = self.position + self.rng.randrange(1, 4)
        fails = self.rng.random() < 0.25
        block = self._block if self.world.is_blocking else self._async_block
        try:
            await self.attempts.attempt("transaction", lambda: block(end, fails=fails))
            self.position = end
            return
        except BodyError:
            return
        except Interrupted:
            pass  # if __exit__ itself was interrupted, the transaction is aborted when the exception is gone
        await self.find_position()

    def _block(self, end: int, *, fails: bool) -> None:
        with self.producer.transaction():
            for number in range(self.position, end):
                self._send(number)
            self._send_offsets(end)
            if fails:
                raise BodyError

    async def _async_block(self, end: int, *, fails: bool) -> None:
        async with self.producer.transaction():
            for number in range(self.position, end):
                await self._send(number)
            await self._send_offsets(end)
            if fails:
                raise BodyError

    async def find_position(self) -> None:
        self.position = (await self.world.committed(self.name, [self.source]))[self.source] or 0


async def copy(world: World, copiers: list[Copier], *, two_phase: bool) -> None:
    """One program: transactions of all kinds, and an end."""
    name = world.new_name()
    settings: dict[str, Any] = {"transactional_id": name, "batch_size": 300, "buffer_memory": 600, "linger_ms": 1}
    if two_phase:
        settings["transaction_two_phase_commit_enable"] = True
    copier = Copier(world, await world.producer(**settings), name, settings)
    copiers.append(copier)
    await world.attempts.repeated("init", lambda: copier.producer.init_transactions())
    kinds = [copier.in_two_phases] if two_phase else [copier.call_by_call, copier.call_by_call, copier.by_block]
    for _ in range(TRANSACTIONS):
        await world.rng.choice(kinds)()
    producer = copier.producer
    if world.rng.random() < 0.5:  # a transaction that `close` aborts
        await world.attempts.repeated("begin", lambda: producer.begin_transaction())
        await world.attempts.tried("send", lambda: copier._send(1_000))
    await world.attempts.tried("close", lambda: producer.close())
    await world.attempts.plain(lambda: producer.close())
    at_end = copier.position
    await copier.find_position()
    assert copier.position == at_end, f"{name}: {copier.position} is committed, {at_end} was copied"


async def check(world: World, copiers: list[Copier]) -> None:
    """Each number was copied once."""
    copied: dict[str, list[int]] = {copier.name: [] for copier in copiers}
    for value in await read_values(world, world.written):
        name, number = value.decode().split(":")
        copied[name].append(int(number))
    for copier in copiers:
        assert sorted(copied[copier.name]) == list(range(copier.position)), f"{copier.name}, {copier.position}"
