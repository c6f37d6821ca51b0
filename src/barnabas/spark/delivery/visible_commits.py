"""Shell: after a commit, aborts what lost attempts have left open, and waits until the rows of the commit are visible.

The commit is done, so nothing here fails it: an error, or a wait that takes too long, is only a warning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.delivery.ports import OpenTransactions, StableOffsets
from barnabas.spark.delivery.visibility import (
    PAUSE_MIN_MS,
    Holder,
    Newest,
    WaitedFor,
    hidden,
    next_pause_ms,
    warning,
)

log = logging.getLogger("barnabas.spark")

REQUESTS_TIMEOUT_S: Final = 10.0
"""How long the requests may take that abort lost attempts, and those that find out what holds rows back."""

OTHERS_MS: Final = 80
"""The pause from which on it is likely that another transaction is in the way than that of the commit."""


Attempts = tuple[SinkName, str]
"""The task attempts of a commit: the name of the sink, and the run in their transactional ids."""


class VisibleCommits:
    """What a process does after its commits. `now_ms` is the time since 1970."""

    def __init__(self, transactions: OpenTransactions, log_ends: StableOffsets, now_ms: Callable[[], int]) -> None:
        self._transactions = transactions
        self._log_ends = log_ends
        self._now_ms = now_ms
        self._waited_for = WaitedFor()

    async def abort_lost(self, name: SinkName, run: str) -> int:
        """Abort the open transactions of the run's attempts; returns their number. Called when no attempt of the run
        can be decided any more: after a commit, or when the run has failed. Raises KafkaError."""
        ids = [each for each in await self._transactions.open_ids(name) if name.run_of(each) == run]
        lost = await self._transactions.standing(ids) if ids else {}
        if lost:
            log.warning("aborting %d transactions that lost task attempts of %s left open", len(lost), name.query_id)
            await asyncio.gather(*(self._transactions.abort(each) for each in lost.values()))
        return len(lost)

    async def show(self, attempts: Attempts | None, what: str, newest: Newest, timeout_ms: int) -> bool:
        """Abort the lost ones of the attempts, then wait for at most `timeout_ms` until all rows are visible. Returns
        whether they are. `what` says in a warning what is done, such as "the batch write is committed". `attempts` is
        None for a write without transactions, which only those of other programs can hold back."""
        try:
            async with asyncio.timeout(REQUESTS_TIMEOUT_S):
                await self._abort_lost(attempts)
        except (KafkaError, TimeoutError) as error:
            log.warning("%s; what its lost attempts have left open is not aborted now: %r", what, error)
        if timeout_ms <= 0 or not newest:
            return not newest
        began_ms, pause_ms = self._now_ms(), PAUSE_MIN_MS
        blocked: Collection[TopicPartition] = sorted(newest)
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                while blocked := hidden(newest, await self._log_ends.stable(blocked)):
                    if pause_ms >= OTHERS_MS:
                        await self._abort_lost(attempts)  # those of attempts that began late
                        if self._waited_for and self._waited_for.has_all(blocked, await self._holders(blocked)):
                            return False
                    await asyncio.sleep(pause_ms / 1_000)
                    pause_ms = next_pause_ms(pause_ms)
            return True
        except TimeoutError:
            pass
        except KafkaError as error:
            log.warning("%s; whether its rows are visible is not known: %s", what, error)
            return False
        holders = await self._holders(blocked)
        self._waited_for.add(holders)
        now_ms = self._now_ms()
        log.warning("%s", warning(what, now_ms - began_ms, blocked, holders, now_ms))
        return False

    async def _abort_lost(self, attempts: Attempts | None) -> None:
        if attempts is not None:
            await self.abort_lost(*attempts)

    async def _holders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Holder]:
        """What holds the partitions back, as far as the brokers say it soon."""
        try:
            async with asyncio.timeout(REQUESTS_TIMEOUT_S):
                return await self._log_ends.holders(partitions)
        except (KafkaError, TimeoutError) as error:
            log.info("the open transactions of %d partitions cannot be read: %r", len(partitions), error)
            return {}
