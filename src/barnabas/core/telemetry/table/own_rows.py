"""Table: the metrics that Kafka does not have, and those of well-known exporters of consumer-group lag."""

from __future__ import annotations

from typing import Final

from barnabas.core.telemetry.table.row import MetricKind, MetricRow, own

_C: Final = MetricKind.COUNTER
_G: Final = MetricKind.GAUGE
_H: Final = MetricKind.HISTOGRAM

_GROUPS: Final = "server/monitoring/groups"
_LINKS: Final = "server/monitoring/links"
_NETWORK: Final = "protocol/transport"
_CLEANER: Final = "server/replication/cleaning"
_PROCESS: Final = "server/monitoring/process"
_LOOP: Final = "core/telemetry/loop_watch"
_DISPATCH: Final = "server/broker/request_metrics"
_DESCRIPTORS: Final = "server/node/setup/descriptors"
_MOVER: Final = "server/replication/directories"
_CLIENTS: Final = "server/broker/client_metrics"
_USAGE: Final = "server/monitoring/clients"

LAG_ROWS: Final[tuple[MetricRow, ...]] = (
    own(_G, "kafka_consumergroup_current_offset", "The committed offset of a group.", _GROUPS,
        "consumergroup", "topic", "partition"),
    own(_G, "kafka_consumergroup_lag", "Committed records of the partition behind the group's committed offset.",
        _GROUPS, "consumergroup", "topic", "partition"),
    own(_G, "kafka_consumergroup_current_offset_sum", "The sum of a group's committed offsets of a topic.", _GROUPS,
        "consumergroup", "topic"),
    own(_G, "kafka_consumergroup_lag_sum",
        "The sum of the lags of a topic's partitions; missing while that of one is unknown.", _GROUPS,
        "consumergroup", "topic"),
    own(_G, "kafka_consumergroup_members", "Members of a group.", _GROUPS, "consumergroup"),
    own(_G, "kafka_topic_partition_current_offset",
        "The high watermark of the partition; on the broker that leads it.", "server/monitoring/replicas",
        "topic", "partition"),
    own(_G, "kafka_topic_partition_oldest_offset",
        "The first offset of the partition; on the broker that leads it.", "server/monitoring/replicas",
        "topic", "partition"),
    own(_G, "kafka_brokers", "Brokers that are not fenced; on the active controller only.",
        "server/monitoring/cluster"),
    own(_G, "barnabas_consumergroup_lag_seconds",
        "For how long the oldest record that the group has not read has been in the log, to about 10 seconds; "
        "at most the time since this broker became the group's coordinator.", _GROUPS,
        "consumergroup", "topic", "partition"),
    own(_G, "barnabas_share_groups_sessions", "Share sessions of this broker.", _GROUPS),
    own(_G, "barnabas_share_partitions", "Share partitions that this broker leads.", _GROUPS),
    own(_G, "barnabas_transactions", "Transactional ids that this broker coordinates, by state.", _GROUPS, "state"),
    own(_G, "barnabas_transactions_oldest_seconds",
        "The age of the oldest open transaction that this broker coordinates; 0 if none is open.", _GROUPS),
    own(_G, "barnabas_coordinator_partitions", "Coordinator partitions of this broker, by state.", _GROUPS,
        "coordinator", "state"),
)  # fmt: skip

LINK_ROWS: Final[tuple[MetricRow, ...]] = (
    own(_G, "barnabas_link_lag_records", "Records of a mirror partition's source that are not here yet; on the broker "
        "that leads the mirror.", _LINKS, "link", "topic", "partition"),
    own(_G, "barnabas_link_lag_bytes", "The same in bytes, estimated from the mean size of the records that are here.",
        _LINKS, "link", "topic", "partition"),
    own(_G, "barnabas_link_lag_seconds", "The time since the mirror last had all records of its source, as far as the "
        "source has answered; up to mirror.fetch.wait.max.ms while the source has no new ones.", _LINKS,
        "link", "topic", "partition"),
    own(_G, "barnabas_link_partitions", "Mirror partitions that this broker leads, by state: MIRRORING, FAILED and so "
        "on.", _LINKS, "link", "state"),
    own(_G, "barnabas_link_skipped_offsets", "Offsets that retention deleted on the source before they were mirrored, "
        "in the partitions that this broker leads, since it became their leader.", _LINKS, "link"),
    own(_G, "barnabas_link_trouble", "1 if the last round of the link did not copy all topics, configs, group offsets "
        "and ACLs; on the link's coordinator.", _LINKS, "link"),
)  # fmt: skip

NETWORK_ROWS: Final[tuple[MetricRow, ...]] = (
    own(_C, "barnabas_net_received_bytes_total", "Bytes read from clients.", _NETWORK, "listener"),
    own(_C, "barnabas_net_sent_bytes_total", "Bytes written to clients.", _NETWORK, "listener"),
    own(_G, "barnabas_net_connections", "Open connections.", _NETWORK, "listener"),
    own(_C, "barnabas_net_accepted_connections_total", "Connections that were admitted.", _NETWORK, "listener"),
    own(_C, "barnabas_net_refused_connections_total", "Connections closed because of a limit.", _NETWORK, "listener"),
    own(_C, "barnabas_net_delayed_connections_total", "Connections that waited because of a limit.", _NETWORK,
        "listener"),
    own(_C, "barnabas_net_connection_delay_seconds_total", "How long connections have waited together.", _NETWORK,
        "listener"),
    own(_C, "barnabas_net_throttled_connections_total",
        "Connections closed after a delay, because their address creates connections too fast.", _NETWORK, "listener"),
    own(_G, "barnabas_net_waiting_connections", "Connections that wait because of a limit.", _NETWORK, "listener"),
    own(_C, "barnabas_net_failed_authentications_total", "Connections that failed to authenticate.", _NETWORK,
        "listener"),
    own(_C, "barnabas_net_authentications_total", "Connections that have authenticated.", _NETWORK, "listener"),
    own(_C, "barnabas_net_expired_sessions_total", "Connections closed because their sessions expired.", _NETWORK,
        "listener"),
    own(_G, "barnabas_net_unauthenticated_connections",
        "Open connections whose clients have not authenticated yet.", _NETWORK, "listener"),
    own(_G, "barnabas_net_request_memory_bytes",
        "Bytes of requests that are not answered, counted if queued.max.request.bytes is set.", _NETWORK),
    own(_G, "barnabas_net_request_memory_free_bytes", "Bytes until queued.max.request.bytes; -1 if it is not set.",
        _NETWORK),
    own(_G, "barnabas_net_unsent_bytes", "Bytes of responses that slow clients have not received yet.", _NETWORK),
    own(_C, "barnabas_requests_total", "Requests answered.", _DISPATCH, "api"),
    own(_C, "barnabas_request_bytes_total", "Bytes of requests.", _DISPATCH, "api"),
    own(_H, "barnabas_request_latency_ms", "From the arrival of a request to its answer, waiting included.", _DISPATCH,
        "api"),
    own(_G, "barnabas_quota_throttled_requests",
        "Requests whose clients were delayed by a quota since the node started.", "server/broker/client_quotas",
        "quota"),
    own(_G, "barnabas_authorizer_decisions", "Operations that the authorizer has allowed or denied since the node "
        "started.", "server/broker/authorization", "result"),
    own(_G, "barnabas_authorizer_acls", "ACLs that the authorizer has loaded.", "server/broker/authorization"),
)  # fmt: skip

CLIENT_ROWS: Final[tuple[MetricRow, ...]] = (
    *(
        own(_C, f"barnabas_client_{name}_total", f"{help_text} By client id, address (an IPv6 address counts as its "
            "/64 network) and principal; of at most 100 names each. The series without a name counts all others.",
            _USAGE, "by", "name")
        for name, help_text in (
            ("received_bytes", "Bytes received from clients."),
            ("sent_bytes", "Bytes sent to clients."),
            ("requests", "Requests of clients."),
            ("loop_seconds", "For how long requests of clients have held the event loop: 1 per second is all of it."),
            ("records", "Records appended for clients."),
        )
    ),
    *(
        own(_C, f"barnabas_partition_{name}_total", f"{help_text} Of at most 100 partitions. The series without a "
            "topic counts all others.", _USAGE, "topic", "partition")
        for name, help_text in (
            ("bytes_in", "Bytes appended by clients."),
            ("bytes_out", "Bytes of records read by consumers."),
            ("messages_in", "Records appended by clients."),
        )
    ),
)  # fmt: skip

STORAGE_ROWS: Final[tuple[MetricRow, ...]] = (
    own(_G, "barnabas_remote_reads_waiting", "Parts of objects that wait to be read from the object store.",
        "server/monitoring/tiered"),
    own(_C, "barnabas_log_disk_reads_total", "Reads of records that were not in the page cache.",
        "server/replication/traffic"),
    own(_G, "barnabas_log_dir_bytes", "Bytes of all logs in a log directory.", "server/monitoring/replicas",
        "path"),
    own(_G, "barnabas_log_dir_free_bytes", "Free bytes of the file system of a log directory.",
        "server/monitoring/replicas", "path"),
    own(_G, "barnabas_log_dir_total_bytes", "Bytes of the file system of a log directory.",
        "server/monitoring/replicas", "path"),
    own(_C, "barnabas_log_cleaner_passes_total", "Completed cleaning passes.", _CLEANER),
    own(_C, "barnabas_log_cleaner_failures_total", "Cleaning passes that failed.", _CLEANER),
    own(_C, "barnabas_log_cleaner_read_bytes_total", "Bytes read by the cleaner.", _CLEANER),
    own(_C, "barnabas_log_cleaner_written_bytes_total", "Bytes written by the cleaner.", _CLEANER),
    own(_C, "barnabas_log_cleaner_records_removed_total", "Records that compaction removed.", _CLEANER),
    own(_C, "barnabas_log_cleaner_seconds_total", "Time spent cleaning.", _CLEANER),
    own(_G, "barnabas_log_cleaner_max_dirty_ratio", "The dirty ratio of the dirtiest log.", _CLEANER),
    own(_G, "barnabas_log_cleaner_buffer_utilization", "How full the last pass made its map of keys.", _CLEANER),
    own(_G, "barnabas_log_cleaner_uncleanable_partitions", "Partitions whose last cleaning pass failed.", _CLEANER),
    own(_G, "barnabas_log_cleaner_since_last_run_seconds",
        "Time since the cleaner last searched for a log that is due.", _CLEANER),
    own(_G, "barnabas_log_cleaner_uncleanable_since_seconds",
        "Time of the first failed cleaning pass of the partition (Unix time).", _CLEANER, "topic", "partition"),
    own(_C, "barnabas_log_dir_moves_total", "Replicas moved to another log directory.", _MOVER),
    own(_C, "barnabas_log_dir_moved_bytes_total", "Bytes copied to another log directory.", _MOVER),
    own(_G, "barnabas_log_dir_moves_under_way", "Replicas on their way to another directory.", _MOVER),
    own(_G, "barnabas_log_open_segments", "Log segments with an open file.", _DESCRIPTORS),
    own(_G, "barnabas_log_open_segments_limit", "The limit of log segments with an open file.", _DESCRIPTORS),
    own(_G, "barnabas_log_segments_closed",
        "How many times the file of a segment was closed to stay within the limit.", _DESCRIPTORS),
    own(_G, "barnabas_descriptors_open", "Open file descriptors of the process.", _DESCRIPTORS),
    own(_G, "barnabas_descriptors_limit", "The limit of open file descriptors.", _DESCRIPTORS),
    own(_G, "barnabas_descriptors_reserve_used",
        "How many times a file was opened with a descriptor of the reserve, because no other was free.", _DESCRIPTORS),
    own(_G, "barnabas_descriptors_exhausted",
        "How many times a file could not be opened, because no descriptor was free.", _DESCRIPTORS),
)  # fmt: skip

NODE_ROWS: Final[tuple[MetricRow, ...]] = (
    own(_G, "barnabas_info", "1; the labels are the version, the node's id, the cluster's id and the roles.", _PROCESS,
        "version", "node_id", "cluster_id", "roles"),
    own(_G, "barnabas_ready", "1 if the node gives full service, as the page /readyz says.", _PROCESS),
    own(_G, "barnabas_ready_part", "1 if a part of the node is ready, as the page /readyz says.", _PROCESS, "part"),
    own(_G, "barnabas_quorum_known", "1 if this node knows an active controller.", "server/monitoring/quorum"),
    own(_G, "barnabas_quorum_without_controller_seconds", "For how long this node has known no active controller.",
        "server/monitoring/quorum"),
    own(_G, "barnabas_quorum_replica_lag", "Metadata records that a controller or broker lacks; on the leader of the "
        "quorum only, without those that have not fetched from it.",
        "server/monitoring/quorum", "node_id", "role"),
    own(_G, "barnabas_metadata_lag", "Committed metadata records that this node has not applied.",
        "server/monitoring/quorum"),
    own(_H, "barnabas_loop_held_ms", "Steps of requests, in which the event loop ran nothing else.", _LOOP, "by"),
    own(_G, "barnabas_loop_held_max_ms", "The longest such step since the node started.", _LOOP, "by"),
    own(_H, "barnabas_loop_late_ms", "How late the event loop ran a task that was due.", _LOOP),
    own(_G, "barnabas_loop_late_max_ms", "The largest such time since the node started.", _LOOP),
    own(_C, "barnabas_log_lines_total", "Lines of the log, by level; also those that were counted and not repeated.",
        "core/telemetry/log", "level"),
    own(_C, "process_cpu_seconds_total", "Processor time of the process.", _PROCESS),
    own(_G, "process_resident_memory_bytes", "Memory of the process.", _PROCESS),
    own(_G, "process_start_time_seconds", "When the process started (Unix time).", _PROCESS),
    own(_G, "barnabas_metrics_left_out", "Series that were left out because of a limit of this page.",
        "server/monitoring/limits", "kind"),
    own(_G, "barnabas_metrics_build_seconds", "How long the page before this one took to build.",
        "server/node/metrics_pages"),
    own(_C, "barnabas_otlp_pushes_total", "Pushes to barnabas.metrics.otlp.endpoint, by their outcome: ok or failed.",
        "server/monitoring/otlp_push", "result"),
    own(_G, "barnabas_client_metrics_instances", "Clients that have asked for their subscription (KIP-714).", _CLIENTS),
    own(_C, "barnabas_client_metrics_pushes_total", "Pushes of clients, by their outcome.", _CLIENTS, "result"),
    own(_G, "barnabas_client_metric", "The newest value that a client has pushed; a counter or a sum is added up.",
        _CLIENTS, "name", "attributes", "client_id", "client_instance_id", "software"),
    own(_C, "barnabas_client_metrics_left_out_total", "Values of clients that were not kept, because there are too "
        "many.", _CLIENTS),
)  # fmt: skip

OWN_ROWS: Final = (*LAG_ROWS, *LINK_ROWS, *NETWORK_ROWS, *CLIENT_ROWS, *STORAGE_ROWS, *NODE_ROWS)
