"""Value: from configs by name to the typed settings that each room takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.core.config import ConfigError
from barnabas.core.ids import BrokerId
from barnabas.protocol.transport.endpoint import Endpoint
from barnabas.protocol.transport.limits import NetLimits
from barnabas.server.broker.services import BrokerSettings
from barnabas.server.coordination.group.config import GroupCoordinatorConfig, MigrationPolicy
from barnabas.server.coordination.transaction.config import TransactionConfig
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.controller.settings import ControllerSettings
from barnabas.server.node.config import NodeConfig
from barnabas.server.node.lifecycle import LifecycleSettings
from barnabas.server.node.quorum.metadata_log import QuorumOptions
from barnabas.server.node.setup.identity import Identity
from barnabas.server.raft.machine.values import Endpoint as VoterEndpoint
from barnabas.server.raft.machine.values import RaftConfig
from barnabas.server.replication.cleaning.compaction import CleanerSettings
from barnabas.server.replication.ports import FetchLimits
from barnabas.server.replication.settings import ReplicationSettings
from barnabas.server.replication.upkeep import UpkeepIntervals
from barnabas.server.storage.cleaner.task import CleanerLimits

_SELECTORS = (
    None,
    "",
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)


def broker_settings(view: ConfigView) -> BrokerSettings:
    """What handlers obey; made anew when a dynamic broker config changes."""

    def value(name: str) -> Any:
        return view.broker_value(name).value

    if value("replica.selector.class") not in _SELECTORS:
        raise ConfigError(
            f"replica.selector.class={value('replica.selector.class')}: no such class is known. "
            f"Leave it out, or use {_SELECTORS[-1]}."
        )
    return BrokerSettings(
        auto_create_topics_enable=value("auto.create.topics.enable"),
        num_partitions=value("num.partitions"),
        default_replication_factor=value("default.replication.factor"),
        fetch_max_bytes=value("fetch.max.bytes"),
        max_request_partition_size_limit=value("max.request.partition.size.limit"),
        offsets_topic_num_partitions=value("offsets.topic.num.partitions"),
        offsets_topic_replication_factor=value("offsets.topic.replication.factor"),
        offsets_topic_segment_bytes=value("offsets.topic.segment.bytes"),
        transaction_state_log_num_partitions=value("transaction.state.log.num.partitions"),
        transaction_state_log_replication_factor=value("transaction.state.log.replication.factor"),
        transaction_state_log_segment_bytes=value("transaction.state.log.segment.bytes"),
        transaction_state_log_min_isr=value("transaction.state.log.min.isr"),
        share_state_topic_num_partitions=value("share.coordinator.state.topic.num.partitions"),
        share_state_topic_replication_factor=value("share.coordinator.state.topic.replication.factor"),
        share_state_topic_segment_bytes=value("share.coordinator.state.topic.segment.bytes"),
        share_state_topic_min_isr=value("share.coordinator.state.topic.min.isr"),
        transaction_partition_verification_enable=value("transaction.partition.verification.enable"),
        add_partitions_to_txn_retry_backoff_ms=value("add.partitions.to.txn.retry.backoff.ms"),
        add_partitions_to_txn_retry_backoff_max_ms=value("add.partitions.to.txn.retry.backoff.max.ms"),
        request_timeout_ms=value("request.timeout.ms"),
        replica_selector_class=value("replica.selector.class"),
    )


def controller_settings(config: NodeConfig, node_id: int) -> ControllerSettings:
    return ControllerSettings(
        node_id=BrokerId(node_id),
        static_config=config.given,
        default_replication_factor=config["default.replication.factor"],
        num_partitions=config["num.partitions"],
        delete_topic_enable=config["delete.topic.enable"],
        session_timeout_ms=config["broker.session.timeout.ms"],
        auto_leader_rebalance_enable=config["auto.leader.rebalance.enable"],
        leader_imbalance_check_interval_seconds=config["leader.imbalance.check.interval.seconds"],
        unclean_leader_election_interval_ms=config["unclean.leader.election.interval.ms"],
    )


def quorum_options(config: NodeConfig, identity: Identity, own: Sequence[Endpoint]) -> QuorumOptions:
    """`own` are this controller's listeners, as others reach them; empty for a broker."""
    topology = config.topology
    addresses = {(endpoint.host, endpoint.port) for endpoint in own}
    first = topology.bootstrap[0] if topology.bootstrap else None
    return QuorumOptions(
        cluster_id=identity.cluster_id,
        voters=topology.voters if len(topology.voters) > 1 or not topology.decides_alone else (),
        bootstrap=topology.bootstrap,
        endpoints=tuple(VoterEndpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in own),
        may_found=topology.decides_alone or first in addresses,
        raft=RaftConfig(
            election_timeout_ms=config["controller.quorum.election.timeout.ms"],
            fetch_timeout_ms=config["controller.quorum.fetch.timeout.ms"],
            election_backoff_max_ms=config["controller.quorum.election.backoff.max.ms"],
            request_timeout_ms=config["controller.quorum.request.timeout.ms"],
            retry_backoff_ms=config["controller.quorum.retry.backoff.ms"],
            fetch_max_bytes=config["controller.quorum.fetch.max.bytes"],
            snapshot_chunk_bytes=config["controller.quorum.fetch.snapshot.max.bytes"],
            auto_join=config["controller.quorum.auto.join.enable"],
            can_vote=topology.is_controller,
        ),
        fsync=config.metadata_fsync,
    )


def lifecycle_settings(config: NodeConfig) -> LifecycleSettings:
    return LifecycleSettings(
        heartbeat_interval_ms=config["broker.heartbeat.interval.ms"],
        session_timeout_ms=config["broker.session.timeout.ms"],
        initial_registration_timeout_ms=config["initial.broker.registration.timeout.ms"],
        controlled_shutdown_enable=config["controlled.shutdown.enable"],
    )


def net_limits(config: NodeConfig) -> NetLimits:
    return NetLimits(
        request_bytes_max=config["socket.request.max.bytes"],
        queued_requests_max=config["queued.max.requests"],
        queued_bytes_max=config["queued.max.request.bytes"],
        idle_ms_max=config["connections.max.idle.ms"],
        connections_max=config["max.connections"],
        connections_per_ip_max=config["max.connections.per.ip"],
        connections_per_ip_overrides=_overrides(config["max.connections.per.ip.overrides"] or ""),
    )


def _overrides(text: str) -> dict[str, int]:
    """`host:count,host:count`"""
    overrides: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = part.rpartition(":")
        if not colon or not count.isdigit():
            raise ConfigError(f"max.connections.per.ip.overrides: {part!r} is not host:count")
        overrides[host] = int(count)
    return overrides


def group_config(config: NodeConfig) -> GroupCoordinatorConfig:
    return GroupCoordinatorConfig(
        group_min_session_timeout_ms=config["group.min.session.timeout.ms"],
        group_max_session_timeout_ms=config["group.max.session.timeout.ms"],
        group_initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        group_max_size=config["group.max.size"],
        group_consumer_session_timeout_ms=config["group.consumer.session.timeout.ms"],
        group_consumer_min_session_timeout_ms=config["group.consumer.min.session.timeout.ms"],
        group_consumer_max_session_timeout_ms=config["group.consumer.max.session.timeout.ms"],
        group_consumer_heartbeat_interval_ms=config["group.consumer.heartbeat.interval.ms"],
        group_consumer_min_heartbeat_interval_ms=config["group.consumer.min.heartbeat.interval.ms"],
        group_consumer_max_heartbeat_interval_ms=config["group.consumer.max.heartbeat.interval.ms"],
        group_consumer_max_size=config["group.consumer.max.size"],
        group_consumer_assignors=tuple(config["group.consumer.assignors"]),
        group_consumer_assignment_interval_ms=config["group.consumer.assignment.interval.ms"],
        group_consumer_migration_policy=MigrationPolicy(config["group.consumer.migration.policy"].lower()),
        group_share_session_timeout_ms=config["group.share.session.timeout.ms"],
        group_share_heartbeat_interval_ms=config["group.share.heartbeat.interval.ms"],
        group_share_assignment_interval_ms=config["group.share.assignment.interval.ms"],
        group_share_initialize_retry_interval_ms=config["group.share.initialize.retry.interval.ms"],
        group_share_max_size=config["group.share.max.size"],
        group_share_assignors=tuple(config["group.share.assignors"]),
        offset_commit_timeout_ms=config["offsets.commit.timeout.ms"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_minutes=config["offsets.retention.minutes"],
        offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
    )


def transaction_config(config: NodeConfig) -> TransactionConfig:
    return TransactionConfig(
        transaction_max_timeout_ms=config["transaction.max.timeout.ms"],
        transactional_id_expiration_ms=config["transactional.id.expiration.ms"],
        transaction_abort_timed_out_transaction_cleanup_interval_ms=config[
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        ],
        transaction_remove_expired_transaction_cleanup_interval_ms=config[
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ],
        transaction_two_phase_commit_enable=config["transaction.two.phase.commit.enable"],
        write_timeout_ms=config["request.timeout.ms"],
    )


def upkeep_intervals(config: NodeConfig) -> UpkeepIntervals:
    return UpkeepIntervals(
        initial_delay_ms=config["log.initial.task.delay.ms"],
        retention_ms=config["log.retention.check.interval.ms"],
        watermark_ms=config["replica.high.watermark.checkpoint.interval.ms"],
        recovery_point_ms=config["log.flush.offset.checkpoint.interval.ms"],
        log_start_ms=config["log.flush.start.offset.checkpoint.interval.ms"],
        producer_expiry_ms=config["producer.id.expiration.check.interval.ms"],
    )


def replication_settings(view: ConfigView) -> ReplicationSettings:
    """What copying between brokers obeys; made anew when a dynamic broker config changes."""

    def value(name: str) -> Any:
        return view.broker_value(name).value

    return ReplicationSettings(
        fetch=FetchLimits(
            min_bytes=value("replica.fetch.min.bytes"),
            max_bytes=value("replica.fetch.max.bytes"),
            response_max_bytes=value("replica.fetch.response.max.bytes"),
            wait_max_ms=value("replica.fetch.wait.max.ms"),
            backoff_ms=value("replica.fetch.backoff.ms"),
            timeout_ms=value("replica.socket.timeout.ms"),
        ),
        fetchers=value("num.replica.fetchers"),
        replica_lag_time_max_ms=value("replica.lag.time.max.ms"),
        leader_rate=value("leader.replication.throttled.rate"),
        follower_rate=value("follower.replication.throttled.rate"),
        movers=value("num.replica.alter.log.dirs.threads"),
        move_rate=value("replica.alter.log.dirs.io.max.bytes.per.second"),
    )


def cleaner_settings(view: ConfigView) -> CleanerSettings:
    """What the cleaner obeys; asked for anew before each pass, because all but `log.cleaner.enable` are dynamic."""

    def value(name: str) -> Any:
        return view.broker_value(f"log.cleaner.{name}").value

    return CleanerSettings(
        enable=value("enable"),
        threads=value("threads"),
        backoff_ms=value("backoff.ms"),
        limits=CleanerLimits(
            dedupe_buffer_bytes=value("dedupe.buffer.size"),
            load_factor=value("io.buffer.load.factor"),
            io_buffer_bytes=value("io.buffer.size"),
            io_bytes_per_second=value("io.max.bytes.per.second"),
        ),
    )
