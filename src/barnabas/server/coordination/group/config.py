"""Value: the configs that the group coordinator uses."""

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
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int

    # consumer groups
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: MigrationPolicy
    group_consumer_assignment_interval_ms: int
    """The minimum time between two target assignments of a group, so that many joins cost one computation
    (KIP-1263)."""
    group_consumer_regex_refresh_interval_ms: int

    # share groups
    group_share_session_timeout_ms: int
    group_share_heartbeat_interval_ms: int
    group_share_assignment_interval_ms: int
    group_share_initialize_retry_interval_ms: int
    group_share_max_size: int
    group_share_assignors: tuple[str, ...]

    # offsets
    message_max_bytes: int
    offset_metadata_max_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_commit_timeout_ms: int

    new_member_join_timeout_ms: int = 300_000
    """How long a new member may wait for its first rebalance to complete (Kafka's constant
    CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS)."""

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


class GroupConfigs(Protocol):
    """The configs of single groups (`kafka-configs --entity-type groups`). A method returns None if the group has no
    config of its own, so that the broker's config applies."""

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
