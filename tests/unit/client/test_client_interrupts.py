"""Blocking calls that are interrupted at every point where CPython can run a signal handler; and `close` when it is
cancelled. (tests/system/client/interrupted does the same with a broker.)"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.blocking import BlockingReader, Consumer, ShareConsumer, _BlockingRecords
from barnabas.client.blocking_producer import Producer
from barnabas.client.errors import TransactionStateError
from barnabas.client.producer.transactions import State
from barnabas.client.resumed import Closing
from tests.system.client.interrupted.attempts import Interrupted, Points


def interruptions(call: Callable[[], Any]) -> Iterator[int]:
    """Interrupt a call at its first point, its second point and so on, until it returns."""
    for at in itertools.count():
        try:
            Points(at).run(call)
        except Interrupted:
            yield at
        else:
            assert at > 5, f"the call has {at} points only: is it traced?"
            return


class Records:
    """What a call has taken: a delivery of three records."""

    def __init__(self, log: Log) -> None:
        self.ended = self.one_by_one = False
        self.records = [*range(log.position, log.position + 3)]
        self._log = log

    def receive(self, count: int) -> None:
        self._log.position = self.records[0] + count

    def put_back(self) -> None:
        self.ended = True


class Log:
    """An asyncio client that returns numbers, in order."""

    def __init__(self) -> None:
        self.defers = False
        self.on_the_way: Records | None = None
        self.position = 0
        self.closed = 0
        self.cluster = SimpleNamespace(abandon=lambda: None)

    async def poll(self, timeout_ms: float = 0) -> list[int]:
        self.on_the_way = Records(self)
        return self.on_the_way.records

    async def close(self, timeout_ms: float | None = None) -> None:
        self.closed += 1

    async def shut(self, timeout_ms: float | None, *, leave: bool | None, finished: bool) -> None:
        await self.close()


def reader(kind: type[BlockingReader[Any]]) -> Any:
    one = kind.__new__(kind)
    BlockingReader.__init__(one, Log)
    one._singles = _BlockingRecords(one, is_loop=False)
    return one


@pytest.mark.parametrize("kind", [Consumer, ShareConsumer])
def test_getone_that_is_interrupted_has_no_effect(kind: type[BlockingReader[Any]]) -> None:
    with reader(kind) as one:
        received = -1

        def getone() -> None:
            nonlocal received
            one._until = one._singles._until = 0.0  # so that the call asks the client
            received = one.getone()

        next_one = 0
        for _ in interruptions(getone):
            assert one.getone() == next_one
            next_one += 1
        assert received == next_one


@pytest.mark.parametrize("kind", [Consumer, ShareConsumer])
def test_close_that_is_interrupted_goes_on(kind: type[BlockingReader[Any]]) -> None:
    ones: list[Any] = []

    def close() -> None:
        ones.append(reader(kind))
        Points(ones_at).run(ones[-1].close)

    for ones_at in itertools.count():
        try:
            close()
        except Interrupted:
            one = ones[-1]
            one.close()
            assert one._client.closed, f"at point {ones_at}"
        else:
            break
    assert len(ones) > 20


class Ending:
    """A transaction that can be ended once."""

    def __init__(self) -> None:
        self.state = State.READY
        self.ended = 0

    async def end(self, *, commit: bool, settle: Any, deadline: float) -> None:
        if self.ended:
            raise TransactionStateError("no transaction is open")
        self.ended += 1

    async def settle(self) -> None: ...

    async def stop(self) -> None: ...


def test_a_commit_that_is_interrupted_can_be_repeated() -> None:
    with Producer(bootstrap_servers="127.0.0.1:1", transactional_id="t") as producer:
        ending = producer._client._transactions = Ending()  # type: ignore[assignment]
        for at in interruptions(producer.commit_transaction):
            producer.commit_transaction()
            assert ending.ended == 1, f"at point {at}"
            with pytest.raises(TransactionStateError):
                producer.commit_transaction()
            ending.ended = 0


async def test_the_end_of_a_client_goes_on_when_it_is_cancelled() -> None:
    closing, said, may_end = Closing("end"), [], asyncio.Event()

    async def farewell() -> None:
        said.append("begun")
        await may_end.wait()
        said.append("ended")

    async def stop(is_late: bool) -> None:
        said.append("late" if is_late else "stopped")

    first = asyncio.create_task(closing.run(None, farewell, stop))
    while not said:
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    again = asyncio.create_task(closing.run(None, farewell, stop))
    await asyncio.sleep(0)
    assert closing.has_begun
    assert not again.done()
    may_end.set()
    await again
    await closing.run(None, farewell, stop)
    assert said == ["begun", "ended", "stopped"]


async def test_a_later_call_shortens_the_time_out() -> None:
    closing, said = Closing("end"), []

    async def farewell() -> None:
        said.append("begun")
        await asyncio.Event().wait()

    async def stop(is_late: bool) -> None:
        said.append("late" if is_late else "stopped")

    first = asyncio.create_task(closing.run(None, farewell, stop))
    while not said:
        await asyncio.sleep(0)
    await closing.run(0, farewell, stop)
    await first
    assert said == ["begun", "late"]
