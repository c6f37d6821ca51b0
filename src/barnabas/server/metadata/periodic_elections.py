"""Shell: the elections that the active controller holds by itself.

leaderless   partitions that an active broker could lead: when the controller becomes active, and after the unfence
             of a broker with very many partitions
balance      preferred leaders, each leader.imbalance.check.interval.seconds (auto.leader.rebalance.enable)
unclean      where unclean.leader.election.enable allows it, each unclean.leader.election.interval.ms
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.server.metadata.controller.partitions import (
    decide_balance_leaders,
    decide_leaderless,
    decide_unclean_elections,
)
from barnabas.server.metadata.controller.settings import ControllerConfig
from barnabas.server.metadata.driver import ControllerDriver
from barnabas.server.metadata.session_keeper import BATCH_PAUSE_S


class PeriodicElections:
    """Holds the elections that are due. Each decision changes a limited number of partitions; if there are more, the
    next decision follows after a short pause."""

    def __init__(self, driver: ControllerDriver, settings: ControllerConfig) -> None:
        self._driver = driver
        self._settings = settings
        self._balance_at = self._unclean_at = 0.0
        self.leaderless = False
        """Whether there may be partitions without a leader that an active broker could lead."""

    def start(self) -> None:
        """This controller has become active."""
        now = asyncio.get_running_loop().time()
        self._balance_at = now + self._settings.leader_imbalance_check_interval_seconds
        self._unclean_at = now + self._settings.unclean_leader_election_interval_ms / 1000
        self.leaderless = True

    def on_configs_changed(self) -> None:
        """The changed configs may allow an unclean election."""
        self._unclean_at = 0.0

    async def run_due(self, is_active: Callable[[], bool]) -> None:
        """Hold the elections that are due, while `is_active()`. Raises KafkaError as `ControllerDriver.submit` does."""
        loop, settings = asyncio.get_running_loop(), self._settings
        while self.leaderless and is_active():
            self.leaderless = False
            if await self._driver.submit(decide_leaderless):
                self.leaderless = True
                await asyncio.sleep(BATCH_PAUSE_S)
        if settings.auto_leader_rebalance_enable and loop.time() >= self._balance_at:
            more = await self._driver.submit(decide_balance_leaders)
            pause = BATCH_PAUSE_S if more else settings.leader_imbalance_check_interval_seconds
            self._balance_at = loop.time() + pause
        if loop.time() >= self._unclean_at:
            more = await self._driver.submit(decide_unclean_elections)
            pause = BATCH_PAUSE_S if more else settings.unclean_leader_election_interval_ms / 1000
            self._unclean_at = loop.time() + pause

    def next_round_at(self) -> float:
        """The loop's time at which an election is due next."""
        if self._settings.auto_leader_rebalance_enable:
            return min(self._unclean_at, self._balance_at)
        return self._unclean_at
