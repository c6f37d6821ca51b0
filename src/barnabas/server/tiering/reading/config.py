"""Value: the broker configs of reads from the object store, by their names."""

from __future__ import annotations

from msgspec import Struct


class RemoteReadConfig(Struct, frozen=True):
    """All but those of the windows, and remote.log.reader.max.pending.tasks, may change while the broker runs."""

    remote_fetch_max_wait_ms: int
    remote_list_offsets_request_timeout_ms: int
    remote_log_manager_fetch_max_bytes_per_second: int
    remote_log_manager_fetch_quota_window_num: int
    remote_log_manager_fetch_quota_window_size_seconds: int
    remote_log_manager_follower_thread_pool_size: int
    remote_log_reader_max_pending_tasks: int
    remote_log_reader_threads: int
