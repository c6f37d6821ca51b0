"""Table: the largest request of each API that brokers serve.

Each row builds a request of so many entries as the broker decodes: `REQUEST_ELEMENTS_MAX` of the codec, in at most
`PLAIN_REQUEST_BYTES_MAX` of the dispatcher, or `_CARRIED_BYTES` for an API that carries data of the user.
`shapes.py` has attacks by APIs without a list whose work grows with what earlier requests have built. `NOT_ATTACKED`
names the other APIs, and why. `tests/unit/bench` refuses an API that is in neither table.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tests.system.broker.wire_client import WireClient

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.compile_decoder import REQUEST_ELEMENTS_MAX
from barnabas.protocol.wire.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_link,
    alter_mirrors,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_client_quotas,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_links,
    describe_log_dirs,
    describe_mirrors,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    explain_group,
    explain_partition,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    read_share_group_state,
    read_share_group_state_summary,
    run_maintenance,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
    update_features,
    write_share_group_state,
    write_txn_markers,
)
from barnabas.protocol.wire.schema import MessageStruct, Request
from barnabas.server.broker.dispatch import PLAIN_REQUEST_BYTES_MAX
from bench.attacks.registry import Steps, attack

TOPIC = "attacked"
ANSWER_S = 600.0
WIDE = 5_000
"""The partitions of the attacked topic."""
MANY = 5_000
"""The topics, groups or transactional ids that are prepared for an API that lists or describes them."""
_CARRIED_BYTES = 16 * 1024 * 1024
_PROBE = 200


@dataclass
class World:
    """The broker that is attacked, as it was prepared."""

    client: WireClient
    topic_id: UUID = field(default_factory=lambda: UUID(int=0))

    def find_topic(self) -> None:
        """Set the id of the attacked topic."""
        described = self.client.call(metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)]), 12)
        self.topic_id = described.topics[0].topic_id


@dataclass(frozen=True)
class Largest:
    """The largest request of one API. `build` makes a request for a topic id, with so many entries."""

    version: int
    build: Callable[[UUID, int], Request]
    prepare: Callable[[World], None] = lambda world: None
    bytes_max: int = PLAIN_REQUEST_BYTES_MAX
    entries_max: int = REQUEST_ELEMENTS_MAX


def create(client: WireClient, names: list[str], partitions: int = 1) -> str:
    """Create topics; a line about the answer."""
    topics = [
        create_topics.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names
    ]
    response = client.call(create_topics.CreateTopicsRequest(topics=topics, timeout_ms=120_000), 7)
    return f"{len(response.topics)} topics, errors {sorted({topic.error_code for topic in response.topics})}"


def commit(count: int, group_id: str = "g") -> offset_commit.OffsetCommitRequest:
    """An OffsetCommit of so many entries for one partition."""
    partitions = [
        offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=index, committed_metadata="")
        for index in range(count)
    ]
    topic = offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
    return offset_commit.OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=[topic])


def with_group(address: str, partitions: int = 1) -> WireClient:
    """A client of a broker that has the topic and serves the group `g`."""
    client = WireClient(address, timeout_s=ANSWER_S)
    create(client, [TOPIC], partitions)
    for _ in range(600):
        client.call(find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        if client.call(commit(1), 8).topics[0].partitions[0].error_code == ErrorCode.NONE:
            return client
        time.sleep(0.1)
    raise RuntimeError("the broker does not become the coordinator of the group")


def answer(client: WireClient, request: Request, version: int) -> str:
    """Send the request; a line about the answer."""
    began = time.monotonic()
    try:
        client.call(request, version)
    except ConnectionError:
        return "connection closed"
    return f"answered after {time.monotonic() - began:.1f} s"


def _groups(world: World) -> None:
    """Groups that have one offset each."""
    for first in range(0, MANY, 500):
        sent = [world.client.send(commit(1, f"x{index}"), 8) for index in range(first, first + 500)]
        for number in sent:
            world.client.receive(number)


def with_topics(world: World) -> None:
    for first in range(0, MANY, 1000):
        create(world.client, [f"x{index}" for index in range(first, first + 1000)])


def with_transactions(world: World, name_of: Callable[[int], str] = "x{}".format, count: int = MANY) -> None:
    """So many transactional ids, without transactions."""
    find = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[name_of(0)])

    def init(name: str) -> Request:
        return init_producer_id.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000)

    for _ in range(600):
        world.client.call(find, 4)
        if world.client.call(init(name_of(0)), 4).error_code == ErrorCode.NONE:
            break
        time.sleep(0.1)
    for first in range(1, count, 500):
        sent = [world.client.send(init(name_of(index)), 4) for index in range(first, min(first + 500, count))]
        for number in sent:
            world.client.receive(number)


def with_shares(world: World) -> None:
    """Wait until the share coordinator serves the partitions of the topic."""
    topic_id = urlsafe_b64encode(world.topic_id.bytes).decode().rstrip("=")
    key = f"g:{topic_id}:0"
    for _ in range(600):
        found = world.client.call(find_coordinator.FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6)
        if found.coordinators[0].error_code == ErrorCode.NONE:
            state = initialize_share_group_state
            data = state.InitializeStateData(
                topic_id=world.topic_id, partitions=[state.PartitionData(partition=0, state_epoch=1, start_offset=0)]
            )
            request = state.InitializeShareGroupStateRequest(group_id="g", topics=[data])
            if world.client.call(request, 0).results[0].partitions[0].error_code == ErrorCode.NONE:
                return
        time.sleep(0.1)
    raise RuntimeError("the share coordinator does not become available")


def _names(count: int) -> list[str]:
    return [f"x{index}" for index in range(count)]


def _wide(count: int) -> list[int]:
    return [index % WIDE for index in range(count)]


def _acknowledged(count: int) -> list[share_acknowledge.AcknowledgePartition]:
    batch = share_acknowledge.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    return [
        share_acknowledge.AcknowledgePartition(partition_index=index, acknowledgement_batches=[batch])
        for index in range(count)
    ]


def _markers(count: int) -> list[write_txn_markers.WritableTxnMarker]:
    topic = write_txn_markers.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=_wide(count))
    return [write_txn_markers.WritableTxnMarker(producer_id=1, producer_epoch=0, topics=[topic])]


def _join(topic_id: UUID, count: int) -> Request:
    protocol = join_group.JoinGroupRequestProtocol
    return join_group.JoinGroupRequest(
        group_id="j", session_timeout_ms=30_000, rebalance_timeout_ms=30_000, protocol_type="consumer",
        protocols=[protocol(name=f"x{index}", metadata=bytes(1_000)) for index in range(count)],
    )  # fmt: skip


_K = ApiKey
TOPIC_RESOURCE: Final = 2

LARGEST: dict[ApiKey, Largest] = {
    _K.PRODUCE: Largest(9, lambda t, n: produce.ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[
        produce.TopicProduceData(name=TOPIC, partition_data=[
            produce.PartitionProduceData(index=index, records=b"") for index in range(n)])]), bytes_max=_CARRIED_BYTES),
    _K.FETCH: Largest(11, lambda t, n: fetch.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[fetch.FetchTopic(
        topic=TOPIC, partitions=[fetch.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)
                                 for index in range(n)])])),
    _K.LIST_OFFSETS: Largest(7, lambda t, n: list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[
            list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1) for _ in range(n)])])),
    _K.DELETE_RECORDS: Largest(2, lambda t, n: delete_records.DeleteRecordsRequest(timeout_ms=1_000, topics=[
        delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[
            delete_records.DeleteRecordsPartition(partition_index=index, offset=0) for index in _wide(n)])])),
    _K.OFFSET_FOR_LEADER_EPOCH: Largest(3, lambda t, n: offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[
        offset_for_leader_epoch.OffsetForLeaderTopic(topic=TOPIC, partitions=[
            offset_for_leader_epoch.OffsetForLeaderPartition(partition=index, leader_epoch=0)
            for index in _wide(n)])])),
    _K.DESCRIBE_PRODUCERS: Largest(0, lambda t, n: describe_producers.DescribeProducersRequest(topics=[
        describe_producers.TopicRequest(name=TOPIC, partition_indexes=_wide(n))])),
    _K.METADATA: Largest(8, lambda t, n: metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name) for name in _names(n)], allow_auto_topic_creation=False)),
    _K.CREATE_TOPICS: Largest(7, lambda t, n: create_topics.CreateTopicsRequest(timeout_ms=60_000, topics=[
        create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in _names(n)])),
    _K.DELETE_TOPICS: Largest(5, lambda t, n: delete_topics.DeleteTopicsRequest(
        timeout_ms=60_000, topic_names=_names(n)), with_topics),
    _K.CREATE_PARTITIONS: Largest(3, lambda t, n: create_partitions.CreatePartitionsRequest(timeout_ms=60_000, topics=[
        create_partitions.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in _names(n)]),
        with_topics),
    _K.DESCRIBE_CONFIGS: Largest(4, lambda t, n: describe_configs.DescribeConfigsRequest(resources=[
        describe_configs.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=None) for _ in range(n)])),
    _K.ALTER_CONFIGS: Largest(2, lambda t, n: alter_configs.AlterConfigsRequest(resources=[
        alter_configs.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[
            alter_configs.AlterableConfig(name="retention.ms", value="1")]) for name in _names(n)]), with_topics),
    _K.INCREMENTAL_ALTER_CONFIGS: Largest(1, lambda t, n: incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[incremental_alter_configs.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configs=[incremental_alter_configs.AlterableConfig(
                name="retention.ms", config_operation=0, value="1")]) for name in _names(n)]), with_topics),
    _K.LIST_CONFIG_RESOURCES: Largest(1, lambda t, n: list_config_resources.ListConfigResourcesRequest(
        resource_types=[TOPIC_RESOURCE] * n), with_topics),
    _K.ALTER_REPLICA_LOG_DIRS: Largest(2, lambda t, n: alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[
        alter_replica_log_dirs.AlterReplicaLogDir(path="/nowhere", topics=[
            alter_replica_log_dirs.AlterReplicaLogDirTopic(name=TOPIC, partitions=_wide(n))])])),
    _K.DESCRIBE_LOG_DIRS: Largest(4, lambda t, n: describe_log_dirs.DescribeLogDirsRequest(topics=[
        describe_log_dirs.DescribableLogDirTopic(topic=TOPIC, partitions=_wide(n))])),
    _K.DESCRIBE_TOPIC_PARTITIONS: Largest(0, lambda t, n: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=name) for name in _names(n)]), with_topics),
    _K.ELECT_LEADERS: Largest(2, lambda t, n: elect_leaders.ElectLeadersRequest(topic_partitions=[
        elect_leaders.TopicPartitions(topic=TOPIC, partitions=_wide(n))])),
    _K.UPDATE_FEATURES: Largest(2, lambda t, n: update_features.UpdateFeaturesRequest(feature_updates=[
        update_features.FeatureUpdateKey(feature=name, max_version_level=1) for name in _names(n)])),
    _K.DESCRIBE_QUORUM: Largest(2, lambda t, n: describe_quorum.DescribeQuorumRequest(topics=[
        describe_quorum.TopicData(topic_name="__cluster_metadata", partitions=[
            describe_quorum.PartitionData(partition_index=0) for _ in range(n)])])),
    _K.ALTER_PARTITION_REASSIGNMENTS: Largest(0, lambda t, n:
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[
            alter_partition_reassignments.ReassignableTopic(name=TOPIC, partitions=[
                alter_partition_reassignments.ReassignablePartition(partition_index=index, replicas=[1])
                for index in range(n)])])),
    _K.LIST_PARTITION_REASSIGNMENTS: Largest(0, lambda t, n:
        list_partition_reassignments.ListPartitionReassignmentsRequest(topics=[
            list_partition_reassignments.ListPartitionReassignmentsTopics(name=TOPIC, partition_indexes=_wide(n))])),
    _K.ADD_PARTITIONS_TO_TXN: Largest(3, lambda t, n: add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x0", v3_and_below_producer_id=0, v3_and_below_producer_epoch=0,
        v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=_wide(n))]),
        with_transactions),
    _K.WRITE_TXN_MARKERS: Largest(1, lambda t, n: write_txn_markers.WriteTxnMarkersRequest(markers=_markers(n))),
    _K.TXN_OFFSET_COMMIT: Largest(3, lambda t, n: txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="x0", group_id="g", producer_id=0, producer_epoch=0, topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[
                txn_offset_commit.TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=1, committed_metadata="") for index in _wide(n)])]),
        bytes_max=_CARRIED_BYTES, entries_max=10_000),
    _K.DESCRIBE_TRANSACTIONS: Largest(0, lambda t, n: describe_transactions.DescribeTransactionsRequest(
        transactional_ids=_names(n)), with_transactions),
    _K.LIST_TRANSACTIONS: Largest(1, lambda t, n: list_transactions.ListTransactionsRequest(
        producer_id_filters=list(range(n))), with_transactions),
    _K.FIND_COORDINATOR: Largest(4, lambda t, n: find_coordinator.FindCoordinatorRequest(
        key_type=0, coordinator_keys=_names(n))),
    _K.JOIN_GROUP: Largest(5, _join, bytes_max=_CARRIED_BYTES),
    _K.SYNC_GROUP: Largest(3, lambda t, n: sync_group.SyncGroupRequest(
        group_id="g", generation_id=1, member_id="m", assignments=[
            sync_group.SyncGroupRequestAssignment(member_id=name, assignment=bytes(100)) for name in _names(n)]),
        bytes_max=_CARRIED_BYTES),
    _K.LEAVE_GROUP: Largest(5, lambda t, n: leave_group.LeaveGroupRequest(group_id="g", members=[
        leave_group.MemberIdentity(member_id=name) for name in _names(n)])),
    _K.OFFSET_COMMIT: Largest(8, lambda t, n: commit(n), bytes_max=_CARRIED_BYTES, entries_max=10_000),
    _K.OFFSET_FETCH: Largest(8, lambda t, n: offset_fetch.OffsetFetchRequest(groups=[
        offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[
            offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(n)))])])),
    _K.OFFSET_DELETE: Largest(0, lambda t, n: offset_delete.OffsetDeleteRequest(group_id="g", topics=[
        offset_delete.OffsetDeleteRequestTopic(name=TOPIC, partitions=[
            offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in range(n)])])),
    _K.DESCRIBE_GROUPS: Largest(5, lambda t, n: describe_groups.DescribeGroupsRequest(groups=_names(n)), _groups),
    _K.LIST_GROUPS: Largest(5, lambda t, n: list_groups.ListGroupsRequest(states_filter=_names(n)), _groups),
    _K.DELETE_GROUPS: Largest(2, lambda t, n: delete_groups.DeleteGroupsRequest(groups_names=_names(n)), _groups),
    _K.CONSUMER_GROUP_HEARTBEAT: Largest(1, lambda t, n: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="c", member_id="m" * 22, rebalance_timeout_ms=60_000, topic_partitions=[],
        subscribed_topic_names=_names(n)), with_topics, bytes_max=_CARRIED_BYTES),
    _K.CONSUMER_GROUP_DESCRIBE: Largest(1, lambda t, n: consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=_names(n)), _groups),
    _K.SHARE_GROUP_HEARTBEAT: Largest(1, lambda t, n: share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id="s", member_id="m" * 22, subscribed_topic_names=_names(n)), with_topics),
    _K.SHARE_GROUP_DESCRIBE: Largest(1, lambda t, n: share_group_describe.ShareGroupDescribeRequest(
        group_ids=_names(n)), _groups),
    _K.DESCRIBE_SHARE_GROUP_OFFSETS: Largest(0, lambda t, n:
        describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[
            describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id="s", topics=[
                describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
                    topic_name=TOPIC, partitions=_wide(n))])]), with_shares),
    _K.ALTER_SHARE_GROUP_OFFSETS: Largest(0, lambda t, n: alter_share_group_offsets.AlterShareGroupOffsetsRequest(
        group_id="s", topics=[alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
            topic_name=TOPIC, partitions=[alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(
                partition_index=index, start_offset=0) for index in range(n)])]), with_shares),
    _K.DELETE_SHARE_GROUP_OFFSETS: Largest(0, lambda t, n: delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
        group_id="s", topics=[delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
                              for name in _names(n)])),
    _K.SHARE_FETCH: Largest(1, lambda t, n: share_fetch.ShareFetchRequest(
        group_id="s", member_id="m" * 22, max_records=1, batch_size=1, topics=[share_fetch.FetchTopic(
            topic_id=t, partitions=[share_fetch.FetchPartition(partition_index=index)
                                             for index in range(n)])]), with_shares),
    _K.SHARE_ACKNOWLEDGE: Largest(1, lambda t, n: share_acknowledge.ShareAcknowledgeRequest(
        group_id="s", member_id="m" * 22, share_session_epoch=1, topics=[share_acknowledge.AcknowledgeTopic(
            topic_id=t, partitions=_acknowledged(n))]), with_shares),
    _K.INITIALIZE_SHARE_GROUP_STATE: Largest(0, lambda t, n:
        initialize_share_group_state.InitializeShareGroupStateRequest(group_id="g", topics=[
            initialize_share_group_state.InitializeStateData(topic_id=t, partitions=[
                initialize_share_group_state.PartitionData(partition=index, state_epoch=1, start_offset=0)
                for index in range(n)])]), with_shares),
    _K.READ_SHARE_GROUP_STATE: Largest(0, lambda t, n: read_share_group_state.ReadShareGroupStateRequest(
        group_id="g", topics=[read_share_group_state.ReadStateData(topic_id=t, partitions=[
            read_share_group_state.PartitionData(partition=0, leader_epoch=0) for _ in range(n)])]),
        with_shares),
    _K.WRITE_SHARE_GROUP_STATE: Largest(0, lambda t, n: write_share_group_state.WriteShareGroupStateRequest(
        group_id="g", topics=[write_share_group_state.WriteStateData(topic_id=t, partitions=[
            write_share_group_state.PartitionData(
                partition=0, state_epoch=1, leader_epoch=0, start_offset=0, state_batches=[
                    write_share_group_state.StateBatch(first_offset=2 * index, last_offset=2 * index, delivery_state=2,
                                                       delivery_count=1) for index in range(n)])])]),
        with_shares),
    _K.DELETE_SHARE_GROUP_STATE: Largest(0, lambda t, n: delete_share_group_state.DeleteShareGroupStateRequest(
        group_id="g", topics=[delete_share_group_state.DeleteStateData(topic_id=t, partitions=[
            delete_share_group_state.PartitionData(partition=index) for index in range(n)])]), with_shares),
    _K.READ_SHARE_GROUP_STATE_SUMMARY: Largest(0, lambda t, n:
        read_share_group_state_summary.ReadShareGroupStateSummaryRequest(group_id="g", topics=[
            read_share_group_state_summary.ReadStateSummaryData(topic_id=t, partitions=[
                read_share_group_state_summary.PartitionData(partition=0, leader_epoch=0) for _ in range(n)])]),
        with_shares),
    _K.EXPLAIN_PARTITION: Largest(0, lambda t, n: explain_partition.ExplainPartitionRequest(topics=[
        explain_partition.TopicRequest(name=TOPIC, partition_indexes=_wide(n))])),
    _K.EXPLAIN_GROUP: Largest(0, lambda t, n: explain_group.ExplainGroupRequest(group_ids=_names(n)), _groups),
    _K.RUN_MAINTENANCE: Largest(0, lambda t, n: run_maintenance.RunMaintenanceRequest(dry_run=True, topics=[
        run_maintenance.TopicRequest(name=TOPIC, partition_indexes=_wide(n))])),
    _K.ALTER_LINK: Largest(0, lambda t, n: alter_link.AlterLinkRequest(
        link=alter_link.LinkData(name="l", bootstrap_servers="127.0.0.1:1", topics=_names(n)))),
    _K.ALTER_MIRRORS: Largest(0, lambda t, n: alter_mirrors.AlterMirrorsRequest(
        link="l", operation=1, topics=_names(n), validate_only=True)),
    _K.DESCRIBE_LINKS: Largest(0, lambda t, n: describe_links.DescribeLinksRequest(names=_names(n))),
    _K.DESCRIBE_MIRRORS: Largest(0, lambda t, n: describe_mirrors.DescribeMirrorsRequest(links=_names(n))),
    _K.CREATE_ACLS: Largest(3, lambda t, n: create_acls.CreateAclsRequest(creations=[
        create_acls.AclCreation(resource_type=TOPIC_RESOURCE, resource_name=name, principal="User:a", host="*",
                                operation=3, permission_type=3) for name in _names(n)])),
    _K.DELETE_ACLS: Largest(3, lambda t, n: delete_acls.DeleteAclsRequest(filters=[
        delete_acls.DeleteAclsFilter(resource_type_filter=TOPIC_RESOURCE, resource_name_filter=name, operation=3,
                                     permission_type=3) for name in _names(n)])),
    _K.DESCRIBE_CLIENT_QUOTAS: Largest(1, lambda t, n: describe_client_quotas.DescribeClientQuotasRequest(components=[
        describe_client_quotas.ComponentData(entity_type=name, match_type=0, match="a") for name in _names(n)])),
    _K.ALTER_CLIENT_QUOTAS: Largest(1, lambda t, n: alter_client_quotas.AlterClientQuotasRequest(entries=[
        alter_client_quotas.EntryData(
            entity=[alter_client_quotas.EntityData(entity_type="user", entity_name=name)],
            ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1000.0)]) for name in _names(n)])),
    _K.CREATE_DELEGATION_TOKEN: Largest(3, lambda t, n: create_delegation_token.CreateDelegationTokenRequest(renewers=[
        create_delegation_token.CreatableRenewers(principal_type="User", principal_name=name) for name in _names(n)])),
    _K.DESCRIBE_DELEGATION_TOKEN: Largest(3, lambda t, n:
        describe_delegation_token.DescribeDelegationTokenRequest(owners=[
            describe_delegation_token.DescribeDelegationTokenOwner(principal_type="User", principal_name=name)
            for name in _names(n)])),
    _K.DESCRIBE_USER_SCRAM_CREDENTIALS: Largest(0, lambda t, n:
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=[
            describe_user_scram_credentials.UserName(name=name) for name in _names(n)])),
    _K.ALTER_USER_SCRAM_CREDENTIALS: Largest(0, lambda t, n:
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(upsertions=[
            alter_user_scram_credentials.ScramCredentialUpsertion(
                name=name, mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32))
            for name in _names(n)])),
}  # fmt: skip

_NO_LIST: Final = "The request has no list; its work does not grow with its size."

NOT_ATTACKED: dict[ApiKey, str] = {
    _K.API_VERSIONS: "The request has no list, and the response lists the APIs.",
    _K.DESCRIBE_CLUSTER: "The request has no list, and the response lists the nodes of the cluster.",
    _K.UNREGISTER_BROKER: _NO_LIST,
    _K.ADD_RAFT_VOTER: "The request is compared with a running node before its list of listeners is read.",
    _K.REMOVE_RAFT_VOTER: _NO_LIST,
    _K.SASL_HANDSHAKE: "The request has no list, and the response lists the mechanisms.",
    _K.SASL_AUTHENTICATE: _NO_LIST,
    _K.DESCRIBE_ACLS: "The request has no list.",
    _K.DESCRIBE_CLIENTS: "The request has no list, and the response at most 2,000 rows.",
    _K.RENEW_DELEGATION_TOKEN: _NO_LIST,
    _K.EXPIRE_DELEGATION_TOKEN: _NO_LIST,
    _K.READ_LINK: _NO_LIST,
    _K.READ_MIRROR_STATE: _NO_LIST,
    _K.WRITE_MIRROR_STATE: _NO_LIST,
    _K.HEARTBEAT: "The request has no list, and looks up one member.",
    _K.GET_TELEMETRY_SUBSCRIPTIONS: _NO_LIST,
    _K.PUSH_TELEMETRY: "The metrics are read in a thread, with at most 100,000 fields.",
}


def entries_of(row: Largest) -> int:
    """So many entries does the broker decode."""
    small, large = row.build(UUID(int=1), _PROBE), row.build(UUID(int=1), 2 * _PROBE)
    size, entry_bytes = _linear(wire_bytes(small, row.version), wire_bytes(large, row.version))
    others, elements = _linear(element_count(small), element_count(large))
    return min(
        (row.bytes_max - size) // (entry_bytes + 5),  # later entries have longer numbers and names
        (REQUEST_ELEMENTS_MAX - others) // elements,
        row.entries_max,
    )


def _linear(small: int, large: int) -> tuple[int, int]:
    """What a request without entries has, and what each entry adds."""
    each = -(-(large - small) // _PROBE)
    return small - each * _PROBE, each


def wire_bytes(request: Request, version: int) -> int:
    """The size of the request's frame."""
    _, parts = ClientConnection("probe").send(request, version)
    return sum(len(part) for part in parts)


def element_count(value: object) -> int:
    """The elements of all lists in a message, as the decoder counts them."""
    if isinstance(value, list):
        return len(value) + sum(element_count(element) for element in value)
    if isinstance(value, MessageStruct):
        return sum(element_count(getattr(value, name.name)) for name in value.__schema__.fields)
    return 0


def run_largest(row: Largest) -> Callable[[str], Steps]:
    def run(address: str) -> Steps:
        world = World(with_group(address, WIDE))
        world.find_topic()
        row.prepare(world)
        request = row.build(world.topic_id, entries_of(row))
        yield
        return answer(world.client, request, row.version)

    return run


for _api, _row in LARGEST.items():
    _name = APIS[_api].name
    attack(f"largest-{_name}", f"the largest {_name} request", api=_api)(run_largest(_row))
