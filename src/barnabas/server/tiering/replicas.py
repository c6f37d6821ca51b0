"""Shell: what the replicas of a broker need from tiered storage; `TieredReplicas` of the replication package.

A follower whose leader has the next records only in the object store continues at the end of a remote segment. It reads
two small objects for this: the leader epochs and the producers as of that end.
"""

from __future__ import annotations

from barnabas.server.storage.log import Log
from barnabas.server.tiering.errors import RemoteStorageError
from barnabas.server.tiering.leader import note_copied
from barnabas.server.tiering.ports import RemoteLogMetadata
from barnabas.server.tiering.reading.partition_reader import RemotePartitionReader
from barnabas.server.tiering.reading.reader import RemoteReader
from barnabas.server.tiering.slots import Slots
from barnabas.server.tiering.values import CopiedState, RemotePartition, RemoteSegment


class RemoteReplicas:
    """Tiered storage as the replicas of one broker use it."""

    def __init__(
        self,
        metadata: RemoteLogMetadata,
        segments: RemoteReader,
        reader: RemotePartitionReader,
        *,
        remote_log_manager_follower_thread_pool_size: int,
    ) -> None:
        self.reader = reader
        self._metadata = metadata
        self._segments = segments
        self._slots = Slots(remote_log_manager_follower_thread_pool_size)

    def resize(self, remote_log_manager_follower_thread_pool_size: int) -> None:
        """Let another number of followers read their state at the same time."""
        self._slots.resize(remote_log_manager_follower_thread_pool_size)

    def note_copied(self, partition: RemotePartition, log: Log) -> None:
        """Let the log delete local segments that have a copy. Has no effect until the partition's events are read."""
        try:
            remote = self._metadata.remote_log(partition)
        except RemoteStorageError:
            return
        note_copied(remote, log)

    def candidates(self, partition: RemotePartition, local_log_start_offset: int) -> list[tuple[RemoteSegment, int]]:
        """The segments from whose end a follower can go on, if its leader has the records from `local_log_start_offset`
        on, each with the leader epoch of its last record; the lowest end first. Raises RemoteStorageError."""
        found = [
            segment
            for segment in self._metadata.remote_log(partition).readable_segments()
            if segment.start_offset <= local_log_start_offset <= segment.end_offset + 1 and segment.leader_epochs
        ]
        found.sort(key=lambda segment: segment.end_offset)
        return [(segment, segment.leader_epochs[-1].epoch) for segment in found]

    async def read_state(self, segment: RemoteSegment) -> CopiedState:
        """The state of the log at the end of a segment. Raises RemoteStorageError."""
        async with self._slots:
            epochs = await self._segments.leader_epochs(segment)
            producers = await self._segments.producers(segment)
        return CopiedState(segment.end_offset + 1, epochs, tuple(producers))
