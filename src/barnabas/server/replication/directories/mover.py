"""Shell: moves replicas from one directory of this broker to another (AlterReplicaLogDirs, KIP-113 and KIP-858).

    1. An empty log under a `-future` name in the target directory; batches are copied into it as they lie in the log,
       at replica.alter.log.dirs.io.max.bytes.per.second at most. It follows truncations and the log's start.
    2. When it ends where the log ends, the controller is told of the new directory.
    3. On the loop, in one go: the rest is copied, and what no batch tells; the copy gets the plain name; the partition
       goes on in it. Now there are two whole logs, and only the new one grows.
    4. When everything that the old one had on the disk is on the other disk as well, the old one is renamed `-delete`.

A crash before 3 leaves the old log and a copy that is begun anew; a crash between 3 and 4 leaves two, of which the one
that reaches further is the log (`found_logs.py`): until 4 it has what was acknowledged, and what was flushed.
Compaction of the old log rests all the while.
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
from barnabas.server.replication.directories.keeper import DirKeeper
from barnabas.server.replication.flushing import Flusher
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions, ReplicaCopy
from barnabas.server.replication.rules.throttle import ReplicaThrottle
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import LogDirError, StorageError
from barnabas.server.storage.listener import LogListener
from barnabas.server.storage.log import Log
from barnabas.server.storage.names import DIR_FUTURE, marked_dir
from barnabas.server.storage.values import ReadResult

log = get_logger("barnabas.server.replication")

_CHUNK: Final = 1 << 20
"""Bytes read and written between two turns of the loop."""


class Move:
    """One replica on its way from `source` to `target`."""

    def __init__(self, partition: Partition, source: LogDir, target: LogDir, original: Log, copy: Log) -> None:
        self.partition = partition
        self.source = source
        self.target = target
        self.original = original
        self.copy = copy
        self.over = False
        """Nothing is left to do, or it was called off."""
        self.swapped = False
        """The partition lives in the copy; the original is about to go."""
        self.closing = False
        """The copy is not flushed any more: under steady writes there would always be one more flush to wait for."""
        self.then: LogDir | None = None
        """Where it was asked to go next after it was swapped."""
        self.cuts = 0
        """How often the original was truncated: what was read before is not to be copied any more."""
        self.wake = asyncio.Event()
        self.listener: LogListener | None = None

    @property
    def name(self) -> TopicPartition:
        return self.partition.name

    def stop_listening(self) -> None:
        """The original is no longer copied."""
        if self.listener is not None:
            self.original.remove_listener(self.listener)


class _TruncationListener(LogListener):
    """Truncates the copy whenever the original is truncated."""

    def __init__(self, truncate: Callable[[], None]) -> None:
        self._truncate = truncate

    def on_truncated(self) -> None:
        self._truncate()


class DirMover:
    """`run` until cancelled; subscribe it to images after `Replication`. Fills `partitions.Mover`."""

    def __init__(
        self,
        partitions: Partitions,
        keeper: DirKeeper,
        flusher: Flusher,
        disk: Executor,
        settings: Callable[[], ReplicationConfig],
        clock: Clock,
        rng: Rng,
        metrics: Metrics,
    ) -> None:
        self._partitions = partitions
        self._keeper = keeper
        self._flusher = flusher
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._throttle = ReplicaThrottle(settings().replica_alter_log_dirs_io_max_bytes_per_second)
        self._moves: dict[TopicPartition, Move] = {}
        self._waiting: deque[Move] = deque()
        self._wake = asyncio.Event()
        self._done = metrics.counter("barnabas_log_dir_moves_total", "Replicas moved to another log directory.")
        self._bytes = metrics.counter("barnabas_log_dir_moved_bytes_total", "Bytes copied to another log directory.")
        metrics.gauge(
            "barnabas_log_dir_moves_under_way", "Replicas on their way to another directory.", lambda: len(self._moves)
        )
        partitions.mover = self

    # --- what is asked

    def check_name(self, name: TopicPartition) -> None:
        """Raises KafkaError INVALID_TOPIC_EXCEPTION where the copy's name would be too long for a directory."""
        try:
            marked_dir(name, UUID(int=0), DIR_FUTURE)
        except LogDirError as error:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None

    def alter(self, partition: Partition, target: LogDir) -> None:
        """Bring the replica to `target`; to where it lies already calls off a move. Raises KafkaError."""
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
            log.info("move called off", partition=str(move.name), to=move.target.path)
            self._give_up(move)
        if target is not home:
            self._begin(partition, partition.log, home, target)

    def resume(self, partition: Partition, target: LogDir) -> None:
        try:
            self.alter(partition, target)
        except KafkaError as error:
            log.error("a move was not taken up again", partition=str(partition.name), reason=str(error))

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
        move = self._moves[partition.name] = Move(partition, source, target, original, copy)
        move.listener = _TruncationListener(lambda: self._on_truncated(move))
        original.add_listener(move.listener)
        self._waiting.append(move)
        self._wake.set()
        log.info("replica moves to another directory", partition=str(move.name), source=source.path, to=target.path)

    # --- what happens meanwhile

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if any(resource.type == ResourceType.BROKER for resource in delta.configs.changed):
            self._throttle.set_rate(self._settings().replica_alter_log_dirs_io_max_bytes_per_second)
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
            self._give_up(move)

    def on_directory_failed(self, directory: LogDir) -> None:
        for move in list(self._moves.values()):
            if directory is move.target and move.swapped:
                self._end(move)
                log.warning(
                    "the directory to which a replica has just moved has failed; its earlier log is kept as stray",
                    partition=str(move.name),
                    path=move.original.path,
                )
                with contextlib.suppress(StorageError):
                    move.source.set_log_aside(move.name, unique=random_uuid(self._rng))
            elif directory in (move.source, move.target) and not move.swapped:
                log.warning("a move ends with its directory", partition=str(move.name), failed=directory.path)
                self._give_up(move, leave=directory is move.source)

    def _on_truncated(self, move: Move) -> None:
        """The log was truncated: so is the copy, before anything else happens."""
        move.cuts += 1
        original, copy = move.original, move.copy
        with contextlib.suppress(StorageError):  # then the target directory has failed, and the move is over
            if original.log_start_offset >= original.log_end_offset:
                copy.truncate_fully_and_start_at(original.log_end_offset, original.log_start_offset)
            else:
                copy.truncate_to(original.log_end_offset, now_ms=self._clock.now_ms())

    def _end(self, move: Move) -> None:
        move.over = True
        move.wake.set()
        del self._moves[move.name]
        move.stop_listening()
        move.original.moving = False
        self._promise(move, None)

    def _give_up(self, move: Move, *, leave: bool = False) -> None:
        """The replica stays where it is; `leave` its copy as it is, too: the original may be gone for good."""
        self._end(move)
        try:
            if leave:
                move.target.future_logs.leave(move.name)
            else:
                move.target.future_logs.delete(move.name, unique=random_uuid(self._rng))
        except StorageError as error:
            log.info("a copy could not be deleted", path=move.copy.path, reason=str(error))

    def _promise(self, move: Move, directory: LogDir | None) -> bool:
        """Where the controller shall believe the replica to be. Whether it does."""
        key = (move.name.topic, move.name.partition)
        if directory is None:
            self._partitions.promised.pop(key, None)
        else:
            self._partitions.promised[key] = directory
        return self._keeper.on_moved(move.partition)

    # --- the work

    async def run(self) -> None:
        count = self._settings().num_replica_alter_log_dirs_threads or len(self._partitions.log_dirs)
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
                await self._tell(move)
                await self._take_over(move)
            except KafkaError as error:
                if not move.over:
                    log.error("replica was not moved", partition=str(move.name), to=move.target.path, reason=str(error))
                    self._give_up(move)
            if move.swapped:
                await self._let_go(move)

    async def _copy(self, move: Move) -> None:
        """Until the copy ends where the log ends; then it returns without having waited for anything since."""
        original, copy = move.original, move.copy
        while not move.over:
            _follow_start(original, copy)
            if copy.log_end_offset >= original.log_end_offset:
                return
            pause_ms = self._throttle.wait_ms(self._now_ms())
            if pause_ms:
                await asyncio.sleep(pause_ms / 1000)
                continue
            cuts = move.cuts
            plan = original.plan_read(max(copy.log_end_offset, original.log_start_offset), _CHUNK)
            result = plan.try_run()
            if result is None:
                result = await self._read(move, plan.run)
            if not move.over and move.cuts == cuts:
                self._append(move, result.data)
            await asyncio.sleep(0)

    async def _read(self, move: Move, run: Callable[[], ReadResult]) -> ReadResult:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._disk, run)
        except StorageError as error:
            move.original.fail(error)
            raise

    def _append(self, move: Move, data: Buffer) -> None:
        copy, now_ms = move.copy, self._clock.now_ms()
        first = int.from_bytes(data[:8], "big") if len(data) else copy.log_end_offset
        if first < copy.log_end_offset <= copy.log_start_offset:  # the log starts inside its first batch
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

    async def _tell(self, move: Move) -> None:
        """Until the controller knows where the replica will be."""
        while not move.over and not self._promise(move, move.target):
            move.wake.clear()
            await move.wake.wait()

    async def _take_over(self, move: Move) -> None:
        original, copy = move.original, move.copy
        await self._copy(move)
        if not move.over:
            await self._flusher.flush_all(copy)  # most of it, so that little is left for later
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
        self._promise(move, None)

    async def _let_go(self, move: Move) -> None:
        """The original goes when nothing depends on it any more, its disk or those who wait for a flush of it."""
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

    def _delete_original(self, move: Move) -> None:
        try:
            move.source.delete_log(move.name, unique=random_uuid(self._rng), now_ms=self._clock.now_ms(), durable=False)
        except StorageError as error:
            log.warning("the log that was moved could not be deleted", path=move.original.path, reason=str(error))


def _follow_start(original: Log, copy: Log) -> None:
    """What has been deleted there is deleted here."""
    start = original.log_start_offset
    if start > copy.log_start_offset:
        if start >= copy.log_end_offset:
            copy.truncate_fully_and_start_at(start)
        else:
            copy.advance_log_start(start)
