"""Shell: how programs call a client when they are impatient: they cancel calls at random moments, and read in all the
ways that a consumer has. In half of the runs all programs are patient: they poll, and wait for every call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.core.errors import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.client.consumer.consumer import AsyncConsumer
    from barnabas.client.values import ConsumerRecord
    from barnabas.testing.sim.workload.supervisor import Workload

T = TypeVar("T")
Records = list["ConsumerRecord[Any, Any]"]

IMPATIENT_SHARE: Final = 0.5
"""The share of the runs with impatient programs."""
_CANCELLED_SHARE: Final = 0.3
_LONGEST_WAIT_S: Final = 0.4
_CANCELLED_MAX: Final = 4
"""A call that must succeed is cancelled at most so often."""


class ProgramFailedError(Exception):
    """A program has failed on purpose, while it processed a record."""


class Impatience:
    """The random choices of one program."""

    def __init__(self, workload: Workload, who: str) -> None:
        self._workload = workload
        self._rng = workload.world.random_stream(f"{who}'s impatience")

    def is_tried(self, share: float) -> bool:
        """Whether the program does now what it does in this share of the cases; never in a calm or patient run."""
        return self._workload.impatient and not self._workload.calm and self._rng.random() < share

    def some(self, most: int) -> int:
        return self._rng.randint(1, most)

    def some_s(self) -> float:
        """Seconds; short durations are more likely."""
        return self._rng.random() ** 2 * _LONGEST_WAIT_S

    async def once(self, call: Awaitable[T]) -> T | None:
        """The result of the call; None if it was cancelled."""
        if not self.is_tried(_CANCELLED_SHARE):
            return await call
        return await within(self.some_s(), call)

    async def until_done(self, call: Callable[[], Awaitable[None]]) -> None:
        """Repeat the call until it was not cancelled."""
        for _ in range(_CANCELLED_MAX):
            if not self.is_tried(_CANCELLED_SHARE):
                break
            try:
                async with asyncio.timeout(self.some_s()):
                    await call()
                    return
            except TimeoutError as error:
                if isinstance(error, BarnabasError):
                    raise
        await call()

    async def poll(self, consumer: AsyncConsumer, timeout_ms: float) -> Records:
        """The records of one call; none if the call was cancelled or nothing came. No rebalance is between them."""
        if not self.is_tried(0.5):
            return await self.once(consumer.poll(timeout_ms)) or []
        match self._rng.randrange(4):
            case 0:
                return await self.once(consumer.poll(timeout_ms, max_records=self.some(50))) or []
            case 1:
                wanted = [p for p in sorted(consumer.assignment()) if self._rng.random() < 0.7]
                found = await self.once(consumer.getmany(*wanted, timeout_ms=timeout_ms))
                return [record for records in (found or {}).values() for record in records]
            case 2:
                record = await within(timeout_ms / 1000.0, consumer.getone())
            case _:
                record = await within(timeout_ms / 1000.0, anext(aiter(consumer)))
        return [] if record is None else [record]

    async def read(self, consumer: AsyncConsumer, timeout_ms: float) -> Records:
        """Records of one call or of several; none if the call was cancelled or nothing came."""
        if not self.is_tried(0.5):
            return await self.poll(consumer, timeout_ms)
        records: Records = []
        try:
            await self._rng.choice([self._iterate, self._get_one_by_one])(consumer, timeout_ms, records)
        except BarnabasError:
            if not records:
                raise
        return records

    async def _iterate(self, consumer: AsyncConsumer, timeout_ms: float, records: Records) -> None:
        """Loop over the consumer, leave the loop in the middle, and end a loop that waits too long."""
        count = self.some(10)
        try:
            async with asyncio.timeout(timeout_ms / 1000.0):
                async for record in consumer:
                    records.append(record)
                    if len(records) == count:
                        break
        except TimeoutError as error:
            if isinstance(error, BarnabasError):
                raise

    async def _get_one_by_one(self, consumer: AsyncConsumer, timeout_ms: float, records: Records) -> None:
        for _ in range(self.some(4)):
            record = await within(timeout_ms / 1000.0, consumer.getone())
            if record is None:
                break
            records.append(record)


def membership_of(consumer: AsyncConsumer) -> object:
    """A value that changes when the group rebalances."""
    return consumer.assignment(), consumer._coordinator and consumer._coordinator.metadata


async def within(seconds: float, call: Awaitable[T]) -> T | None:
    """The result of the call; None if it was cancelled after this time."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError as error:
        if isinstance(error, BarnabasError):
            raise
        return None
