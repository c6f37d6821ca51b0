"""Shell: the metadata log of a quorum of one, in the files that KRaft uses. Fills the `MetadataLog` port.

    <dir>/__cluster_metadata-0/00000000000000000000.log ...    record batches, one per proposal
    <dir>/__cluster_metadata-0/quorum-state                    the epoch, made durable before the node leads in it
    <dir>/__cluster_metadata-0/<offset>-<epoch>.checkpoint     snapshots

Being the only voter, this node wins its election by writing it down: each start is a new leader epoch, opened by a
LeaderChange record. A proposal is committed when it is on the platter; proposals that come while the disk is busy share
the next fsync.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from barnabas.metadata.errors import MetadataError
from barnabas.metadata.ports import CommittedBatch, LoadedSnapshot, MetadataListener
from barnabas.metadata.records import (
    LATEST_METADATA_VERSION,
    FeatureLevelRecord,
    MetadataRecord,
    decode_record,
    encode_record,
)
from barnabas.metadata.small_images import METADATA_VERSION
from barnabas.node.quorum_state import FILE_NAME, QuorumState, parse_quorum_state, render_quorum_state
from barnabas.node.snapshots import latest_snapshot, load_snapshot, store_snapshot
from barnabas.records.batch import iter_batches, iter_records
from barnabas.records.build import SimpleRecord, build_batch
from barnabas.records.control import NO_DIRECTORY, LeaderChange, build_control_batch
from barnabas.records.validate import Origin
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.fs import Access, FileSystem
from barnabas.storage.log import Log
from barnabas.telemetry import get_logger

log = get_logger("barnabas.node")

RECORD_BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""KRaft's largest batch (`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`)."""
_READ_BYTES: Final = 4 * 1024 * 1024
_TP: Final = TopicPartition(METADATA_TOPIC, 0)


class SingleVoterLog:
    """Open it, register listeners, `lead`, then propose. `run` owns the task that makes proposals durable."""

    def __init__(
        self, fs: FileSystem, directory: str, *, node_id: int, clock: Clock, executor: Executor,
        fsync: bool = True, clean_shutdown: bool = False,
    ) -> None:  # fmt: skip
        self._fs = fs
        self._path = f"{directory}/{_TP}"
        self._node_id = node_id
        self._clock = clock
        self._executor = executor
        self._fsync = fsync
        self._listeners: list[MetadataListener] = []
        self._pending: deque[tuple[CommittedBatch, asyncio.Future[int]]] = deque()
        self._wake = asyncio.Event()
        self._failure: BaseException | None = None
        self._metadata_version = LATEST_METADATA_VERSION
        self._leader_epoch = 0
        self.high_watermark = 0
        fs.mkdir(self._path)
        self._log = Log.open(
            fs,
            self._path,
            LogConfig(retention_ms=-1, max_message_bytes=RECORD_BATCH_BYTES_MAX),
            topic_partition=_TP,
            topic_id=METADATA_TOPIC_ID,
            now_ms=clock.now_ms(),
            clean_shutdown=clean_shutdown,
        )
        self._state = self._read_state()

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    # ---- QuorumView

    @property
    def leader_id(self) -> int:
        return self._node_id

    @property
    def leader_epoch(self) -> int:
        return self._leader_epoch

    def voters(self) -> Sequence[tuple[int, int]]:
        return ((self._node_id, self._log.log_end_offset),)

    # ---- leadership

    def lead(self) -> None:
        """Win the election of one. Only after this may records be proposed."""
        epoch = max(self._state.leader_epoch, self._log.latest_epoch or 0) + 1
        self._state = QuorumState(
            leader_id=self._node_id,
            leader_epoch=epoch,
            voted_id=-1,
            voters=(self._node_id,),
            cluster_id="",
            version=self._state.version,
        )
        self._write_state()
        self._leader_epoch = epoch
        now_ms = self._clock.now_ms()
        self._log.assign_epoch(epoch, self._log.log_end_offset)
        voter = (self._node_id, NO_DIRECTORY)
        change = LeaderChange(self._node_id, voters=(voter,), granting_voters=(voter,))
        self._append(build_control_batch(change, timestamp=now_ms), now_ms)
        self.high_watermark = self._log.log_end_offset
        for listener in self._listeners:
            listener.on_leader(self._node_id, epoch)

    def _read_state(self) -> QuorumState:
        path = f"{self._path}/{FILE_NAME}"
        if not self._fs.exists(path):
            return QuorumState()
        file = self._fs.open(path, Access.READ)
        try:
            state = parse_quorum_state(file.read_at(0, file.size()).decode())
        finally:
            file.close()
        others = [voter for voter in state.voters if voter != self._node_id]
        if others:
            raise MetadataError(
                f"{path} names voters {list(state.voters)}: this data directory belongs to a quorum of several, "
                f"and this node ({self._node_id}) must not decide alone. Start it with the other controllers."
            )
        return state

    def _write_state(self) -> None:
        """Atomic and durable: a node must never lead twice in one epoch."""
        path = f"{self._path}/{FILE_NAME}"
        file = self._fs.open(path + ".tmp", Access.REPLACE)
        try:
            file.write_at(0, [render_quorum_state(self._state).encode()])
            if self._fsync:
                file.sync()
        finally:
            file.close()
        self._fs.rename(path + ".tmp", path)
        if self._fsync:
            self._fs.sync_dir(self._path)

    # ---- MetadataLog

    def register(self, listener: MetadataListener) -> None:
        start = self._log.log_start_offset
        newest = latest_snapshot(self._fs, self._path)
        if newest is not None:
            snapshot = load_snapshot(self._fs, self._path, newest)
            self._note_versions(snapshot.records)
            listener.on_snapshot(snapshot)
            start = max(start, snapshot.end_offset)
        for batch in self._committed_from(start):
            self._note_versions(batch.records)
            listener.on_commit(batch)
        self._listeners.append(listener)
        if self._leader_epoch:
            listener.on_leader(self._node_id, self._leader_epoch)

    def propose(self, records: Sequence[MetadataRecord]) -> Awaitable[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self._failure is not None or not self._leader_epoch:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, f"The metadata log is not writable: {self._failure or 'no leader'}"
            )
        now_ms = self._clock.now_ms()
        self._note_versions(records)
        version = self._metadata_version
        batch = build_batch([SimpleRecord(None, encode_record(record, version), now_ms) for record in records])
        if len(batch) > RECORD_BATCH_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The change is too large for one batch of the metadata log.")
        base_offset = self._append(batch, now_ms)
        committed = CommittedBatch(base_offset, self._leader_epoch, now_ms, tuple(records), len(batch))
        self._pending.append((committed, future))
        self._wake.set()
        return future

    def write_snapshot(self, end_offset: int, epoch: int, timestamp_ms: int, records: Sequence[MetadataRecord]) -> None:
        store_snapshot(
            self._fs, self._path, LoadedSnapshot(end_offset, epoch, timestamp_ms, records), self._metadata_version
        )

    # ---- durability

    async def run(self) -> None:
        """Commit proposals: one fsync for all that are waiting, then tell everyone, in order."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            batches = list(self._pending)
            if not batches:
                continue
            try:
                if self._fsync:
                    await self._sync()
            except StorageError as error:
                self._fail(error)
                return
            for _ in batches:
                batch, future = self._pending.popleft()
                self.high_watermark = batch.last_offset + 1
                for listener in self._listeners:
                    listener.on_commit(batch)
                if not future.done():
                    future.set_result(batch.last_offset)

    async def _sync(self) -> None:
        job = self._log.flush_job(everything=True)
        if job is None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, job.run)
        except StorageError as error:
            job.failed(error)
            raise
        job.finish()

    def _fail(self, error: BaseException) -> None:
        log.error("the metadata log failed: no change of metadata is possible any more", reason=str(error))
        self._failure = error
        self._leader_epoch = 0
        for _, future in self._pending:
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, str(error)))
        self._pending.clear()

    def close(self, *, clean: bool = True) -> None:
        for _, future in self._pending:
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, "The node is shutting down."))
        self._pending.clear()
        self._log.close(clean=clean)

    # ---- inside

    def _append(self, batch: bytes, now_ms: int) -> int:
        try:
            info = self._log.append_as_leader(
                batch, leader_epoch=self._leader_epoch, now_ms=now_ms, origin=Origin.RAFT_LEADER
            )
        except StorageError as error:
            self._fail(error)
            raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from error
        return info.first_offset

    def _committed_from(self, offset: int) -> Iterator[CommittedBatch]:
        """Every batch of records from `offset` on: with one voter all that is in the log is committed."""
        end = self._log.log_end_offset
        while offset < end:
            data = self._log.read(offset, _READ_BYTES).data
            before = offset
            for position, header in iter_batches(data):
                offset = header.next_offset
                if header.is_control:
                    continue
                values = [record.value for record in iter_records(data, position, header)]
                records = tuple(decode_record(value) for value in values if value is not None)
                yield CommittedBatch(
                    header.base_offset, header.partition_leader_epoch, header.max_timestamp, records, header.size
                )
            if offset == before:
                raise MetadataError(f"The metadata log cannot be read beyond offset {offset}.")

    def _note_versions(self, records: Sequence[MetadataRecord]) -> None:
        for record in records:
            if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
                self._metadata_version = record.feature_level
