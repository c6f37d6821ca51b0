"""Port: the interfaces that the metadata package needs, and those of its subscribers.

ImageView        the newest image                                              (Publisher, BrokerMetadataCache)
MetadataLog      the replicated log of metadata records: Raft, one voter, or ZooKeeper   (implemented by node)
MetadataListener called by the log with committed records                                (implemented by the Loader)
ImageSubscriber  notified of each new image                                              (replication, ...)
BrokerProber     connects to the registered addresses of a broker                        (implemented by node)
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from barnabas.server.metadata.controller.suspicions import ProbeOutcome
    from barnabas.server.metadata.image.cluster import ClusterImage
    from barnabas.server.metadata.image.delta import ClusterDelta
    from barnabas.server.metadata.records.base import MetadataRecord


class ImageView(Protocol):
    """Has the newest committed cluster image."""

    @property
    def image(self) -> ClusterImage: ...


class CommittedBatch(Struct, frozen=True):
    """The committed metadata records of one batch. Control batches are not passed to listeners, but they have offsets,
    so that there may be a gap between the previous batch and `base_offset`."""

    base_offset: int
    epoch: int
    timestamp_ms: int
    records: tuple[MetadataRecord, ...]
    size_bytes: int = 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.records) - 1


class LoadedSnapshot(Struct, frozen=True):
    """The contents of a `<offset>-<epoch>.checkpoint` file: all state before `end_offset`."""

    end_offset: int
    epoch: int
    timestamp_ms: int
    records: Sequence[MetadataRecord]


class MetadataListener(Protocol):
    """Gets the committed records of the metadata log. The log calls the methods on the event loop, in the order of the
    offsets, once for each offset."""

    def on_commit(self, batch: CommittedBatch) -> None: ...

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Replace all state by the snapshot. This happens when a node starts, or when it has fallen too far behind."""
        ...

    def on_leader(self, leader_id: int, epoch: int) -> None:
        """The log has a new leader; -1 while it has none."""
        ...


class MetadataLog(Protocol):
    """The log of metadata records. There is one for each cluster, and its leader is the active controller."""

    def propose(self, records: Sequence[MetadataRecord]) -> Awaitable[int]:
        """Append `records` as one batch: all or none, after everything proposed before (the *call* fixes the order).

        The awaitable returns the offset of the last record when the record is committed and every listener has been
        notified. It raises KafkaError: NOT_CONTROLLER when this node does not lead the log, or lost the leadership.
        Cancelling the wait does not withdraw the records.
        """
        ...

    def register(self, listener: MetadataListener) -> None:
        """Notify `listener` of the newest snapshot, of the commits after it, and of all later ones."""
        ...

    async def write_snapshot(
        self, end_offset: int, epoch: int, timestamp_ms: int, records: Iterable[MetadataRecord]
    ) -> None:
        """Store a snapshot of all records before `end_offset`. The log may then delete older segments. `records` may
        be iterated in another thread."""
        ...


class KRaftVersionUpdater(Protocol):
    """Reads and upgrades the feature kraft.version of the quorum. The level of kraft.version is stored in a control
    record of the log, and not in a metadata record."""

    @property
    def kraft_version(self) -> int: ...

    def upgrade_kraft_version(self) -> None:
        """Upgrade kraft.version from 0 to 1, after which voters can change. Raises KafkaError (INVALID_UPDATE_VERSION)
        if the quorum is not ready for it."""
        ...


class BrokerProber(Protocol):
    """Connects to a broker, to find out whether its process has ended."""

    async def probe(self, addresses: Sequence[tuple[str, int]]) -> ProbeOutcome:
        """Connect to each address, given as host and port, and close the connections at once. Ends within about a
        second. Never raises an error of the network."""
        ...


class ImageSubscriber(Protocol):
    """Notified of each new image: `delta` has the changes, `image` the whole state."""

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None: ...
