"""Shell: copies one closed segment to the object store.

    COPY_SEGMENT_STARTED ──► upload the objects ──► ask the store for their sizes ──► COPY_SEGMENT_FINISHED
                                     │ failed                │ differ                         │ does not fit
                                     └───────► DELETE_SEGMENT_STARTED ──► delete ──► DELETE_SEGMENT_FINISHED

A step that fails ends the attempt, and what was uploaded is deleted. If that fails, too, or if this broker dies, the
partition's leader finds the segment in its state and deletes it later (`expiring.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from barnabas.core.buffers import Buffer
from barnabas.core.clock import Clock
from barnabas.core.objects.ports import ObjectStore
from barnabas.core.rng import Rng, random_uuid
from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.log_files import LOG, TXN_INDEX
from barnabas.server.storage.errors import StorageError
from barnabas.server.tiering.errors import DamagedObjectError, ObjectMissingError, RemoteStorageError
from barnabas.server.tiering.ports import RemoteLogMetadata
from barnabas.server.tiering.sources import SegmentSource
from barnabas.server.tiering.store.names import SUFFIXES, object_name
from barnabas.server.tiering.traffic import RemoteTraffic
from barnabas.server.tiering.values import RemotePartition, RemoteSegment, RemoteSegmentId, RemoteSegmentState

log = get_logger("barnabas.server.tiering")

T = TypeVar("T")

PART_BYTES: Final = 4 * 1024 * 1024
"""The part of a log file that is in memory during an upload."""


class SegmentCopier:
    """Copies and deletes remote segments of all partitions that this broker leads."""

    def __init__(
        self,
        store: ObjectStore,
        metadata: RemoteLogMetadata,
        disk: Executor,
        clock: Clock,
        rng: Rng,
        *,
        broker_id: int,
        prefix: str = "",
        traffic: RemoteTraffic | None = None,
    ) -> None:
        self.traffic = RemoteTraffic() if traffic is None else traffic
        self.copying: set[RemoteSegmentId] = set()
        """The segments that are being copied now. They are not to be taken for leftovers."""
        self._store = store
        self._metadata = metadata
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._broker_id = broker_id
        self._prefix = prefix

    async def copy(self, partition: RemotePartition, source: SegmentSource) -> RemoteSegment:
        """Copy one segment and return it. Raises RemoteStorageError, or StorageError if the local disk fails; the
        segment is then not readable, and is copied again under another id."""
        counted = self.traffic.of(partition.topic)
        counted.remote_copy_requests += 1
        try:
            segment = await self._copy(partition, source)
        except (RemoteStorageError, StorageError):
            counted.remote_copy_errors += 1
            raise
        counted.remote_copy_bytes += segment.size_bytes
        return segment

    async def _copy(self, partition: RemotePartition, source: SegmentSource) -> RemoteSegment:
        small = await self._off_loop(source.read_small_files)
        segment = RemoteSegment(
            RemoteSegmentId(partition, random_uuid(self._rng)),
            source.base_offset,
            source.next_offset - 1,
            self._broker_id,
            source.max_timestamp,
            self._clock.now_ms(),
            source.leader_epochs,
            source.size_bytes,
            txn_index_empty=TXN_INDEX not in small,
        )
        self.copying.add(segment.id)
        try:
            if not await self._metadata.write(segment):
                raise RemoteStorageError(f"{partition} takes no more copies: its topic has been deleted.")
            try:
                await self._upload(segment, source, small)
                await self._finish(segment)
            except (RemoteStorageError, StorageError) as error:
                await self._abandon(segment, error)
                raise
        finally:
            self.copying.discard(segment.id)
        return segment

    async def _upload(self, segment: RemoteSegment, source: SegmentSource, small: dict[str, bytes]) -> None:
        sizes = {suffix: len(data) for suffix, data in small.items()}
        sizes[LOG] = source.size_bytes
        for suffix in SUFFIXES:
            if suffix in sizes:
                parts = self._log_parts(source) if suffix == LOG else _one_part(small[suffix])
                await self._store.put(self._name(segment, suffix), parts)
        for suffix, expected in sizes.items():
            name = self._name(segment, suffix)
            try:
                size = await self._store.size(name)
            except ObjectMissingError:
                size = -1
            if size != expected:
                what = "has lost it" if size < 0 else f"has {size} bytes of it"
                raise DamagedObjectError(f"{name} with {expected} bytes was stored, and the object store {what}.")

    async def _log_parts(self, source: SegmentSource) -> AsyncIterator[Buffer]:
        position = 0
        while position < source.size_bytes:
            part = await self._off_loop(source.read_log, position, PART_BYTES)
            if not part:
                raise DamagedObjectError(
                    f"{source.file.path} ends at byte {position} of {source.size_bytes}; it was not copied."
                )
            position += len(part)
            yield part

    async def _finish(self, segment: RemoteSegment) -> None:
        update = segment.update(RemoteSegmentState.COPY_SEGMENT_FINISHED, self._broker_id, self._clock.now_ms())
        if not await self._metadata.write(update):
            raise RemoteStorageError(
                f"The copy of {segment.id.partition} from {segment.start_offset} on does not count: another leader has "
                "deleted it."
            )

    async def _abandon(self, segment: RemoteSegment, error: Exception) -> None:
        """Delete what was uploaded of a failed copy. A failure is logged: a later attempt of the leader repeats it."""
        log.warning(
            "a segment could not be copied to the object store; it is copied again",
            partition=str(segment.id.partition),
            base_offset=segment.start_offset,
            reason=str(error),
        )
        try:
            await self.delete(segment)
        except RemoteStorageError as failure:
            log.warning(
                "an unfinished copy could not be deleted; the leader tries again",
                partition=str(segment.id.partition),
                base_offset=segment.start_offset,
                reason=str(failure),
            )

    async def delete(self, segment: RemoteSegment) -> None:
        """Delete a remote segment: announce it, delete the objects, and confirm. Each step may be repeated. Raises
        RemoteStorageError."""
        counted = self.traffic.of(segment.id.partition.topic)
        counted.remote_delete_requests += 1
        try:
            await self._delete(segment)
        except RemoteStorageError:
            counted.remote_delete_errors += 1
            raise

    async def _delete(self, segment: RemoteSegment) -> None:
        now_ms = self._clock.now_ms()
        await self._metadata.write(segment.update(RemoteSegmentState.DELETE_SEGMENT_STARTED, self._broker_id, now_ms))
        await self.delete_objects(segment)
        now_ms = self._clock.now_ms()
        await self._metadata.write(segment.update(RemoteSegmentState.DELETE_SEGMENT_FINISHED, self._broker_id, now_ms))

    async def delete_objects(self, segment: RemoteSegment) -> None:
        """Delete the objects of a segment, the log file first: a segment without it is recognised as incomplete."""
        for suffix in reversed(SUFFIXES):
            await self._store.delete(self._name(segment, suffix))

    def _name(self, segment: RemoteSegment, suffix: str) -> str:
        return object_name(segment, suffix, self._prefix)

    async def _off_loop(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, call, *arguments)


async def _one_part(data: bytes) -> AsyncIterator[Buffer]:
    yield data
