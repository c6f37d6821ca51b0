"""Machine: builds images from committed metadata records and publishes them.

A batch takes effect as a whole. Records between BeginTransactionRecord and EndTransactionRecord (KIP-868) take effect
together, even if they were in several batches. AbortTransactionRecord discards them.
"""

from __future__ import annotations

from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.image.cluster import ClusterImage, MetadataProvenance
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.ports import CommittedBatch, LoadedSnapshot
from barnabas.server.metadata.publish import Publisher
from barnabas.server.metadata.records.other import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord


class Loader:
    """A `MetadataListener` that feeds a `Publisher`. Raises MetadataError when the log contradicts itself."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._delta = ClusterDelta(publisher.image)
        self._in_transaction = False
        self._loaded_offset = publisher.image.offset
        self.leader_id = -1
        self.leader_epoch = 0
        self.bytes_since_snapshot = 0

    @property
    def image(self) -> ClusterImage:
        """The newest published image."""
        return self._publisher.image

    @property
    def loaded_offset(self) -> int:
        """The last offset that was loaded. It counts the records of an open transaction, which are not in the image
        yet."""
        return self._loaded_offset

    def on_commit(self, batch: CommittedBatch) -> None:
        if batch.base_offset <= self._loaded_offset:
            raise MetadataError(
                f"The metadata log handed over offset {batch.base_offset} after {self._loaded_offset}: never twice."
            )
        self.bytes_since_snapshot += batch.size_bytes
        for index, record in enumerate(batch.records):
            kind = type(record)
            if kind is BeginTransactionRecord:
                self._begin(MetadataProvenance(batch.base_offset + index - 1, batch.epoch, batch.timestamp_ms))
            elif kind is EndTransactionRecord:
                self._end_of_transaction("End")
            elif kind is AbortTransactionRecord:
                self._end_of_transaction("Abort")
                self._delta = ClusterDelta(self.image)
            else:
                self._delta.apply(record)
        self._loaded_offset = batch.last_offset
        if not self._in_transaction:
            self._publish(MetadataProvenance(batch.last_offset, batch.epoch, batch.timestamp_ms))

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        before = self.image
        fresh = ClusterDelta(ClusterImage(cluster_id=before.cluster_id))
        for record in snapshot.records:
            fresh.apply(record)
        provenance = MetadataProvenance(snapshot.end_offset - 1, snapshot.epoch, snapshot.timestamp_ms)
        image = fresh.finish(provenance)
        self._in_transaction = False
        self._loaded_offset = provenance.offset
        self.bytes_since_snapshot = 0
        self._publisher.publish(ClusterDelta.between(before, image), image)
        self._delta = ClusterDelta(image)

    def on_leader(self, leader_id: int, epoch: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = epoch
        self._publisher.publish_leader(leader_id, epoch)

    def _begin(self, before: MetadataProvenance) -> None:
        if self._in_transaction:
            raise MetadataError("A metadata transaction begins inside another one.")
        if not self._delta.is_empty:
            self._publish(before)
        self._in_transaction = True

    def _end_of_transaction(self, what: str) -> None:
        if not self._in_transaction:
            raise MetadataError(f"{what}TransactionRecord without BeginTransactionRecord in the metadata log.")
        self._in_transaction = False

    def _publish(self, provenance: MetadataProvenance) -> None:
        delta = self._delta
        image = delta.finish(provenance)
        self._delta = ClusterDelta(image)
        self._publisher.publish(delta, image)
