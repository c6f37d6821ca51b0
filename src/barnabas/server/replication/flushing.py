"""Shell: fsync in an executor, at most one per log at a time, shared by all requests that wait for it (group commit).

Kafka leaves durability to replication and does not fsync by default. With `flush.messages` an append is acknowledged
after its fsync. The event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import StorageError, TransientStorageError
from barnabas.server.storage.log import Log

log = get_logger("barnabas.server.replication")

_RETRY_S: Final = 0.1


class Flusher:
    """Runs the flush jobs of all logs. `run` owns the tasks; flushes requested before `run` start when `run` starts."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._running: dict[int, asyncio.Task[None]] = {}
        """The flush in progress, by the identity of its log."""
        self._again: set[int] = set()
        """Logs that are flushed again when their flush in progress ends."""
        self._early: dict[int, Log] = {}
        """Logs whose flush was requested before `run`."""
        self._early_directories: list[LogDir] = []
        """Directories with created logs whose sync was requested before `run`."""
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            for directory in self._early_directories:
                self.sync_created(directory)
            early, self._early = self._early, {}
            for target in early.values():
                self.request_all(target)
            await asyncio.get_running_loop().create_future()

    async def flushed(self, target: Log, offset: int) -> None:
        """Wait until all records below `offset` are durable.

        Raises StorageError on a disk error, and KafkaError NOT_LEADER_OR_FOLLOWER if the log was truncated below
        `offset` because another broker became the leader.
        """
        while target.durable_offset < offset:
            target.check_usable()
            if target.log_end_offset < offset:
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{target.topic_partition} was truncated before the flush ended."
                )
            await asyncio.shield(self._start(target, everything=True))

    async def flush_all(self, target: Log) -> None:
        """Wait until all records that the log holds now are durable or truncated. Raises StorageError."""
        end = target.log_end_offset
        while target.durable_offset < min(end, target.log_end_offset):
            target.check_usable()
            await asyncio.shield(self._start(target, everything=True))

    def is_busy(self, target: Log) -> bool:
        """Whether a flush of the log is in progress."""
        return id(target) in self._running

    async def idle(self, target: Log) -> None:
        """Wait for the end of the flush in progress, successful or not."""
        running = self._running.get(id(target))
        if running is not None:
            await asyncio.wait((running,))

    def request(self, target: Log) -> None:
        """Flush the data that is due (a segment was rolled, or `flush.ms` has passed). The caller does not wait."""
        if target.failure is None:
            self._start(target, everything=False)

    def request_all(self, target: Log) -> None:
        """Flush soon everything that is in the log now; `LogListener.on_durable` reports the result.

        Records that are appended while a flush is in progress are flushed together by the next one.
        """
        if target.failure is not None:
            return
        if self._tasks is None:
            self._early[id(target)] = target
        elif id(target) in self._running:
            self._again.add(id(target))
        else:
            self._start(target, everything=True)

    def sync_created(self, directory: LogDir) -> None:
        """Make the names and topic ids of the logs that were created in a directory durable soon."""
        if self._tasks is None:
            self._early_directories.append(directory)
            return
        paths = directory.take_created()
        if paths and directory.failure is None:
            self._tasks.create_task(self._sync_created(directory, paths), name=f"new logs of {directory.path}")

    async def _sync_created(self, directory: LogDir, paths: list[str]) -> None:
        while directory.failure is None:
            try:
                await asyncio.get_running_loop().run_in_executor(self._executor, directory.sync_created, paths)
                return
            except TransientStorageError as error:
                log.info("new logs could not be synced; it is tried again", path=directory.path, reason=str(error))
                await asyncio.sleep(_RETRY_S)
            except StorageError as error:
                directory.fail(error)

    def _start(self, target: Log, *, everything: bool) -> asyncio.Task[None]:
        running = self._running.get(id(target))
        if running is None:
            assert self._tasks is not None, "run() must own the flusher's tasks"
            running = self._running[id(target)] = self._tasks.create_task(self._flush(target, everything=everything))
        return running

    async def _flush(self, target: Log, *, everything: bool) -> None:
        try:
            await self._flush_once(target, everything=everything)
        finally:
            del self._running[id(target)]
        if id(target) in self._again:
            self._again.discard(id(target))
            self.request_all(target)

    async def _flush_once(self, target: Log, *, everything: bool) -> None:
        try:
            job = target.flush_job(everything=everything)
        except StorageError as error:  # if the log is offline now, its listeners have been notified
            await _pause_unless_failed(target, error)
            return
        if job is None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, job.run)
        except StorageError as error:
            job.failed(error)
            if target.failure is not None:
                log.error("fsync failed; the log directory goes offline", log=target.path, reason=str(error))
            await _pause_unless_failed(target, error)
        else:
            job.finish()


async def _pause_unless_failed(target: Log, error: StorageError) -> None:
    """The flush could not begin, for example without a file descriptor: those who wait for it try again soon."""
    if target.failure is None:
        log.info("a flush could not begin; it is tried again", log=target.path, reason=str(error))
        await asyncio.sleep(_RETRY_S)
