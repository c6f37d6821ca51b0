"""Shell: the log of the quorum, stored in a `Log` of the storage package; implements `ReplicatedLog`.

    <dir>/__cluster_metadata-0/00000000000000000000.log ...    record batches (broker/quorum/batches)
    <dir>/__cluster_metadata-0/<offset>-<epoch>.checkpoint     snapshots (snapshot_store)

The start of the log is not stored: it is the end of the newest snapshot that is consistent with the log. So a new log
start is durable as soon as its snapshot is durable. The previous snapshot is kept with the log from its end on, in case
the newest snapshot is damaged; everything before the previous snapshot is deleted.

`open` syncs the log, because the leader takes all records below the offset of a follower's fetch as durable on that
follower.

Each start checks the CRC of every batch. Damage below the synced offset is never a torn end (`storage/damage.py`), and
the node then does not start: without the records behind it, topics would be gone and their data set aside. The synced
offset is stored in `recovery-point-offset-checkpoint` in the log's own directory, at most two seconds after a sync, at
each start and at a clean stop. Above the stored offset, the bytes themselves show whether a power failure lost a page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, assert_never

from barnabas.core.clock import Clock
from barnabas.core.config_builder import ConfigBuilder
from barnabas.core.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.server.broker.quorum.batches import parse_batches, render_batch
from barnabas.server.metadata.configs.tables import TOPIC_CONFIGS
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.quorum.snapshot_files import SnapshotContents, SnapshotDamagedError
from barnabas.server.quorum.snapshot_store import SnapshotStore
from barnabas.server.quorum.synced_offset import SyncedOffsetFile
from barnabas.server.raft.machine.events import AdvanceStart, Append, StartLogAt, TruncateFrom
from barnabas.server.raft.machine.values import (
    ORIGIN,
    KRaftVersionControl,
    LogSummary,
    OffsetAndEpoch,
    RaftBatch,
    Voters,
)
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.errors import DamagedLogError, StorageError
from barnabas.server.storage.flushing import FlushJob
from barnabas.server.storage.fs import FileSystem
from barnabas.server.storage.log import Log

log = get_logger("barnabas.server.node")

RECORD_BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""KRaft's largest batch (`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`)."""
METADATA_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
_SCAN_BYTES: Final = 4 * 1024 * 1024
_STORE_AFTER_S: Final = 2.0
"""The delay after a sync until the synced offset is stored, so that not every sync costs a second one."""
_ALL_BYTES: Final = 1 << 62
ADVICE: Final = (
    "What to do: docs/OPERATIONS.md, section Damaged files. If other controllers have the metadata, remove this node "
    "from the quorum, empty its directory and add it again. Otherwise restore the directory from a backup. `barnabas "
    "logs verify` lists all damage; `barnabas logs repair --dry-run` says what would be lost by cutting."
)
_CONFIG: Final = ConfigBuilder(LogConfig, TOPIC_CONFIGS).from_defaults(
    retention_ms=-1, max_message_bytes=RECORD_BATCH_BYTES_MAX
)


class RaftLog:
    """The log of the quorum on this node's disk. Call `open`; then `apply` executes the effects of the Raft state
    machine."""

    def __init__(
        self, fs: FileSystem, path: str, snapshots: SnapshotStore, *, clock: Clock, executor: Executor,
        fsync: bool = True, clean_shutdown: bool = False,
    ) -> None:  # fmt: skip
        self._snapshots = snapshots
        self._clock = clock
        self._executor = executor
        self._fsync = fsync
        self._syncing: asyncio.Future[None] | None = None
        self._store_timer: asyncio.TimerHandle | None = None
        self._checkpoint = SyncedOffsetFile(fs, path)
        try:
            self._log = Log.open(
                fs,
                path,
                _CONFIG,
                topic_partition=METADATA_PARTITION,
                topic_id=METADATA_TOPIC_ID,
                now_ms=clock.now_ms(),
                clean_shutdown=clean_shutdown,
                verify_bytes=_ALL_BYTES,
                synced_offset=self._checkpoint.offset,
                contiguous=True,
            )
        except DamagedLogError as error:
            raise MetadataError(
                f"The metadata log is damaged, and this node does not start. {error} {ADVICE}"
            ) from error

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def latest_epoch(self) -> int | None:
        return self._log.latest_epoch

    @property
    def failed(self) -> bool:
        """The disk has failed. Only a restart of the process can recover."""
        return self._log.failed

    # ---- ReplicatedLog

    def open(self) -> LogSummary:
        """Read the log. Called again if the replica restarts from the disk."""
        start, contents = self._find_start()
        if self._fsync:
            self._log.flush()
            if self._syncing is None:
                self._checkpoint.write(self._log.durable_offset)
        versions: list[tuple[int, int]] = []
        voters: list[tuple[int, Voters]] = []
        if contents.kraft_version:
            versions.append((start.offset - 1, contents.kraft_version))
        if contents.voters is not None:
            voters.append((start.offset - 1, contents.voters))
        epochs: list[tuple[int, int]] = []
        for batch in self.batches_from(start.offset):
            if not epochs or batch.epoch > epochs[-1][0]:
                epochs.append((batch.epoch, max(batch.base_offset, start.offset)))
            for offset, value in enumerate(batch.controls, batch.base_offset):
                if isinstance(value, Voters):
                    voters.append((offset, value))
                elif isinstance(value, KRaftVersionControl):
                    versions.append((offset, value.version))
        return LogSummary(
            start,
            self._log.log_end_offset,
            tuple(epochs),
            () if start == ORIGIN else (start,),
            tuple(versions),
            tuple(voters),
        )

    def apply(self, op: Append | TruncateFrom | StartLogAt | AdvanceStart) -> None:
        now_ms = self._clock.now_ms()
        match op:
            case Append(batch):
                self._log.append_as_follower(render_batch(batch, now_ms), now_ms=now_ms)
                assert self._log.log_end_offset == batch.next_offset, (
                    "the log and the state machine have different end offsets"
                )
            case TruncateFrom(offset):
                self._checkpoint.lower(offset)
                self._log.truncate_to(offset, now_ms=now_ms)
            case StartLogAt(snapshot_id):
                self._start_at(snapshot_id, now_ms)
            case AdvanceStart(snapshot_id):
                self._advance_start(snapshot_id, now_ms)
            case _:
                assert_never(op)

    def read(self, offset: int, bytes_max: int) -> Sequence[RaftBatch]:
        if offset >= self._log.log_end_offset:
            return ()
        try:
            return parse_batches(self._log.read(offset, bytes_max).data)
        except CorruptBatchError as error:
            raise MetadataError(
                f"The metadata log in {self._log.path} is damaged behind offset {offset}: {error}. {ADVICE}"
            ) from error

    async def sync(self) -> None:
        """Make all records of the log durable. Raises StorageError."""
        if not self._fsync:
            return
        await self.settled()
        job = self._log.flush_job(everything=True)
        if job is None:
            return
        running = asyncio.get_running_loop().run_in_executor(self._executor, job.run)
        self._syncing = running
        running.add_done_callback(lambda done: self._on_synced(job, done))
        await asyncio.shield(running)

    async def settled(self) -> None:
        """Wait until no sync is running. A replica that was stopped may have started one."""
        while self._syncing is not None:
            await asyncio.wait((self._syncing,))

    def close(self, *, clean: bool) -> None:
        if self._store_timer is not None:
            self._store_timer.cancel()
        self._log.close(clean=clean)
        if clean and self._fsync and self._syncing is None and not self._log.failed:
            self._checkpoint.write(self._log.durable_offset)

    # ---- inside

    def batches_from(self, offset: int) -> Iterator[RaftBatch]:
        """Every batch from `offset` to the end of the log. Raises MetadataError if a batch cannot be read."""
        while offset < self._log.log_end_offset:
            before = offset
            for batch in self.read(offset, _SCAN_BYTES):
                yield batch
                offset = batch.next_offset
            if offset == before:
                raise MetadataError(f"The metadata log cannot be read beyond offset {offset}.")

    def _on_synced(self, job: FlushJob, done: asyncio.Future[None]) -> None:
        self._syncing = None
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            job.finish()
            if self._store_timer is None:
                self._store_timer = asyncio.get_running_loop().call_later(_STORE_AFTER_S, self._store_synced_offset)
        elif isinstance(error, StorageError):
            job.failed(error)

    def _store_synced_offset(self) -> None:
        self._store_timer = None
        if self._syncing is None and not self._log.failed:  # else the end of the sync sets the timer again
            write = partial(self._checkpoint.write, self._log.durable_offset)
            self._syncing = asyncio.get_running_loop().run_in_executor(self._executor, write)
            self._syncing.add_done_callback(self._on_checkpoint)

    def _on_checkpoint(self, done: asyncio.Future[None]) -> None:
        self._syncing = None
        error = None if done.cancelled() else done.exception()
        if error is not None:
            log.warning("the synced offset of the metadata log could not be stored", reason=str(error))

    def _find_start(self) -> tuple[OffsetAndEpoch, SnapshotContents]:
        """Return the id and the contents of the newest complete snapshot that is consistent with the log.

        If that snapshot ends after the log, the log is emptied and starts at the end of the snapshot. If no snapshot is
        consistent, a log that starts at offset 0 begins with the snapshot that Kafka's `format` wrote; any other log is
        emptied and starts at the end of the newest complete snapshot. Raises MetadataError if there is none.
        """
        log = self._log
        complete = list(self._snapshots.complete_snapshots())
        self._check_damaged_snapshots(complete[0][0].offset if complete else 0)
        for snapshot_id, contents in complete:
            if snapshot_id.offset > log.log_end_offset:
                self._checkpoint.lower(0)
                log.truncate_fully_and_start_at(snapshot_id.offset, now_ms=self._clock.now_ms())
                return snapshot_id, contents
            before = log.epoch_for_offset(snapshot_id.offset - 1)
            if snapshot_id.offset >= log.log_start_offset and before in (None, snapshot_id.epoch):
                return snapshot_id, contents
        if log.log_start_offset == 0:
            return ORIGIN, self._snapshots.formatted()
        if not complete:
            raise MetadataError(
                f"The metadata log in {log.path} starts at offset {log.log_start_offset}, but there is no complete "
                "snapshot of the earlier records. Restore the snapshot from a backup, or start with an empty "
                "directory: this node then fetches the log from other controllers, if they have it."
            )
        snapshot_id, contents = complete[0]  # the process ended after it deleted the log before this snapshot
        self._checkpoint.lower(0)
        log.truncate_fully_and_start_at(snapshot_id.offset, now_ms=self._clock.now_ms())
        return snapshot_id, contents

    def _check_damaged_snapshots(self, complete_offset: int) -> None:
        """Raises SnapshotDamagedError unless an older snapshot and the log have everything that a damaged snapshot had.

        A snapshot gets its name when all of it is on the disk, so a crash never leaves a damaged one."""
        log = self._log
        for snapshot_id, reason in self._snapshots.damaged:
            has_rest = log.log_start_offset <= complete_offset and snapshot_id.offset <= log.log_end_offset
            if snapshot_id.offset > complete_offset and not has_rest:
                raise SnapshotDamagedError(
                    f"A metadata snapshot is damaged, and this node does not start, because the log (offsets "
                    f"{log.log_start_offset} to {log.log_end_offset}) does not have the records of the snapshot. "
                    f"{reason} {ADVICE}"
                )

    def _start_at(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        self._checkpoint.lower(0)
        self._log.truncate_fully_and_start_at(snapshot_id.offset, now_ms=now_ms)
        self._snapshots.drop_all_but(snapshot_id)
        self._log.delete_pending_files(now_ms)

    def _advance_start(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        """Start a new segment for each snapshot, so that segments before the previous snapshot can be deleted."""
        previous = self._snapshots.drop_before(snapshot_id)
        self._log.roll(now_ms)
        if previous is not None:
            self._log.advance_log_start(min(previous.offset, self._log.log_end_offset))
            self._log.enforce_retention(now_ms, previous.offset)
        self._log.delete_pending_files(now_ms)
