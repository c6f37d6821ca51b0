"""Shell: moves replicas from one directory of this broker to another (AlterReplicaLogDirs, KIP-113 and KIP-858).

    1. Create an empty log with a `-future` name in the target directory, and copy the batches of the original log into
       it unchanged, at most at replica.alter.log.dirs.io.max.bytes.per.second. The copy follows truncations and
       advances of the log start offset.
    2. When the copy has reached the end of the original, report the new directory to the controller.
    3. Without leaving the event loop: copy the remaining batches and the state that batches do not contain, rename the
       copy, and continue the partition in it. There are two complete logs now; appends go to the new one.
    4. When all synced data of the original is synced in the copy too, rename the original to `-delete`.

A crash before step 3 leaves the original and an incomplete copy, which is discarded. A crash between steps 3 and 4
leaves two complete logs. The one with the later end is used (`found_logs.py`), because it contains all acknowledged and
all flushed records. The original is not compacted during a move.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Final
from uuid import UUID

from barnabas.core.buffers import Buffer
from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.rng import Rng, random_uuid
from barnabas.core.telemetry import Metrics, get_logger
from barnabas.server.metadata.image.cluster import ClusterImage, ResourceType
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.replication.config import ReplicationConfig
from barnabas.server.replication.directories.reporter import DirectoryReporter
from barnabas.server.replication.flushing import Flusher
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions, ReplicaCopy
from barnabas.server.replication.rules.throttle import ReplicaThrottle
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import LogDirError, StorageError, TransientStorageError
from barnabas.server.storage.listener import LogListener
from barnabas.server.storage.log import Log
from barnabas.server.storage.names import DIR_FUTURE, marked_dir
from barnabas.server.storage.values import ReadResult

log = get_logger("barnabas.server.replication")

_CHUNK: Final = 1 << 20
"""The number of bytes that are copied before other tasks get a turn on the event loop."""


class DirectoryMove:
    """The move of one replica from `source` to `target`."""

    def __init__(self, partition: Partition, source: LogDir, target: LogDir, original: Log, copy: Log) -> None:
        self.partition = partition
        self.source = source
        self.target = target
        self.original = original
        self.copy = copy
        self.over = False
        """The move is finished or was cancelled."""
        self.swapped = False
        """The partition uses the copy; the original is deleted next."""
        self.closing = False
        """The copy is no longer flushed: with continuous appends there would always be another flush to wait for."""
        self.then: LogDir | None = None
        """The directory of the next move, requested after the swap."""
        self.truncations = 0
        """The number of truncations of the original. Batches read before a truncation are not appended to the copy."""
        self.wake = asyncio.Event()
        self.listener: LogListener | None = None

    @property
    def name(self) -> TopicPartition:
        return self.partition.name

    def stop_listening(self) -> None:
        """Remove the listener for truncations from the original: the copy no longer follows the original."""
        if self.listener is not None:
            self.original.remove_listener(self.listener)


class _TruncationListener(LogListener):
    """Truncates the copy whenever the original is truncated."""

    def __init__(self, truncate: Callable[[], None]) -> None:
        self._truncate = truncate

    def on_truncated(self) -> None:
        self._truncate()


class DirectoryMover:
    """Moves replicas between log directories. Implements `partitions.Mover`.

    The mover subscribes to images after `Replication`.
    """

    def __init__(
        self,
        partitions: Partitions,
        reporter: DirectoryReporter,
        flusher: Flusher,
        disk: Executor,
        config: Callable[[], ReplicationConfig],
        clock: Clock,
        rng: Rng,
        metrics: Metrics,
    ) -> None:
        self._partitions = partitions
        self._reporter = reporter
        self._flusher = flusher
        self._disk = disk
        self._config = config
        self._clock = clock
        self._rng = rng
        self._throttle = ReplicaThrottle(config().replica_alter_log_dirs_io_max_bytes_per_second)
        self._moves: dict[TopicPartition, DirectoryMove] = {}
        self._waiting: deque[DirectoryMove] = deque()
        self._wake = asyncio.Event()
        self._done = metrics.counter("barnabas_log_dir_moves_total", "Replicas moved to another log directory.")
        self._bytes = metrics.counter("barnabas_log_dir_moved_bytes_total", "Bytes copied to another log directory.")
        metrics.gauge(
            "barnabas_log_dir_moves_under_way", "Replicas on their way to another directory.", lambda: len(self._moves)
        )

    # --- requests

    def check_name(self, name: TopicPartition) -> None:
        """Raises KafkaError INVALID_TOPIC_EXCEPTION if the name of the copy would be too long for a directory name."""
        try:
            marked_dir(name, UUID(int=0), DIR_FUTURE)
        except LogDirError as error:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None

    def alter(self, partition: Partition, target: LogDir) -> None:
        """Move the replica to `target`. If `target` is its present directory, cancel a move. Raises KafkaError."""
        move = self._moves.get(partition.name)
        home = self._partitions.log_dir_of(partition)
        if partition.log is None or home is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {partition.name} is offline.")
        if move is not None:
            if move.swapped:
                move.then = None if target is home else target
                return
            if move.target is target:
                return
            log.info("move to another log directory cancelled", partition=str(move.name), to=move.target.path)
            self._cancel(move)
        if target is not home:
            self._begin(partition, partition.log, home, target)

    def resume(self, partition: Partition, target: LogDir) -> None:
        try:
            self.alter(partition, target)
        except KafkaError as error:
            log.error(
                "an interrupted move could not continue; request it again",
                partition=str(partition.name),
                reason=str(error),
            )

    def copies(self) -> Iterator[ReplicaCopy]:
        for move in self._moves.values():
            if not move.swapped:
                yield ReplicaCopy(move.partition, move.target, move.original, move.copy)

    def _begin(self, partition: Partition, original: Log, source: LogDir, target: LogDir) -> None:
        copy = target.future_logs.create(
            partition.name,
            partition.topic_id,
            original.config,
            begin_at=original.log_start_offset,
            unique=random_uuid(self._rng),
            now_ms=self._clock.now_ms(),
        )
        original.moving = True
        original.abort_cleaning()
        move = self._moves[partition.name] = DirectoryMove(partition, source, target, original, copy)
        move.listener = _TruncationListener(lambda: self._on_truncated(move))
        original.add_listener(move.listener)
        self._waiting.append(move)
        self._wake.set()
        log.info(
            "moving a replica to another log directory", partition=str(move.name), source=source.path, to=target.path
        )

    # --- events

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if any(resource.type == ResourceType.BROKER for resource in delta.configs.changed):
            self._throttle.set_rate(self._config().replica_alter_log_dirs_io_max_bytes_per_second)
        for move in self._moves.values():
            move.wake.set()

    def on_dropped(self, partition: Partition) -> None:
        move = self._moves.get(partition.name)
        if move is None:
            return
        if move.swapped:
            self._end(move)
            self._delete_original(move)
        else:
            self._cancel(move)

    def on_directory_failed(self, directory: LogDir) -> None:
        for move in list(self._moves.values()):
            if directory is move.target and move.swapped:
                self._end(move)
                log.warning(
                    "the new directory of a moved replica has failed; the original log is kept with the suffix -stray",
                    partition=str(move.name),
                    path=move.original.path,
                )
                with contextlib.suppress(StorageError):
                    move.source.set_log_aside(move.name, unique=random_uuid(self._rng))
            elif directory in (move.source, move.target) and not move.swapped:
                log.warning("move cancelled: a log directory failed", partition=str(move.name), failed=directory.path)
                self._cancel(move, leave=directory is move.source)

    def _on_truncated(self, move: DirectoryMove) -> None:
        """The original was truncated: truncate the copy at once."""
        move.truncations += 1
        original, copy = move.original, move.copy
        try:
            if original.log_start_offset >= original.log_end_offset:
                copy.truncate_fully_and_start_at(original.log_end_offset, original.log_start_offset)
            else:
                copy.truncate_to(original.log_end_offset, now_ms=self._clock.now_ms())
        except TransientStorageError as error:  # a copy that was not truncated must never replace the original
            log.error("replica was not moved: its copy could not be truncated", reason=str(error))
            self._cancel(move)
        except StorageError:
            pass  # the target directory has failed, which cancels the move

    def _end(self, move: DirectoryMove) -> None:
        move.over = True
        move.wake.set()
        del self._moves[move.name]
        move.stop_listening()
        move.original.moving = False
        self._report_target(move, None)

    def _cancel(self, move: DirectoryMove, *, leave: bool = False) -> None:
        """End the move; the replica stays in its present directory. `leave` keeps the files of the copy, because the
        original may be lost."""
        self._end(move)
        try:
            if leave:
                move.target.future_logs.leave(move.name)
            else:
                move.target.future_logs.delete(move.name, unique=random_uuid(self._rng))
        except StorageError as error:
            log.info("the copy of a cancelled move could not be deleted", path=move.copy.path, reason=str(error))

    def _report_target(self, move: DirectoryMove, directory: LogDir | None) -> bool:
        """Report to the controller that the replica is in `directory`; None means its present directory.

        Returns True if the image already has that directory.
        """
        key = (move.name.topic, move.name.partition)
        if directory is None:
            self._partitions.planned_directories.pop(key, None)
        else:
            self._partitions.planned_directories[key] = directory
        return self._reporter.on_moved(move.partition)

    # --- copying

    async def run(self) -> None:
        """Carry out moves until cancelled."""
        count = self._config().num_replica_alter_log_dirs_threads or len(self._partitions.log_dirs)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                tasks.create_task(self._work(), name="directory mover")

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            move = self._waiting.popleft()
            try:
                await self._copy(move)
                await self._wait_reported(move)
                await self._swap(move)
            except KafkaError as error:
                if not move.over:
                    log.error(
                        "replica was not moved; it stays in its present directory",
                        partition=str(move.name),
                        to=move.target.path,
                        reason=str(error),
                    )
                    self._cancel(move)
            if move.swapped:
                await self._remove_original(move)

    async def _copy(self, move: DirectoryMove) -> None:
        """Copy batches until the copy has reached the end of the original. Nothing is awaited after the last batch."""
        original, copy = move.original, move.copy
        while not move.over:
            _follow_start(original, copy)
            if copy.log_end_offset >= original.log_end_offset:
                return
            pause_ms = self._throttle.wait_ms(self._now_ms())
            if pause_ms:
                await asyncio.sleep(pause_ms / 1000)
                continue
            truncations = move.truncations
            plan = original.plan_read(max(copy.log_end_offset, original.log_start_offset), _CHUNK)
            result = plan.try_run()
            if result is None:
                result = await self._read(move, plan.run)
            if not move.over and move.truncations == truncations:
                self._append(move, result.data)
            await asyncio.sleep(0)

    async def _read(self, move: DirectoryMove, run: Callable[[], ReadResult]) -> ReadResult:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._disk, run)
        except StorageError as error:
            move.original.fail(error)
            raise

    def _append(self, move: DirectoryMove, data: Buffer) -> None:
        copy, now_ms = move.copy, self._clock.now_ms()
        first = int.from_bytes(data[:8], "big") if len(data) else copy.log_end_offset
        if first < copy.log_end_offset <= copy.log_start_offset:  # the log start offset lies within the first batch
            copy.truncate_fully_and_start_at(first, copy.log_start_offset, now_ms=now_ms)
        info = copy.append_as_follower(data, now_ms=now_ms)
        if info is not None:
            self._throttle.take(info.size, self._now_ms())
            self._bytes.add(info.size)
        elif not len(data) and not move.original.segments.active.size:
            copy.skip_to(move.original.log_end_offset, now_ms=now_ms)
        else:
            raise StorageError(f"{move.name} cannot be read beyond offset {copy.log_end_offset}")
        if copy.flush_due(now_ms) and not move.closing:
            self._flusher.request(copy)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    async def _wait_reported(self, move: DirectoryMove) -> None:
        """Report the target directory and wait until an image has it."""
        while not move.over and not self._report_target(move, move.target):
            move.wake.clear()
            await move.wake.wait()

    async def _swap(self, move: DirectoryMove) -> None:
        original, copy = move.original, move.copy
        await self._copy(move)
        if not move.over:
            await self._flusher.flush_all(copy)  # a first flush without `closing`, so that the last one is short
        move.closing = True
        while not move.over:
            await self._copy(move)
            if not self._flusher.is_busy(copy):
                break
            await self._flusher.idle(copy)
        if move.over:
            return
        original.abort_cleaning()
        copy.continue_from(original)
        copy.cleaned_offset = original.cleaned_offset
        move.target.future_logs.adopt(move.name, move.partition.high_watermark)
        copy.exchange_producers(original)
        move.stop_listening()
        move.swapped = True
        self._partitions.move_to(move.partition, copy, move.target)
        self._report_target(move, None)

    async def _remove_original(self, move: DirectoryMove) -> None:
        """Delete the original when the copy is synced and no request waits for a flush of the original."""
        original, copy = move.original, move.copy
        loop = asyncio.get_running_loop()
        try:
            if self._flusher.is_busy(original):
                with contextlib.suppress(StorageError):
                    await self._flusher.flush_all(original)
            await self._flusher.flush_all(copy)
            await loop.run_in_executor(self._disk, move.target.future_logs.sync_adopted, copy)
        except StorageError as error:
            if not move.over:
                move.target.fail(error)
        if move.over:
            return
        self._end(move)
        self._delete_original(move)
        self._done.add()
        log.info("replica moved", partition=str(move.name), source=move.source.path, to=move.target.path)
        with contextlib.suppress(StorageError):
            await loop.run_in_executor(self._disk, move.source.sync_names)
        if move.then is not None and self._partitions.get(move.name.topic, move.name.partition) is move.partition:
            self.resume(move.partition, move.then)

    def _delete_original(self, move: DirectoryMove) -> None:
        try:
            move.source.delete_log(move.name, unique=random_uuid(self._rng), now_ms=self._clock.now_ms(), durable=False)
        except StorageError as error:
            log.warning(
                "the original log of a moved replica could not be deleted", path=move.original.path, reason=str(error)
            )


def _follow_start(original: Log, copy: Log) -> None:
    """Advance the log start offset of the copy to that of the original."""
    start = original.log_start_offset
    if start > copy.log_start_offset:
        if start >= copy.log_end_offset:
            copy.truncate_fully_and_start_at(start)
        else:
            copy.advance_log_start(start)
