"""Value: record batches and objects of backups for tests."""

from __future__ import annotations

import hashlib
from uuid import UUID

from barnabas.backup.values import PartitionBackup, RunManifest, StoredBatches, TopicBackup
from barnabas.core.ids import uuid_to_text
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker

TOPIC_ID = uuid_to_text(UUID(int=7))
RUN = "20261124T031500000Z-00aa"


def batch(base: int, count: int = 2, *, epoch: int = 0, producer: int = -1, transactional: bool = False) -> bytes:
    """A batch with the offsets from `base` on."""
    records = [SimpleRecord(b"k%d" % offset, b"v%d" % offset, 1000 + offset) for offset in range(base, base + count)]
    return build_batch(
        records,
        base_offset=base,
        leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=transactional,
    )


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    """A transaction marker at `offset`."""
    return build_end_txn_marker(
        EndTxn(commit=commit, coordinator_epoch=0),
        producer_id=producer,
        producer_epoch=0,
        timestamp=5,
        base_offset=offset,
    )


def stored(start: int, end: int, data: bytes = b"", *, batches: int = 1, epoch: int = 0) -> StoredBatches:
    """The entry of an object."""
    name = f"data/orders-{TOPIC_ID}/0/{start:020d}-{RUN}.batches"
    return StoredBatches(name, start, end, len(data), hashlib.sha256(data).hexdigest(), batches, epoch)


def partition(start: int, end: int, *objects: StoredBatches, number: int = 0) -> PartitionBackup:
    return PartitionBackup(number, start, end, objects)


def run_of(*partitions: PartitionBackup, run_id: str = RUN) -> RunManifest:
    """A complete run with one topic."""
    topic = TopicBackup("orders", TOPIC_ID, 3, {"retention.ms": "1000"}, partitions)
    return RunManifest(run_id, "cluster", 1, 2, True, None, 0, (topic,))
