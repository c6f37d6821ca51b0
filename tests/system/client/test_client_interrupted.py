"""Whatever call of a client is cancelled or interrupted, and wherever: nothing is lost, done twice, or hangs. The
programs and their rules are in `interrupted`.

BARNABAS_INTERRUPTED_RUNS has the number of interrupted calls per client.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from barnabas.client.blocking import BlockingReader
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.consumer.handout import Handout, HandoutRun
from barnabas.client.errors import TransactionStateError
from barnabas.client.producer.transactions import Transactions
from barnabas.testing.embedded import EmbeddedBroker
from tests.system.client.conftest import IMPATIENT
from tests.system.client.interrupted import administering, copying, groups, reading, sharing, writing
from tests.system.client.interrupted.attempts import Cancelling, Interrupting, drive
from tests.system.client.interrupted.world import ASYNCIO, BLOCKING, Clients, World

RUNS = int(os.environ.get("BARNABAS_INTERRUPTED_RUNS", "2000"))
MANY = 20 * RUNS
FOUND_WITHIN = 4_000
"""The number of runs within which a planted bug must be found."""

pytestmark = pytest.mark.system

Programs = Callable[[World, int], Awaitable[None]]


async def consumers(world: World, runs: int) -> None:
    members = runs // 20
    for number in _until(world, members):
        protocol = ("classic", "consumer")[number % 2]
        await groups.take_turns(world, protocol=protocol, automatic=bool(number // 2 % 2))
    for number in _until(world, runs):
        await reading.read(world, automatic=bool(number % 2))


async def share_consumers(world: World, runs: int) -> None:
    for number in _until(world, runs):
        await sharing.share(world, explicit=bool(number % 2))


async def producers(world: World, runs: int) -> None:
    written: list[writing.Writer] = []
    for _ in _until(world, runs):
        await writing.write(world, written)
    await writing.check(world, written)


async def transactions(world: World, runs: int) -> None:
    copiers: list[copying.Copier] = []
    for _ in _until(world, runs):
        await copying.copy(world, copiers, two_phase=False)
    await copying.check(world, copiers)


async def two_phase_commits(world: World, runs: int) -> None:
    copiers: list[copying.Copier] = []
    for _ in _until(world, runs):
        await copying.copy(world, copiers, two_phase=True)
    await copying.check(world, copiers)


async def administration(world: World, runs: int) -> None:
    for _ in _until(world, runs):
        await administering.administer(world)


def _until(world: World, runs: int) -> Any:
    """The numbers of the next programs, until there were so many runs."""
    number = 0
    while world.attempts.runs < runs:
        yield number
        number += 1


def run(servers: str, clients: Clients, programs: Programs, runs: int, seed: int) -> None:
    if clients is ASYNCIO:
        cancelling = Cancelling(seed)
        asyncio.run(_run(World(servers, clients, cancelling), programs, runs, seed))
    else:
        with Interrupting(seed) as interrupting:
            drive(_run(World(servers, clients, interrupting), programs, runs, seed))


async def _run(world: World, programs: Programs, runs: int, seed: int) -> None:
    attempts = world.attempts
    await world.start()
    try:
        await programs(world, runs)
    except BaseException as error:
        error.add_note(f"seed {seed}, after {attempts.runs} runs; the last ones: " + "\n  ".join(attempts.history))
        raise
    finally:
        await world.stop()
    assert attempts.interrupted.total() > runs / 2, attempts.interrupted


@pytest.fixture(scope="module")
def two_phase_servers() -> Iterator[str]:
    with EmbeddedBroker({**IMPATIENT, "transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker.bootstrap_servers


def _servers_for(programs: Programs, servers: str, request: pytest.FixtureRequest) -> str:
    """For two-phase commits our broker in any case: Apache Kafka has them behind a flag for unstable versions."""
    return str(request.getfixturevalue("two_phase_servers")) if programs is two_phase_commits else servers


CLIENTS = pytest.mark.parametrize("clients", [ASYNCIO, BLOCKING], ids=["asyncio", "blocking"])
PROGRAMS = pytest.mark.parametrize(
    ("programs", "share"),
    [
        (consumers, 1),
        (share_consumers, 1),
        (producers, 2),
        (transactions, 2),
        (two_phase_commits, 2),
        (administration, 4),
    ],
)
"""Each with its share of the runs of its client."""


@pytest.fixture(autouse=True)
def no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """Transactions that are open when their producer is closed are meant to be."""
    caplog.set_level(logging.ERROR, "barnabas.client")


@CLIENTS
@PROGRAMS
def test_interrupted_calls_lose_nothing(
    servers: str, clients: Clients, programs: Programs, share: int, request: pytest.FixtureRequest
) -> None:
    run(_servers_for(programs, servers, request), clients, programs, RUNS // share, seed=1)


@pytest.mark.slow
@CLIENTS
@PROGRAMS
def test_many_interrupted_calls_lose_nothing(
    servers: str, clients: Clients, programs: Programs, share: int, request: pytest.FixtureRequest
) -> None:
    run(_servers_for(programs, servers, request), clients, programs, MANY // share, seed=random.randrange(1 << 32))


# -- planted bugs ------------------------------------------------------------------------------------------------------


def behind_the_whole_poll(patch: pytest.MonkeyPatch) -> None:
    """At the first record of an iteration the position moves behind all records that were taken."""
    right = Handout.receive

    def receive(self: Handout, runs: list[HandoutRun], count: int | None = None) -> list[HandoutRun]:
        left = right(self, runs, count)
        for run in left:
            if run.at:
                run.state.returned = run.end
        return left

    patch.setattr(Handout, "receive", receive)


def received_though_interrupted(patch: pytest.MonkeyPatch) -> None:
    """The records of a poll count as received before the program has them."""
    right, right_settle = AsyncConsumer.poll, BlockingReader._settle

    async def poll(self: AsyncConsumer, *args: Any, **options: Any) -> Any:
        records = await right(self, *args, **options)
        await asyncio.sleep(0)
        return records

    def settle(self: BlockingReader[Any], *, moves: bool) -> None:
        if moves and (on_the_way := self._client.on_the_way) is not None:
            on_the_way.receive(len(on_the_way.records))
        right_settle(self, moves=moves)

    patch.setattr(AsyncConsumer, "poll", poll)
    patch.setattr(BlockingReader, "_settle", settle)


def ending_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A commit or an abort that is cancelled leaves the transaction half ended."""

    async def end(self: Transactions, *, commit: bool, settle: Any, deadline: float) -> None:
        self._check_can_end(commit)
        self._commits = commit
        await self._settle_and_end(commit, settle, deadline)

    patch.setattr(Transactions, "end", end)


@CLIENTS
@pytest.mark.parametrize(
    ("plant", "programs"),
    [
        (behind_the_whole_poll, consumers),
        (received_though_interrupted, consumers),
        (ending_for_ever, transactions),
    ],
)
def test_a_planted_bug_is_found(
    servers: str,
    clients: Clients,
    plant: Callable[[pytest.MonkeyPatch], None],
    programs: Programs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, TransactionStateError)):
        run(servers, clients, programs, FOUND_WITHIN, seed=1)
