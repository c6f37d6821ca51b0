"""Shell: what the leader of one tiered partition does from time to time: copy closed segments, delete expired ones.

Both steps may be interrupted anywhere, by an error, by a cancellation, or by the end of the process. The next run, of
this leader or of another one, goes on from what the events say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas.core.clock import Clock
from barnabas.core.telemetry import get_logger
from barnabas.server.storage.log import Log
from barnabas.server.tiering.copier import SegmentCopier
from barnabas.server.tiering.copying import CopyLag, copy_lag, segments_to_copy
from barnabas.server.tiering.expiring import LocalLogView, expired_segments, remote_size_bytes
from barnabas.server.tiering.lineage import copied_through, segments_of
from barnabas.server.tiering.ports import LedLog, RemoteLogMetadata
from barnabas.server.tiering.quotas import RemoteQuota
from barnabas.server.tiering.remote_log import RemoteLog
from barnabas.server.tiering.sources import closed_segments, source_of
from barnabas.server.tiering.values import RemotePartition, RemoteSegment

log = get_logger("barnabas.server.tiering")

THROTTLE_MS_MAX: Final = 1_000
"""How long the copier waits before it looks at the limit again, which may have been raised."""


class TieredLeader:
    """The leader of one partition."""

    def __init__(
        self,
        partition: RemotePartition,
        led: LedLog,
        copier: SegmentCopier,
        metadata: RemoteLogMetadata,
        clock: Clock,
        quota: RemoteQuota,
    ) -> None:
        self.partition = partition
        self.lag = CopyLag(0, 0)
        """What was still to be copied when the leader last looked."""
        self.delete_lag = CopyLag(0, 0)
        """The remote segments that were still to be deleted."""
        self.size_bytes = 0
        """The size of the log's records in the object store."""
        self.segments = 0
        """The number of remote segments, in any state."""
        self._led = led
        self._copier = copier
        self._metadata = metadata
        self._clock = clock
        self._quota = quota

    async def copy(self) -> int:
        """Copy the closed segments that may be copied now, and return their number. Raises RemoteStorageError and
        StorageError."""
        copied = 0
        while True:
            local = self._led.log
            if local is None or local.failed or not local.config.tiered:
                return copied
            highest = self._note_copied(local)
            if local.config.remote_log_copy_disable:
                return copied
            stable = local.last_stable_offset(self._led.high_watermark)
            due = segments_to_copy(closed_segments(local), highest, local.log_start_offset, stable)
            source = source_of(local, due[0]) if due else None
            if source is None:
                return copied
            if await self._is_throttled():
                continue  # what is copied next may have changed meanwhile
            self._quota.record(source.size_bytes, self._monotonic_ms())
            await self._copier.copy(self.partition, source)
            copied += 1

    async def _is_throttled(self) -> bool:
        """Whether the copies exceed remote.log.manager.copy.max.bytes.per.second. If so, some time has passed."""
        throttle_ms = self._quota.throttle_ms(self._monotonic_ms())
        if throttle_ms:
            await asyncio.sleep(min(throttle_ms, THROTTLE_MS_MAX) / 1000)
        return throttle_ms > 0

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _note_copied(self, local: Log) -> int:
        """Let the local log delete what has a copy. Returns the last such offset."""
        remote = self._metadata.remote_log(self.partition)
        copied = note_copied(remote, local)
        self.lag = copy_lag(closed_segments(local), copied, local.log_start_offset)
        self.size_bytes = remote_size_bytes(remote, local.epoch_entries, local.log_end_offset)
        self.segments = len(remote.segments())
        return copied

    async def expire(self, now_ms: int) -> int:
        """Raise the log start offset by retention, delete the remote segments that are not needed any more, and return
        their number. If the topic does not use tiered storage any more, delete all of them. Raises RemoteStorageError
        and StorageError."""
        local = self._led.log
        if local is None or local.failed or local.lacks_lineage:
            return 0
        remote = self._metadata.remote_log(self.partition)
        if not local.config.tiered:
            return await self._delete_all(local, remote)
        self._note_copied(local)
        expiry = expired_segments(remote, view_of(local), now_ms, self._copier.copying)
        if local.advance_log_start(expiry.log_start_offset):
            log.info("log start raised", partition=str(self.partition), log_start_offset=expiry.log_start_offset)
        await self._delete(expiry.segments)
        return len(expiry.segments)

    async def _delete_all(self, local: Log, remote: RemoteLog) -> int:
        """Delete all remote segments, after the log start was raised to the local segments."""
        if not local.config.remote_log_delete_on_disable:
            return 0
        gone = [segment for segment in remote.segments() if segment.id not in self._copier.copying]
        self.lag, self.size_bytes = CopyLag(0, 0), 0
        for segment in gone:
            if local.config.tiered:
                break  # enabled again
            await self._copier.delete(segment)
        return len(gone)

    async def _delete(self, segments: Sequence[RemoteSegment]) -> None:
        left = [segment.size_bytes for segment in segments]
        for segment in segments:
            self.delete_lag = CopyLag(sum(left), len(left))
            await self._copier.delete(segment)
            del left[0]
        self.delete_lag = CopyLag(0, 0)


def note_copied(remote: RemoteLog, local: Log) -> int:
    """Let a log, of a leader or of a follower, delete the local segments that have a copy. Returns the last offset of
    which everything from the local start on has one, or -1."""
    segments = segments_of(remote, local.epoch_entries, local.log_end_offset)
    local.highest_copied_offset = copied_through(segments, local.local_log_start_offset)
    return local.highest_copied_offset


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
