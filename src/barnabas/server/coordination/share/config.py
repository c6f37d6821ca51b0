"""Value: the share coordinator's settings, with Kafka's defaults. Filled from the broker's configuration."""

from __future__ import annotations

from msgspec import Struct


class ShareCoordinatorConfig(Struct, frozen=True):
    """Fields are the settings `share.coordinator.*` of the same names."""

    snapshot_update_records_per_snapshot: int = 500
    cold_partition_snapshot_interval_ms: int = 300_000
    prune_interval_ms: int = 300_000
    write_timeout_ms: int = 5_000
