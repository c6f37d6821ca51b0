"""Shell: what the leader of one tiered partition does from time to time: copy closed segments, delete expired ones.

Both steps may be interrupted anywhere, by an error, by a cancellation, or by the end of the process. The next run, of
this leader or of another one, goes on from what the events say.
"""

from __future__ import annotations

from barnabas.core.clock import Clock
from barnabas.core.telemetry import get_logger
from barnabas.server.storage.log import Log
from barnabas.server.tiering.copier import SegmentCopier
from barnabas.server.tiering.copying import CopyLag, copy_lag, segments_to_copy
from barnabas.server.tiering.expiring import LocalLogView, expired_segments
from barnabas.server.tiering.ports import LedLog, RemoteLogMetadata
from barnabas.server.tiering.sources import closed_segments, source_of
from barnabas.server.tiering.values import RemotePartition

log = get_logger("barnabas.server.tiering")


class TieredLeader:
    """The leader of one partition."""

    def __init__(
        self, partition: RemotePartition, led: LedLog, copier: SegmentCopier, metadata: RemoteLogMetadata, clock: Clock
    ) -> None:
        self.partition = partition
        self.lag = CopyLag(0, 0)
        """What was still to be copied at the last look."""
        self._led = led
        self._copier = copier
        self._metadata = metadata
        self._clock = clock

    async def copy(self) -> int:
        """Copy the closed segments that may be copied now, and return their number. Raises RemoteStorageError and
        StorageError."""
        copied = 0
        while True:
            local = self._led.log
            if local is None or local.failed:
                return copied
            highest = self._note_highest_copied(local)
            stable = local.last_stable_offset(self._led.high_watermark)
            due = segments_to_copy(closed_segments(local), highest, local.log_start_offset, stable)
            source = source_of(local, due[0]) if due else None
            if source is None:
                return copied
            await self._copier.copy(self.partition, source)
            copied += 1

    def _note_highest_copied(self, local: Log) -> int:
        """Let the local log delete what has been copied. Returns the highest copied offset."""
        remote = self._metadata.remote_log(self.partition)
        highest = remote.highest_copied(local.epoch_entries, local.log_end_offset)
        local.highest_copied_offset = highest
        self.lag = copy_lag(closed_segments(local), highest, local.log_start_offset)
        return highest

    async def expire(self, now_ms: int) -> int:
        """Raise the log start offset by retention, delete the remote segments that are not needed any more, and return
        their number. Raises RemoteStorageError and StorageError."""
        local = self._led.log
        if local is None or local.failed:
            return 0
        self._note_highest_copied(local)
        remote = self._metadata.remote_log(self.partition)
        expiry = expired_segments(remote, view_of(local), now_ms, self._copier.copying)
        if local.advance_log_start(expiry.log_start_offset):
            log.info("log start raised", partition=str(self.partition), log_start_offset=expiry.log_start_offset)
        for segment in expiry.segments:
            await self._copier.delete(segment)
        return len(expiry.segments)


def view_of(local: Log) -> LocalLogView:
    """What the decision about expired segments needs to know of a log."""
    config, copied = local.config, local.highest_copied_offset
    return LocalLogView(
        lineage=local.epoch_entries,
        log_start_offset=local.log_start_offset,
        local_log_start_offset=local.local_log_start_offset,
        log_end_offset=local.log_end_offset,
        bytes_only_local=sum(segment.size for segment in local.segments if segment.base_offset > copied),
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        deletes=config.delete,
    )
