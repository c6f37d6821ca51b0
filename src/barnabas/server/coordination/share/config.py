"""Value: the share coordinator's configuration."""

from __future__ import annotations

from msgspec import Struct


class ShareCoordinatorConfig(Struct, frozen=True):
    """Each field is the broker config of the same name, with `_` in place of `.`. Times are in milliseconds."""

    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_write_timeout_ms: int
