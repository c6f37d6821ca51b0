"""Shell: makes all logs of a data directory durable at a clean stop.

A log has up to seven files and directories to sync. With thousands of logs, a sync of each file takes minutes on a
disk, so one syncfs(2) makes the whole volume durable instead. It also waits for what other processes have written
there, which the kernel bounds (vm.dirty_ratio). With few logs, or where the system has no such call, each file is
synced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.flushing import FlushJob
from barnabas.server.storage.fs import FileSystem
from barnabas.server.storage.log import Log

log = get_logger("barnabas.server.storage")

VOLUME_SYNC_LOGS: Final = 64
"""The least number of logs in need of a flush for which the volume is synced."""


def flush_all(fs: FileSystem, path: str, logs: Mapping[TopicPartition, Log]) -> bool:
    """Write the indexes and producer snapshots of all logs, and make everything durable. Returns whether that
    succeeded for all logs; otherwise the directory must not be marked as cleanly closed."""
    clean = True
    jobs: list[tuple[TopicPartition, FlushJob]] = []
    for tp, member in logs.items():
        try:
            job = None if member.failure is not None else member.build_last_job()
        except StorageError as e:
            _on_failed(tp, e)
            clean = False
        else:
            if job is not None:
                jobs.append((tp, job))
    synced = False
    if len(jobs) >= VOLUME_SYNC_LOGS:
        try:
            synced = fs.sync_volume(path)
        except StorageError as e:
            for _, job in jobs:
                job.failed(e)
            log.error("the volume of a log directory could not be synced", path=path, reason=str(e))
            return False
    for tp, job in jobs:
        try:
            if not synced:
                job.run()
        except StorageError as e:
            job.failed(e)
            _on_failed(tp, e)
            clean = False
        else:
            job.finish()
    return clean


def _on_failed(tp: TopicPartition, error: StorageError) -> None:
    log.error("log not closed cleanly", partition=str(tp), reason=str(error))
