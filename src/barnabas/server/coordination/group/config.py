"""Value: the group coordinator's configuration."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from msgspec import Struct


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`: which way a group may change its protocol while it has members."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class GroupCoordinatorConfig(Struct, frozen=True):
    """Each field is the broker config of the same name, with `_` in place of `.`. Times are in milliseconds, sizes in
    bytes."""

    # classic groups
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    new_member_join_timeout_ms: int = 300_000
    """How long a new member may wait for its first rebalance to complete (group.classic.new.member.join.timeout.ms, an
    internal config of Kafka)."""

    # consumer groups
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    group_consumer_assignment_interval_ms: int = 1_000
    """The minimum time between two target assignments of a group, so that many joins cost one computation
    (KIP-1263)."""

    # share groups
    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_assignment_interval_ms: int = 1_000
    group_share_initialize_retry_interval_ms: int = 30_000
    group_share_max_size: int = 200
    group_share_assignors: tuple[str, ...] = ("simple",)

    # offsets
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offset_commit_timeout_ms: int = 5_000

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


class GroupConfigs(Protocol):
    """Configs of single groups (`kafka-configs --entity-type groups`). None: the broker's config applies."""

    def consumer_session_timeout_ms(self, group_id: str) -> int | None: ...

    def consumer_heartbeat_interval_ms(self, group_id: str) -> int | None: ...

    def consumer_assignment_interval_ms(self, group_id: str) -> int | None: ...

    def share_session_timeout_ms(self, group_id: str) -> int | None: ...

    def share_heartbeat_interval_ms(self, group_id: str) -> int | None: ...

    def share_assignment_interval_ms(self, group_id: str) -> int | None: ...


class NoGroupConfigs:
    """A `GroupConfigs` in which no group has a config of its own."""

    def consumer_session_timeout_ms(self, group_id: str) -> int | None:
        return None

    def consumer_heartbeat_interval_ms(self, group_id: str) -> int | None:
        return None

    def consumer_assignment_interval_ms(self, group_id: str) -> int | None:
        return None

    def share_session_timeout_ms(self, group_id: str) -> int | None:
        return None

    def share_heartbeat_interval_ms(self, group_id: str) -> int | None:
        return None

    def share_assignment_interval_ms(self, group_id: str) -> int | None:
        return None
