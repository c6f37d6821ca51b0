"""Value: the configs that request handlers read."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class BrokerConfig(Struct, frozen=True):
    """The broker configs that handlers read, by Kafka's names."""

    auto_create_topics_enable: bool
    num_partitions: int
    default_replication_factor: int
    fetch_max_bytes: int
    max_request_partition_size_limit: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transaction_state_log_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_state_topic_min_isr: int
    mirror_state_topic_num_partitions: int
    mirror_state_topic_replication_factor: int
    mirror_state_topic_segment_bytes: int
    mirror_state_topic_min_isr: int
    transaction_partition_verification_enable: bool
    add_partitions_to_txn_retry_backoff_ms: int
    add_partitions_to_txn_retry_backoff_max_ms: int
    request_timeout_ms: int
    telemetry_max_bytes: int
    replica_selector_class: str | None


class HasBrokerConfig(Protocol):
    """The configs in effect. A change of dynamic configs replaces `current`."""

    @property
    def current(self) -> BrokerConfig: ...
