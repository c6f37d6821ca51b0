"""Shell: reads the metadata log of a node that is not running, for tools."""

from __future__ import annotations

from concurrent.futures import Executor

from barnabas.core.clock import Clock
from barnabas.server.metadata.ports import MetadataListener
from barnabas.server.quorum.handover import Handover
from barnabas.server.quorum.raft_log import METADATA_PARTITION, RaftLog
from barnabas.server.quorum.snapshot_store import SnapshotStore
from barnabas.server.storage.fs import FileSystem


def replay(
    fs: FileSystem, directory: str, listener: MetadataListener, *, clock: Clock, executor: Executor,
    clean_shutdown: bool,
) -> None:  # fmt: skip
    """Notify `listener` of all records of the log in `directory`.

    The last records may be uncommitted, because only the quorum knows the high watermark. Raises MetadataError,
    StorageError.
    """
    path = f"{directory}/{METADATA_PARTITION}"
    snapshots = SnapshotStore(fs, path, executor)
    log = RaftLog(fs, path, snapshots, clock=clock, executor=executor, clean_shutdown=clean_shutdown)
    try:
        summary = log.open()
        handover = Handover(-1, log, snapshots)
        handover.register(listener)
        if summary.snapshots:
            handover.on_snapshot(summary.snapshots[-1])
        for batch in log.batches_from(handover.notified_offset):
            if not batch.controls:
                handover.on_commit(batch)
    finally:
        log.close(clean=clean_shutdown)
