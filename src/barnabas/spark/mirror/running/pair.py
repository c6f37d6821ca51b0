"""Shell: one pair of clusters: all its jobs, until it is stopped."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.core.clock import Clock, SystemClock
from barnabas.spark.mirror.config.values import PairConfig
from barnabas.spark.mirror.deciding.lag import MirrorLag
from barnabas.spark.mirror.offsets.runs import CopiedRuns
from barnabas.spark.mirror.ports import RecordCopier
from barnabas.spark.mirror.records import Heartbeat, encode_heartbeat
from barnabas.spark.mirror.running.administration import Administration
from barnabas.spark.mirror.running.clusters import PairClients
from barnabas.spark.mirror.running.group_jobs import GroupJobs
from barnabas.spark.mirror.running.internal_topics import create_internal_topics
from barnabas.spark.mirror.running.pair_copying import PairCopying
from barnabas.spark.mirror.running.repeating import RETRY_S_MAX, Repeater

CHECK_INTERVAL_S: Final = 0.5
"""How often the copier is asked whether it has failed, and offset syncs are written."""
MEASURE_INTERVAL_S: Final = 5.0
"""How often the ends of the source logs are asked for."""
_RETRY_S: Final = 1.0
_STEADY_S: Final = 60.0
"""After this time without a failure, the next one is retried soon."""


@dataclass(frozen=True, slots=True)
class PairStatus:
    """What a pair does now."""

    pair: str
    state: str
    """starting, heartbeats (only), copying, stopped."""
    lags: Sequence[MirrorLag]
    errors: dict[str, str]
    """The jobs whose last attempt has failed, and why."""
    batches: int
    restarts: int


class PairRunner:
    """Runs a pair. A pair that is not enabled writes heartbeats only."""

    def __init__(self, config: PairConfig, copier: RecordCopier | None, clock: Clock | None = None) -> None:
        """`copier` may be None for a pair that is not enabled."""
        assert copier is not None or not config.enabled
        self.config = config
        self._copier = copier
        self._clock = clock or SystemClock()
        self._repeater = Repeater(config.name)
        self._copy: PairCopying | None = None
        self._opposite: PairRunner | None = None
        self._opposite_config: PairConfig | None = None
        self._state = "starting"
        self.runs = CopiedRuns()
        """What this process has copied of the pair."""

    def oppose(self, config: PairConfig, runner: PairRunner | None) -> None:
        """The pair in the other direction, and its runner if this process runs it."""
        self._opposite_config = config
        self._opposite = runner

    def stop(self) -> None:
        """Let `run` return after the current micro-batch."""
        self._repeater.stop()

    def status(self) -> PairStatus:
        copy = self._copy
        return PairStatus(
            self.config.name,
            self._state,
            [] if copy is None else copy.board.lags(self._clock.now_ms()),
            dict(self._repeater.errors),
            0 if copy is None else copy.batches,
            0 if copy is None else copy.restarts,
        )

    async def run(self) -> None:
        """Raises MirrorDataLossError (`on.data.loss=fail`), and ConfigError for wrong settings of clients."""
        async with PairClients(self.config) as clients:
            while not await self._repeater.attempt("internal topics", lambda: self._create(clients)):
                if await self._repeater.pause(5 * _RETRY_S):
                    return
            try:
                await self._run_jobs(clients)
            finally:
                self._state = "stopped"

    async def _create(self, clients: PairClients) -> None:
        await create_internal_topics(self.config, clients)

    async def _run_jobs(self, clients: PairClients) -> None:
        config, repeat = self.config, self._repeater.repeat
        self._state = "heartbeats"
        async with asyncio.TaskGroup() as tasks:
            if config.heartbeats.enabled:
                tasks.create_task(repeat("heartbeats", config.heartbeats.interval_s, lambda: self._beat(clients)))
            if not config.enabled:
                return
            assert self._copier is not None
            administration = Administration(config, clients)
            copy = self._copy = PairCopying(config, clients, administration, self._copier, self.runs, self._clock)
            tasks.create_task(self._copying(copy))
            tasks.create_task(repeat("lag", MEASURE_INTERVAL_S, copy.measure))
            if config.sync_configs.enabled:
                tasks.create_task(repeat("configs", config.sync_configs.interval_s, administration.sync_configs))
            if config.sync_acls.enabled:
                tasks.create_task(repeat("ACLs", config.sync_acls.interval_s, administration.sync_acls))
            self._start_group_jobs(tasks, copy, clients)

    def _start_group_jobs(self, tasks: asyncio.TaskGroup, copy: PairCopying, clients: PairClients) -> None:
        config = self.config
        if not config.offset_syncs_enabled or not (config.checkpoints.enabled or config.sync_groups.enabled):
            return
        opposite = None
        if self._opposite_config is not None:
            opposite = self._opposite_config, CopiedRuns() if self._opposite is None else self._opposite.runs
        groups = GroupJobs(config, clients, self.runs, opposite)
        copy.committed = groups.committed
        tasks.create_task(self._group_jobs(groups))

    async def _group_jobs(self, groups: GroupJobs) -> None:
        """Jobs of groups run one after the other, because they share what they know."""
        config, now = self.config, asyncio.get_running_loop().time
        refresh_s = config.refresh_groups.interval_s if config.refresh_groups.enabled else math.inf
        jobs: list[tuple[str, float, Callable[[], Awaitable[None]]]] = [("groups", refresh_s, groups.refresh_groups)]
        if config.checkpoints.enabled:
            jobs.append(("checkpoints", config.checkpoints.interval_s, groups.emit_checkpoints))
        if config.sync_groups.enabled:
            jobs.append(("group offsets", config.sync_groups.interval_s, groups.sync_groups))
        due = {name: 0.0 for name, _, _ in jobs}
        while True:
            for name, interval_s, work in jobs:
                if now() >= due[name]:
                    succeeded = await self._repeater.attempt(name, work)
                    due[name] = now() + (interval_s if succeeded else min(interval_s, 5 * _RETRY_S))
            if await self._repeater.pause(max(0.05, min(due.values()) - now())):
                return

    async def _copying(self, copy: PairCopying) -> None:
        """Refresh the topics at their interval, and start the copier again when it has failed: soon, and later and
        later while it goes on failing."""
        now = asyncio.get_running_loop().time
        refresh_at, failed_at, retry_s = 0.0, 0.0, _RETRY_S
        job = self.config.refresh_topics
        try:
            while True:
                succeeded = True
                if now() >= refresh_at:
                    succeeded = await self._repeater.attempt("topics", copy.refresh)
                    if succeeded:
                        refresh_at = now() + (job.interval_s if job.enabled else math.inf)
                        self._state = "copying"
                if not (succeeded and await self._repeater.attempt("copying", copy.check)):
                    retry_s = _RETRY_S if now() - failed_at > _STEADY_S else min(2 * retry_s, RETRY_S_MAX)
                    failed_at, refresh_at = now(), now() + retry_s
                await self._repeater.attempt("offset syncs", copy.write_syncs)
                if await self._repeater.pause(CHECK_INTERVAL_S):
                    return
        finally:
            await self._repeater.attempt("stopping", copy.stop)

    async def _beat(self, clients: PairClients) -> None:
        """Write a heartbeat into the target cluster."""
        heartbeat = Heartbeat(self.config.source, self.config.target, self._clock.now_ms())
        await clients.target.write(self.config.heartbeats_topic, [encode_heartbeat(heartbeat)])
