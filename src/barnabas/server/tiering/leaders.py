"""Shell: the tasks of all tiered partitions that this broker leads, and the deletion of partitions.

Each partition has a task that copies and a task that deletes. They run at remote.log.manager.task.interval.ms; after a
failure, again after a pause that grows up to remote.log.manager.task.retry.backoff.max.ms. The pool sizes limit how
many of them are at work at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.quotas.rates import QuotaWindows
from barnabas.server.storage.errors import StorageError
from barnabas.server.tiering.copier import SegmentCopier
from barnabas.server.tiering.errors import RemoteStorageError
from barnabas.server.tiering.leader import TieredLeader
from barnabas.server.tiering.ports import LedLog, RemoteLogMetadata
from barnabas.server.tiering.quotas import RemoteQuota
from barnabas.server.tiering.slots import Slots
from barnabas.server.tiering.values import PartitionDeleteState, RemotePartition, RemotePartitionDelete

log = get_logger("barnabas.server.tiering")


class TieringConfig(Struct, frozen=True):
    """The configs of the tasks, by the names of their broker configs. Those with an update mode in the config table may
    change meanwhile."""

    remote_log_manager_copier_thread_pool_size: int
    remote_log_manager_copy_max_bytes_per_second: int
    remote_log_manager_copy_quota_window_num: int
    remote_log_manager_copy_quota_window_size_seconds: int
    remote_log_manager_expiration_thread_pool_size: int
    remote_log_manager_task_interval_ms: int
    remote_log_manager_task_retry_backoff_max_ms: int
    remote_log_manager_task_retry_backoff_ms: int
    remote_log_manager_task_retry_jitter: float


class TieredLeaders:
    """Runs the tasks. `lead` and `resign` may be called before `run`."""

    def __init__(
        self,
        copier: SegmentCopier,
        metadata: RemoteLogMetadata,
        clock: Clock,
        rng: Rng,
        config: TieringConfig,
        *,
        broker_id: int,
    ) -> None:
        self._copier = copier
        self._metadata = metadata
        self._clock = clock
        self._rng = rng
        self._config = config
        self._broker_id = broker_id
        self._backoff = Backoff(
            config.remote_log_manager_task_retry_backoff_ms,
            config.remote_log_manager_task_retry_backoff_max_ms,
            jitter=config.remote_log_manager_task_retry_jitter,
        )
        self._copying = Slots(config.remote_log_manager_copier_thread_pool_size)
        self._expiring = Slots(config.remote_log_manager_expiration_thread_pool_size)
        self.copy_quota = RemoteQuota(
            config.remote_log_manager_copy_max_bytes_per_second,
            QuotaWindows(
                config.remote_log_manager_copy_quota_window_num,
                config.remote_log_manager_copy_quota_window_size_seconds,
            ),
        )
        self._leaders: dict[RemotePartition, TieredLeader] = {}
        self._running: dict[RemotePartition, list[asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None

    def reconfigure(self, config: TieringConfig) -> None:
        """The dynamic configs have changed: the limit of copies, and the sizes of the pools."""
        self.copy_quota.bytes_per_second = config.remote_log_manager_copy_max_bytes_per_second
        self._copying.resize(config.remote_log_manager_copier_thread_pool_size)
        self._expiring.resize(config.remote_log_manager_expiration_thread_pool_size)

    async def run(self) -> None:
        """Run the tasks until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._group:
                for partition in sorted(self._leaders):
                    self._start(partition)
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None
            self._running.clear()

    def leaders(self) -> list[TieredLeader]:
        """The partitions that have tasks, sorted."""
        return [self._leaders[partition] for partition in sorted(self._leaders)]

    def lead(self, partition: RemotePartition, led: LedLog) -> None:
        """This broker leads the partition from now on. Has no effect if it did before."""
        if partition not in self._leaders:
            self._leaders[partition] = TieredLeader(
                partition, led, self._copier, self._metadata, self._clock, self.copy_quota
            )
            if self._group is not None:
                self._start(partition)

    def resign(self, partition: RemotePartition) -> None:
        """This broker does not lead the partition any more, or the partition is not tiered any more."""
        self._leaders.pop(partition, None)
        for task in self._running.pop(partition, ()):
            task.cancel()

    def _start(self, partition: RemotePartition) -> None:
        assert self._group is not None, "run first"
        leader = self._leaders[partition]
        self._running[partition] = [
            self._group.create_task(self._repeat(partition, "copying", self._copying, leader.copy)),
            self._group.create_task(
                self._repeat(partition, "deleting", self._expiring, lambda: leader.expire(self._clock.now_ms()))
            ),
        ]

    async def _repeat(
        self, partition: RemotePartition, what: str, slots: Slots, step: Callable[[], Awaitable[int]]
    ) -> None:
        failures = 0
        while True:
            pause_ms: float = self._config.remote_log_manager_task_interval_ms
            try:
                async with slots:
                    await step()
                failures = 0
            except (RemoteStorageError, StorageError) as error:
                pause_ms = self._backoff.delay_ms(failures, self._rng)
                failures += 1
                log.warning(
                    f"{what} remote segments failed; it is repeated", partition=str(partition), reason=str(error)
                )
            await asyncio.sleep(pause_ms / 1000)

    async def delete_partition(self, partition: RemotePartition) -> None:
        """Delete all remote segments of a partition whose topic has been deleted. May be repeated after a failure, by
        any broker. Raises RemoteStorageError."""
        remote = self._metadata.remote_log(partition)
        for state in (PartitionDeleteState.DELETE_PARTITION_MARKED, PartitionDeleteState.DELETE_PARTITION_STARTED):
            if remote.delete_state is None or remote.delete_state < state:
                await self._write(partition, state)
        for segment in remote.segments():
            await self._copier.delete(segment)
        if remote.delete_state is not PartitionDeleteState.DELETE_PARTITION_FINISHED:
            await self._write(partition, PartitionDeleteState.DELETE_PARTITION_FINISHED)

    async def _write(self, partition: RemotePartition, state: PartitionDeleteState) -> None:
        event = RemotePartitionDelete(partition, self._broker_id, self._clock.now_ms(), state)
        await self._metadata.write(event)
