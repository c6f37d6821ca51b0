"""Shell: copies the records of one partition from its leader into objects of a backup.

The object's name has the base offset of its first batch. Bytes go from the fetch response to the store as they are; an
object is closed when it has `object_bytes`.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from barnabas.backup.errors import BackupError
from barnabas.backup.manifest import batches_name
from barnabas.backup.pieces import Piece, whole_batches
from barnabas.backup.planning import PartitionPlan
from barnabas.backup.store import BackupStore
from barnabas.backup.values import PartitionBackup, StoredBatches
from barnabas.client.admin import AsyncAdmin
from barnabas.client.errors import OffsetOutOfRangeError, TopicReplacedError
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.values import EARLIEST
from barnabas.core.buffers import Buffer
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition, uuid_from_text, uuid_to_text
from barnabas.protocol.records.errors import CorruptBatchError


class PartitionCopy:
    """The copy of one partition in one run."""

    def __init__(self, name: TopicPartition, topic_id: str, plan: PartitionPlan, log_start: int, run_id: str) -> None:
        self.name = name
        self.notes: list[str] = [plan.note] if plan.note else []
        self.added_bytes = 0
        self._topic_id = topic_id
        self._run_id = run_id
        self._log_start = log_start
        self._end = plan.end
        self._objects = list(plan.kept)
        self._position = plan.start
        """Where the next fetch begins."""
        self._stored_to = plan.start
        """The offset after the last object that is stored."""

    @property
    def offsets_left(self) -> int:
        return max(self._end - self._position, 0)

    def result(self) -> PartitionBackup:
        """What the backup has of the partition now."""
        kept = tuple(stored for stored in self._objects if stored.end > self._log_start)
        return PartitionBackup(self.name.partition, self._log_start, max(self._stored_to, self._log_start), kept)

    async def run(
        self, admin: AsyncAdmin, store: BackupStore, object_bytes: int, on_read: Callable[[int, int], None]
    ) -> None:
        """Copy up to the planned end. `on_read` gets the offsets and the bytes of each piece. Raises KafkaError,
        BackupError."""
        pieces = self._pieces(admin, object_bytes, on_read)
        try:
            while (first := await anext(pieces, None)) is not None:
                await self._store(store, first, pieces, object_bytes)
        finally:
            await pieces.aclose()
        self._stored_to = max(self._end, self._stored_to)

    async def _pieces(
        self, admin: AsyncAdmin, object_bytes: int, on_read: Callable[[int, int], None]
    ) -> AsyncGenerator[Piece, None]:
        while self._position < self._end:
            reader = PartitionReader(admin.cluster)
            topic_id = uuid_from_text(self._topic_id)
            batches = reader.batches([OffsetRange(self.name, self._position, self._end, topic_id)])
            try:
                async for fetched in batches:
                    pieces = self._whole(fetched.buffer, object_bytes)
                    before, self._position = self._position, max(self._position, fetched.end)
                    on_read(min(self._position, self._end) - before, sum(len(piece.data) for piece in pieces))
                    for piece in pieces:
                        yield piece
                return
            except TopicReplacedError as error:
                raise BackupError(
                    f"The topic {self.name.topic} was deleted and created again during the run: it had the id"
                    f" {self._topic_id}, and has {uuid_to_text(error.found)} now. Run the backup again, which reads the"
                    " new topic."
                ) from error
            except OffsetOutOfRangeError:
                await self._skip_deleted(admin)
            finally:
                await batches.aclose()

    def _whole(self, buffer: Buffer, object_bytes: int) -> list[Piece]:
        try:
            return whole_batches(buffer, self._position, self._end, object_bytes)
        except CorruptBatchError as error:
            raise BackupError(
                f"{self.name} has records that cannot be backed up, from offset {self._position} on: {error}. Mend or "
                "delete them on the cluster, or leave the topic out with --exclude."
            ) from error

    async def _skip_deleted(self, admin: AsyncAdmin) -> None:
        """Retention has deleted records while they were copied: go on at the new log start."""
        start = (await admin.list_offsets({self.name: EARLIEST}))[self.name]
        if isinstance(start, KafkaError):
            raise start
        if start.offset <= self._position:
            raise BackupError(
                f"{self.name} ended at {self._end} and does not have offset {self._position} any more: the log was cut "
                "by an unclean leader election. Run the backup again."
            )
        self.notes.append(f"{self.name}: the offsets {self._position} to {start.offset} were deleted during the run.")
        self._position = min(start.offset, self._end)
        self._log_start = min(start.offset, self._end)

    async def _store(
        self, store: BackupStore, first: Piece, more: AsyncGenerator[Piece, None], object_bytes: int
    ) -> None:
        digest = hashlib.sha256()
        pieces: list[Piece] = []
        failure: Exception | None = None
        size = 0

        async def parts() -> AsyncIterator[Buffer]:
            nonlocal failure, size
            piece: Piece | None = first
            while piece is not None:
                digest.update(piece.data)
                size += len(piece.data)
                pieces.append(_without_data(piece))
                yield piece.data
                if size >= object_bytes:
                    return
                try:
                    piece = await anext(more, None)
                except Exception as error:  # the store would replace it by an exception of its own
                    failure = error
                    raise

        name = batches_name(self.name.topic, self._topic_id, self.name.partition, first.start, self._run_id)
        try:
            await store.put(name, parts())
        except Exception:
            if failure is not None:
                raise failure from None
            raise
        last = pieces[-1]
        self._objects.append(
            StoredBatches(
                name,
                first.start,
                last.end,
                size,
                digest.hexdigest(),
                sum(piece.batches for piece in pieces),
                last.last_epoch,
                any(piece.transactional for piece in pieces),
            )
        )
        self.added_bytes += size
        self._stored_to = last.end


def _without_data(piece: Piece) -> Piece:
    return Piece(memoryview(b""), piece.start, piece.end, piece.batches, piece.last_epoch, piece.transactional)
