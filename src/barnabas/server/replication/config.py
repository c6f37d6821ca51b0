"""Value: the broker configs of follower fetching, replication quotas and moves between directories.

`node/typed_configs.py` builds the instance, and `Replication` replaces it when a dynamic config changes.
"""

from __future__ import annotations

from msgspec import Struct


class ReplicationConfig(Struct, frozen=True):
    """The values in effect; a dynamic broker config makes a new instance. Rates are in bytes per second."""

    num_replica_fetchers: int
    """The number of fetchers for each leader."""
    replica_fetch_min_bytes: int
    replica_fetch_max_bytes: int
    """The most bytes that one partition may contribute to a Fetch response."""
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_backoff_ms: int
    replica_socket_timeout_ms: int
    replica_lag_time_max_ms: int
    follower_fetch_last_tiered_offset_enable: bool
    """Whether a replica without records begins above the copies in the object store (KIP-1023)."""
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    num_replica_alter_log_dirs_threads: int | None
    """The number of moves between directories at a time. None means one for each log directory."""
    replica_alter_log_dirs_io_max_bytes_per_second: int
