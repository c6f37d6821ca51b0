"""Port: what the metadata room needs from others, and what others register here for.

MetadataLog      the replicated log of metadata records: Raft, one voter, or ZooKeeper   (filled by node)
MetadataListener what the log calls with committed records                               (filled by the Loader)
ImageSubscriber  who wants to hear of each new image                                     (replication, ...)
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from barnabas.server.metadata.image.cluster import ClusterImage
    from barnabas.server.metadata.image.delta import ClusterDelta
    from barnabas.server.metadata.records.base import MetadataRecord


class CommittedBatch(Struct, frozen=True):
    """Metadata records that a majority has: those of one batch of the log. Control batches are not passed on, but their
    offsets count, so `base_offset` may leave a gap after the batch before."""

    base_offset: int
    epoch: int
    timestamp_ms: int
    records: tuple[MetadataRecord, ...]
    size_bytes: int = 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.records) - 1


class LoadedSnapshot(Struct, frozen=True):
    """The contents of a `<offset>-<epoch>.checkpoint` file: all state up to, and without, `end_offset`."""

    end_offset: int
    epoch: int
    timestamp_ms: int
    records: Sequence[MetadataRecord]


class MetadataListener(Protocol):
    """Called by the log on the loop, in offset order, never again for the same offset."""

    def on_commit(self, batch: CommittedBatch) -> None: ...

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Forget everything and start from this (a node that fell behind, or that has just started)."""
        ...

    def on_leader(self, leader_id: int, epoch: int) -> None:
        """The log has a new leader; -1 while it has none."""
        ...


class MetadataLog(Protocol):
    """The log of metadata records. There is one per cluster; whoever leads it is the active controller."""

    def propose(self, records: Sequence[MetadataRecord]) -> Awaitable[int]:
        """Append `records` as one batch: all or none, after everything proposed before (the *call* fixes the order).

        The awaitable gives the offset of the last record when it is committed and every listener has been told of it.
        It raises KafkaError (NOT_CONTROLLER when leadership was lost or never held). Giving up the wait does not
        withdraw the records.
        """
        ...

    def register(self, listener: MetadataListener) -> None:
        """From now on tell `listener` everything, beginning with the newest snapshot and the commits after it."""
        ...

    async def write_snapshot(
        self, end_offset: int, epoch: int, timestamp_ms: int, records: Iterable[MetadataRecord]
    ) -> None:
        """Store a snapshot of everything before `end_offset`; the log may then drop its older segments. `records` may
        be gone through in another thread."""
        ...


class KRaftVersion(Protocol):
    """The quorum's own feature, kraft.version: its level is a control record of the log, not one of the metadata."""

    @property
    def kraft_version(self) -> int: ...

    def upgrade_kraft_version(self) -> None:
        """0 -> 1: voters may change from now on. Raises KafkaError (INVALID_UPDATE_VERSION) while it cannot be."""
        ...


class ImageSubscriber(Protocol):
    """Is told of each new image: what changed (`delta`), and everything (`image`)."""

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None: ...
