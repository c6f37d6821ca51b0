"""Shell: what clients do while the world goes wrong, as a history that `barnabas.testing.histories` judges.

Three kinds of program, each on a host of its own, each of production clients: idempotent producers, members of a group
that commit, and transactional producers. A program that fails starts anew, as its supervisor would have it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.testing.histories import Kind, Poll, Recorder, Send
from barnabas.testing.sim.process import Life, Process

if TYPE_CHECKING:
    from barnabas.client.consumer import AsyncConsumer
    from barnabas.client.producer import AsyncProducer
    from barnabas.testing.sim.world import World

PLAIN: Final = "plain"
ATOMIC: Final = "atomic"
GROUP: Final = "readers"
_PATIENCE: Final = {
    "request_timeout_ms": 3_000,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 1_000,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 500,
    "socket_connection_setup_timeout_ms": 2_000,
    "socket_connection_setup_timeout_max_ms": 4_000,
}
"""Seconds instead of minutes: so that more happens in a run, not less."""


@dataclass(slots=True)
class Facts:
    """What the workload knows besides the history."""

    recorder: Recorder = field(default_factory=Recorder)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    """The highest offset of each partition whose commit was acknowledged."""
    acknowledged: int = 0
    transactions: int = 0
    next_value: int = 0


class Workload:
    """Starts the programs, lets them go on until `stop`, and starts anew what was killed."""

    def __init__(self, world: World, *, partitions: int, producers: int, readers: int, transactions: int) -> None:
        self.facts = Facts()
        self.partitions = partitions
        self.hosts: dict[str, Process] = {}
        """The living process on each client host."""
        self._world = world
        self._stopping = False
        self._mains: dict[str, Callable[[str], Awaitable[None]]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._lives: dict[str, int] = {}
        for i in range(producers):
            self._mains[f"p{i + 1}"] = self._produce
        for i in range(readers):
            self._mains[f"r{i + 1}"] = self._read
        for i in range(transactions):
            self._mains[f"t{i + 1}"] = self._transact

    def start(self) -> None:
        for host in self._mains:
            self.restart(host)

    def restart(self, host: str) -> None:
        """A new process on a client's host."""
        life = self._lives[host] = self._lives.get(host, 0) + 1
        self.hosts[host], self._running[host] = self._world.start_client(host, self._supervise(host, life))

    def kill(self, host: str) -> None:
        self._world.kill(self.hosts[host])

    async def stop(self, within_s: float) -> None:
        """Let every program end what it is doing. Raises LivenessError when one does not."""
        self._stopping = True
        for host, process in self.hosts.items():
            self._world.resume(process)
            if process.life is not Life.DEAD:
                task = self._running[host]
                await self._world.until(task.done, within_s, f"the program on {host} ends its last operation")
                task.result()

    async def _supervise(self, host: str, life: int) -> None:
        attempt = 0
        while not self._stopping:
            attempt += 1
            try:
                await self._mains[host](f"{host}.{life}.{attempt}")
            except (BarnabasError, TimeoutError) as error:
                self._world.trace.event(host, f"starts anew after {type(error).__name__}: {str(error)[:120]}")
                await asyncio.sleep(0.2)

    def _now(self) -> float:
        return self._world.elapsed_s * 1000

    def _value(self) -> int:
        self.facts.next_value += 1
        return self.facts.next_value

    # ---- producers

    async def _produce(self, who: str) -> None:
        """Bursts to one partition; the next one when the last is acknowledged or given up."""
        rng = self._world.chance(who)
        settings: dict[str, Any] = {**_PATIENCE, "delivery_timeout_ms": 12_000, "max_block_ms": 10_000}
        settings["linger_ms"] = rng.choice([0, 5])
        settings["compression_type"] = rng.choice(["none", "none", "lz4", "zstd"])
        async with self._world.producer(**settings) as producer:
            while not self._stopping:
                await self._burst(who, producer, rng)
                await asyncio.sleep(rng.random() * 0.5)

    async def _burst(self, who: str, producer: AsyncProducer, rng: random.Random) -> None:
        recorder = self.facts.recorder
        partition = rng.randrange(self.partitions)
        key = f"{PLAIN}-{partition}"
        wanted = [Send(key, self._value()) for _ in range(rng.choice([1, 1, 2, 5, 20]))]
        operation = recorder.invoke(who, Kind.SEND, wanted, self._now())
        known = list(wanted)
        failed: BaseException | None = None
        futures = []
        try:
            for send in wanted:
                futures.append(await producer.send(PLAIN, _encode(send.value, rng), partition=partition))  # noqa: PERF401
        except BarnabasError as error:
            failed = error
        for i, future in enumerate(futures):
            try:
                metadata = await future
            except BarnabasError as error:
                failed = failed or error
            else:
                known[i] = Send(key, wanted[i].value, metadata.offset)
                self.facts.acknowledged += 1
        if failed is None:
            recorder.ok(operation, known, self._now())
            return
        recorder.info(operation, known, self._now())
        self._world.trace.event(who, f"a burst failed: {type(failed).__name__}: {str(failed)[:100]}")
        raise failed

    # ---- transactions

    async def _transact(self, who: str) -> None:
        rng = self._world.chance(who)
        settings: dict[str, Any] = {**_PATIENCE, "delivery_timeout_ms": 6_000, "max_block_ms": 8_000}
        async with self._world.producer(
            transactional_id=who.partition(".")[0], transaction_timeout_ms=8_000, **settings
        ) as producer:
            await producer.init_transactions()
            while not self._stopping:
                await self._transaction(who, producer, rng)
                await asyncio.sleep(rng.random() * 0.5)

    async def _transaction(self, who: str, producer: AsyncProducer, rng: random.Random) -> None:
        recorder = self.facts.recorder
        targets = [rng.randrange(self.partitions) for _ in range(rng.randint(1, 5))]
        wanted = [Send(f"{ATOMIC}-{target}", self._value()) for target in targets]
        known = list(wanted)
        commit = rng.random() < 0.7
        operation = recorder.invoke(who, Kind.TRANSACTION, wanted, self._now())
        ending = False
        try:
            producer.begin_transaction()
            futures = []
            for target, send in zip(targets, wanted, strict=True):
                futures.append(await producer.send(ATOMIC, _encode(send.value, rng), partition=target))
            for i, future in enumerate(futures):
                known[i] = Send(wanted[i].key, wanted[i].value, (await future).offset)
            ending = commit
            if commit:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        except BarnabasError as error:
            # Whether it is certainly aborted matters: then nobody may ever see it.
            certain = not ending and await self._abort(producer)
            (recorder.fail if certain else recorder.info)(operation, known, self._now())
            self._world.trace.event(who, f"a transaction failed: {type(error).__name__}: {str(error)[:100]}")
            if not certain:
                raise
            return
        (recorder.ok if commit else recorder.fail)(operation, known, self._now())
        self.facts.transactions += 1

    async def _abort(self, producer: AsyncProducer) -> bool:
        try:
            if not producer.in_transaction:
                return False
            await producer.abort_transaction()
        except BarnabasError:
            return False
        return True

    # ---- readers

    async def _read(self, who: str) -> None:
        """A member of the group: polls both topics, commits what it has seen, and waits for the answer."""
        rng = self._world.chance(who)
        async with self._world.consumer(
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            fetch_max_wait_ms=200,
            default_api_timeout_ms=8_000,
            group_protocol="consumer" if self._world.seed % 2 else "classic",
            **_PATIENCE,
        ) as consumer:
            consumer.subscribe([PLAIN, ATOMIC])
            self.facts.recorder.note(who, Kind.SUBSCRIBE, (), self._now())
            while not self._stopping:
                await self._poll(who, consumer, 300)
                if rng.random() < 0.5:
                    await self._commit(consumer)

    async def _poll(self, who: str, consumer: AsyncConsumer, timeout_ms: float) -> int:
        recorder = self.facts.recorder
        before = consumer.assignment()
        operation = recorder.invoke(who, Kind.POLL, (), self._now())
        try:
            records = await consumer.poll(timeout_ms)
        except BarnabasError:
            recorder.info(operation, (), self._now())
            raise
        polls = [Poll(f"{r.topic}-{r.partition}", _decode(r.value), r.offset) for r in records]
        recorder.ok(operation, polls, self._now(), rebalanced=consumer.assignment() != before)
        return len(polls)

    async def _commit(self, consumer: AsyncConsumer) -> None:
        positions = {}
        for tp in sorted(consumer.assignment()):
            state = consumer._subscription.partitions.get(tp)
            if state is not None and state.position is not None:
                positions[tp] = state.position
        if not positions:
            return
        await consumer.commit(positions)
        committed = self.facts.committed
        for tp, offset in positions.items():
            committed[tp] = max(committed.get(tp, 0), offset)


def _encode(value: int | str, rng: random.Random) -> bytes:
    return b"%d:" % int(value) + b"x" * rng.choice([0, 10, 200])


def _decode(data: bytes) -> int:
    return int(data.partition(b":")[0])
