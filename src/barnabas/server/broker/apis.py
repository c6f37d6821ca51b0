"""Table: the APIs that brokers serve: key, handler, versions and scheduling. ApiVersions is derived from this table.

Controllers have a table of their own (`controller_apis.py`). An API that is not in the table is neither advertised nor
served. The handler is the name of a module under `broker.handlers`, which is imported with the first request of the API
to keep the start of a broker fast. Its function `handle(services, ctx, request)` returns the response, or None if the
request gets no response.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from barnabas.protocol.transport.ports import RequestScheduling
from barnabas.protocol.wire.apis import ApiKey


class Route(Struct, frozen=True):
    """One API. If `advertised_min` is set, ApiVersions returns it in place of `min_version`."""

    key: ApiKey
    handler: str
    min_version: int
    max_version: int
    scheduling: RequestScheduling = RequestScheduling.SEQUENTIAL
    advertised_min: int = -1

    @property
    def advertised(self) -> tuple[int, int]:
        return (self.min_version if self.advertised_min < 0 else self.advertised_min, self.max_version)


class ApiTable(Struct, frozen=True, eq=False):
    """The APIs that the listeners of brokers, or of controllers, serve."""

    routes: tuple[Route, ...]
    by_key: dict[int, Route] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_key.update({int(route.key): route for route in self.routes})
        assert len(self.by_key) == len(self.routes), "an API is routed twice"


_K = ApiKey

ROUTES: Final[tuple[Route, ...]] = (
    # data
    # librdkafka does not compress if the advertised minimum of Produce is above 0 (KAFKA-18659). Versions 0 to 2 are
    # rejected all the same.
    Route(_K.PRODUCE, "data.produce", 3, 13, RequestScheduling.PIPELINED, advertised_min=0),
    Route(_K.FETCH, "data.fetch", 4, 18, RequestScheduling.CANCELLABLE),
    Route(_K.LIST_OFFSETS, "data.list_offsets", 1, 11),
    Route(_K.DELETE_RECORDS, "data.delete_records", 0, 2),
    Route(_K.INIT_PRODUCER_ID, "data.init_producer_id", 0, 6),
    Route(_K.OFFSET_FOR_LEADER_EPOCH, "data.offset_for_leader_epoch", 2, 4),
    Route(_K.DESCRIBE_PRODUCERS, "data.describe_producers", 0, 0),
    # cluster
    Route(_K.API_VERSIONS, "cluster.api_versions", 0, 4),
    Route(_K.METADATA, "cluster.metadata", 0, 13),
    Route(_K.CREATE_TOPICS, "cluster.create_topics", 2, 7),
    Route(_K.DELETE_TOPICS, "cluster.delete_topics", 1, 6),
    Route(_K.CREATE_PARTITIONS, "cluster.create_partitions", 0, 3),
    Route(_K.DESCRIBE_CONFIGS, "cluster.describe_configs", 1, 4),
    Route(_K.ALTER_CONFIGS, "cluster.alter_configs", 0, 2),
    Route(_K.INCREMENTAL_ALTER_CONFIGS, "cluster.incremental_alter_configs", 0, 1),
    Route(_K.DESCRIBE_CLIENT_QUOTAS, "cluster.describe_client_quotas", 0, 1),
    Route(_K.ALTER_CLIENT_QUOTAS, "cluster.alter_client_quotas", 0, 1),
    Route(_K.LIST_CONFIG_RESOURCES, "cluster.list_config_resources", 0, 1),
    Route(_K.GET_TELEMETRY_SUBSCRIPTIONS, "telemetry.get_telemetry_subscriptions", 0, 0),
    Route(_K.PUSH_TELEMETRY, "telemetry.push_telemetry", 0, 0),
    Route(_K.ALTER_REPLICA_LOG_DIRS, "cluster.alter_replica_log_dirs", 1, 2),
    Route(_K.DESCRIBE_LOG_DIRS, "cluster.describe_log_dirs", 1, 5),
    Route(_K.DESCRIBE_CLUSTER, "cluster.describe_cluster", 0, 2),
    Route(_K.DESCRIBE_TOPIC_PARTITIONS, "cluster.describe_topic_partitions", 0, 0),
    Route(_K.ELECT_LEADERS, "cluster.elect_leaders", 0, 2),
    Route(_K.UPDATE_FEATURES, "cluster.update_features", 0, 2),
    Route(_K.DESCRIBE_QUORUM, "cluster.describe_quorum", 0, 2),
    Route(_K.UNREGISTER_BROKER, "cluster.unregister_broker", 0, 0),
    Route(_K.ALTER_PARTITION_REASSIGNMENTS, "cluster.alter_partition_reassignments", 0, 1),
    Route(_K.LIST_PARTITION_REASSIGNMENTS, "cluster.list_partition_reassignments", 0, 0),
    Route(_K.ADD_RAFT_VOTER, "cluster.add_raft_voter", 0, 1),
    Route(_K.REMOVE_RAFT_VOTER, "cluster.remove_raft_voter", 0, 0),
    Route(_K.DESCRIBE_ACLS, "cluster.describe_acls", 1, 3),
    Route(_K.CREATE_ACLS, "cluster.create_acls", 1, 3),
    Route(_K.DELETE_ACLS, "cluster.delete_acls", 1, 3),
    # authentication: a listener with SASL serves the two itself until the client has authenticated
    Route(_K.SASL_HANDSHAKE, "security.sasl_handshake", 0, 1),
    Route(_K.SASL_AUTHENTICATE, "security.sasl_authenticate", 0, 2),
    Route(_K.DESCRIBE_USER_SCRAM_CREDENTIALS, "security.describe_user_scram_credentials", 0, 0),
    Route(_K.ALTER_USER_SCRAM_CREDENTIALS, "security.alter_user_scram_credentials", 0, 0),
    # delegation tokens; Kafka 4.0 removed version 0
    Route(_K.CREATE_DELEGATION_TOKEN, "security.create_delegation_token", 1, 3),
    Route(_K.RENEW_DELEGATION_TOKEN, "security.renew_delegation_token", 1, 2),
    Route(_K.EXPIRE_DELEGATION_TOKEN, "security.expire_delegation_token", 1, 2),
    Route(_K.DESCRIBE_DELEGATION_TOKEN, "security.describe_delegation_token", 1, 3),
    # transactions
    Route(_K.ADD_PARTITIONS_TO_TXN, "transactions.add_partitions_to_txn", 0, 5),
    Route(_K.ADD_OFFSETS_TO_TXN, "transactions.add_offsets_to_txn", 0, 4),
    Route(_K.END_TXN, "transactions.end_txn", 0, 5),
    Route(_K.WRITE_TXN_MARKERS, "transactions.write_txn_markers", 1, 2),
    Route(_K.TXN_OFFSET_COMMIT, "transactions.txn_offset_commit", 0, 5),
    Route(_K.DESCRIBE_TRANSACTIONS, "transactions.describe_transactions", 0, 0),
    Route(_K.LIST_TRANSACTIONS, "transactions.list_transactions", 0, 2),
    # groups
    Route(_K.FIND_COORDINATOR, "groups.find_coordinator", 0, 6),
    Route(_K.JOIN_GROUP, "groups.join_group", 0, 9),
    Route(_K.SYNC_GROUP, "groups.sync_group", 0, 5),
    Route(_K.HEARTBEAT, "groups.heartbeat", 0, 4),
    Route(_K.LEAVE_GROUP, "groups.leave_group", 0, 5),
    Route(_K.OFFSET_COMMIT, "groups.offset_commit", 2, 10),
    Route(_K.OFFSET_FETCH, "groups.offset_fetch", 1, 10),
    Route(_K.OFFSET_DELETE, "groups.offset_delete", 0, 0),
    Route(_K.DESCRIBE_GROUPS, "groups.describe_groups", 0, 6),
    Route(_K.LIST_GROUPS, "groups.list_groups", 0, 5),
    Route(_K.DELETE_GROUPS, "groups.delete_groups", 0, 2),
    Route(_K.CONSUMER_GROUP_HEARTBEAT, "groups.consumer_group_heartbeat", 0, 1),
    Route(_K.CONSUMER_GROUP_DESCRIBE, "groups.consumer_group_describe", 0, 1),
    Route(_K.SHARE_GROUP_HEARTBEAT, "groups.share_group_heartbeat", 1, 1),
    Route(_K.SHARE_GROUP_DESCRIBE, "groups.share_group_describe", 1, 1),
    Route(_K.DESCRIBE_SHARE_GROUP_OFFSETS, "groups.describe_share_group_offsets", 0, 1),
    Route(_K.ALTER_SHARE_GROUP_OFFSETS, "groups.alter_share_group_offsets", 0, 0),
    Route(_K.DELETE_SHARE_GROUP_OFFSETS, "groups.delete_share_group_offsets", 0, 0),
    # share groups
    Route(_K.SHARE_FETCH, "shares.share_fetch", 1, 2, RequestScheduling.CANCELLABLE),
    Route(_K.SHARE_ACKNOWLEDGE, "shares.share_acknowledge", 1, 2),
    Route(_K.INITIALIZE_SHARE_GROUP_STATE, "shares.initialize_share_group_state", 0, 0),
    Route(_K.READ_SHARE_GROUP_STATE, "shares.read_share_group_state", 0, 0),
    Route(_K.WRITE_SHARE_GROUP_STATE, "shares.write_share_group_state", 0, 1),
    Route(_K.DELETE_SHARE_GROUP_STATE, "shares.delete_share_group_state", 0, 0),
    Route(_K.READ_SHARE_GROUP_STATE_SUMMARY, "shares.read_share_group_state_summary", 0, 1),
    # Barnabas' own: explanations and maintenance (docs/COMPATIBILITY.md)
    Route(_K.EXPLAIN_PARTITION, "maintenance.explain_partition", 0, 0),
    Route(_K.EXPLAIN_GROUP, "maintenance.explain_group", 0, 0),
    Route(_K.DESCRIBE_CLIENTS, "maintenance.describe_clients", 0, 0),
    Route(_K.RUN_MAINTENANCE, "maintenance.run_maintenance", 0, 0, RequestScheduling.PIPELINED),
    # cluster links
    Route(_K.ALTER_LINK, "links.alter_link", 0, 0),
    Route(_K.DESCRIBE_LINKS, "links.describe_links", 0, 0),
    Route(_K.ALTER_MIRRORS, "links.alter_mirrors", 0, 0),
    Route(_K.DESCRIBE_MIRRORS, "links.describe_mirrors", 0, 0),
    Route(_K.READ_LINK, "links.read_link", 0, 0),
    Route(_K.READ_MIRROR_STATE, "links.read_mirror_state", 0, 0, RequestScheduling.PIPELINED),
    Route(_K.WRITE_MIRROR_STATE, "links.write_mirror_state", 0, 0, RequestScheduling.PIPELINED),
)

BROKER_APIS: Final = ApiTable(ROUTES)
