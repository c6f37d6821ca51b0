"""Shell: the clients of the two clusters: producers, members of groups, and one that tries to write to mirrors.

    east (the source)   producers, transactions that take long, members of both groups
    west (the mirror)   members of the group SHARED; a client that writes to the mirrors, which must be refused until
                        the cut-over; after it, the same producers as in the east

A fresh producer for each record makes producer ids of the two clusters equal, with equal sequence numbers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.share.session import AcknowledgeType
from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.testing.sim.workload import ATOMIC, PLAIN, Mix, Workload, WorkloadFacts
from barnabas.testing.sim.workload.producing import try_abort
from barnabas.testing.sim.workload.reading import positions_of
from barnabas.testing.sim.workload.supervisor import encode

if TYPE_CHECKING:
    import random

    from barnabas.client.producer.producer import AsyncProducer
    from barnabas.testing.sim.mirroring.site import Site

PARTITIONS: Final = 2
READERS: Final = "readers"
"""A group with members in the east only."""
SHARED: Final = "shared"
"""A group with members in both clusters. The members in the west commit offsets of their own."""
SHARERS: Final = "sharers"
"""A share group with members in the east only, in some runs."""
OWN: Final = "own"
"""The name of a topic of the west, which has one partition."""
_DELIVERY: Final[dict[str, Any]] = {"delivery_timeout_ms": 6_000, "max_block_ms": 5_000}
_PACE_S: Final = 0.3


@dataclass(slots=True)
class SiteFacts:
    """What the clients of one site know."""

    acknowledged: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    """The records that were acknowledged outside of transactions, or in committed transactions, by offset."""
    aborted: set[bytes] = field(default_factory=set)
    """The values whose transaction was certainly aborted."""
    too_early: list[str] = field(default_factory=list)
    """Records that a mirror has acknowledged."""

    def on_acknowledged(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        self.acknowledged.setdefault(tp, {})[offset] = value


class Programs:
    """The client programs of one site. `facts` are shared by both sites."""

    def __init__(self, site: Site, facts: WorkloadFacts) -> None:
        self.site = site
        self.known = SiteFacts()
        self.workload = Workload(site.world, Mix(), partitions=PARTITIONS)
        self.workload.facts = facts

    def add_writers(self) -> Programs:
        for name, program in (("p", produce), ("f", produce_with_fresh_ids), ("t", transact)):
            self._add(name, program)
        return self

    def add_readers(self, *groups: str) -> Programs:
        for group in groups:
            self.workload.add(f"{self.site.name}-{group}", partial(_read, self, group))
        return self

    def add_sharers(self, count: int) -> Programs:
        for number in range(count):
            self._add(f"s{number}", share)
        return self

    def add_intruder(self) -> Programs:
        self._add("x", intrude)
        return self

    def _add(self, name: str, program: Any) -> None:
        self.workload.add(f"{self.site.name}-{name}", partial(_begin, program, self))

    def start(self) -> None:
        self.workload.start()

    async def stop(self, within_s: float) -> None:
        await self.workload.stop(within_s)

    def pace(self, rng: random.Random) -> float:
        return rng.random() * _PACE_S


async def _begin(program: Any, programs: Programs, workload: Workload, who: str) -> None:
    await program(programs, who, workload.world.random_stream(who))


async def produce(programs: Programs, who: str, rng: random.Random) -> None:
    """Sends bursts of records with one idempotent producer."""
    codec = rng.choice(["none", "lz4"])
    async with programs.site.producer(compression_type=codec, **_DELIVERY) as producer:
        while not programs.workload.stopping:
            await _send(programs, producer, rng, rng.choice([1, 2, 10]))
            await asyncio.sleep(programs.pace(rng))


async def produce_with_fresh_ids(programs: Programs, who: str, rng: random.Random) -> None:
    """Sends each record with a new producer, which has a new producer id and begins with sequence number 0."""
    while not programs.workload.stopping:
        async with programs.site.producer(**_DELIVERY) as producer:
            await _send(programs, producer, rng, 1)
        await asyncio.sleep(programs.pace(rng))


async def _send(programs: Programs, producer: AsyncProducer, rng: random.Random, count: int) -> None:
    tp = TopicPartition(PLAIN, rng.randrange(PARTITIONS))
    values = [encode(programs.workload.value(), rng) for _ in range(count)]
    futures = [await producer.send(tp.topic, value, partition=tp.partition) for value in values]
    failed: BarnabasError | None = None
    for value, future in zip(values, futures, strict=True):
        try:
            offset = (await future).offset
        except BarnabasError as error:
            failed = failed or error
        else:
            programs.workload.facts.acknowledged += 1
            programs.known.on_acknowledged(tp, offset, value)
    if failed is not None:
        raise failed


async def transact(programs: Programs, who: str, rng: random.Random) -> None:
    """Runs transactions of which some stay open for seconds and some are aborted."""
    workload = programs.workload
    transactional_id = who.partition(".")[0]
    async with programs.site.producer(
        transactional_id=transactional_id, transaction_timeout_ms=8_000, **_DELIVERY
    ) as producer:
        await producer.init_transactions()
        while not workload.stopping:
            await _transaction(programs, producer, rng)
            await asyncio.sleep(programs.pace(rng))


async def _transaction(programs: Programs, producer: AsyncProducer, rng: random.Random) -> None:
    workload, known = programs.workload, programs.known
    targets = [TopicPartition(ATOMIC, rng.randrange(PARTITIONS)) for _ in range(rng.randint(1, 4))]
    values = [encode(workload.value(), rng) for _ in targets]
    commits = rng.random() < 0.6
    ending = False
    try:
        producer.begin_transaction()
        futures = [
            await producer.send(ATOMIC, value, partition=tp.partition)
            for tp, value in zip(targets, values, strict=True)
        ]
        offsets = [(await future).offset for future in futures]
        if rng.random() < 0.5 and not workload.stopping:
            await asyncio.sleep(rng.random() * 3.0)
        ending = commits
        await (producer.commit_transaction() if commits else producer.abort_transaction())
    except BarnabasError:
        if ending or not await try_abort(producer):
            raise
        commits = False
    if commits:
        workload.facts.transactions += 1
        for tp, offset, value in zip(targets, offsets, values, strict=True):
            known.on_acknowledged(tp, offset, value)
    else:
        known.aborted.update(values)


async def share(programs: Programs, who: str, rng: random.Random) -> None:
    """Runs a member of a share group, which accepts most records and releases some."""
    async with programs.site.share_consumer(
        group_id=SHARERS,
        fetch_max_wait_ms=200,
        default_api_timeout_ms=8_000,
        max_poll_records=20,
        share_acknowledgement_mode="explicit",
    ) as consumer:
        consumer.subscribe([PLAIN])
        while not programs.workload.stopping:
            records = await consumer.poll(300)
            for record in records:
                accepts = rng.random() < 0.9
                consumer.acknowledge(record, AcknowledgeType.ACCEPT if accepts else AcknowledgeType.RELEASE)
            if records:
                await consumer.commit()
            await asyncio.sleep(rng.random() * 0.2)


async def intrude(programs: Programs, who: str, rng: random.Random) -> None:
    """Tries to write to the mirrors of this site, and writes to a topic that is none. An acknowledgement while the
    topic is a mirror breaks a rule."""
    workload, site = programs.workload, programs.site
    async with site.producer(
        acks=rng.choice(["all", "1"]), enable_idempotence=False, retries=0, **_DELIVERY
    ) as producer:
        while not workload.stopping:
            topic = rng.choice([PLAIN, ATOMIC, OWN])
            tp = TopicPartition(topic, 0 if topic == OWN else rng.randrange(PARTITIONS))
            value = encode(workload.value(), rng)
            try:
                future = await producer.send(topic, value, partition=tp.partition)
                offset = (await future).offset
            except BarnabasError:
                pass
            else:
                if site.mode(topic) is not None:
                    programs.known.too_early.append(f"{tp}@{offset} in the {site.name}")
            await asyncio.sleep(programs.pace(rng) * 2)


async def _read(programs: Programs, group: str, workload: Workload, who: str) -> None:
    """Runs a member of a group, which commits its positions now and then."""
    rng = workload.world.random_stream(who)
    async with programs.site.consumer(
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        fetch_max_wait_ms=200,
        default_api_timeout_ms=8_000,
        group_protocol="consumer" if workload.world.seed % 2 else "classic",
    ) as consumer:
        consumer.subscribe([PLAIN, ATOMIC])
        while not workload.stopping:
            await consumer.poll(300)
            positions = positions_of(consumer)
            if positions and rng.random() < 0.5:
                await consumer.commit(positions)
