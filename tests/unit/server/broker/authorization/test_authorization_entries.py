"""What a client sees if it may use a part of what it asks for: filtered lists, other entries served, nothing leaked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_TOPIC_ID
from barnabas.core.telemetry.log import AUDIT_LOGGER
from barnabas.protocol.security.operations import CLUSTER_OPERATIONS, NOT_ASKED, AclOperation, bit_field
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.wire.codec import encode
from barnabas.protocol.wire.headers import RequestHeader
from barnabas.protocol.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.wire.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.wire.messages.envelope import EnvelopeRequest
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.wire.messages.list_groups import ListGroupsRequest
from barnabas.protocol.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.server.broker.handlers.controller.envelope import write_principal
from tests.logs import messages
from tests.unit.server.broker.authorization.cluster import Cluster, error_codes
from tests.unit.server.broker.authorization.requests import GROUP, OTHER, TOPIC, TRANSACTION, batch

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MISSING = "nowhere"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


# ---- metadata


def metadata(cluster: Cluster, *names: str | None, version: int = 12, **more: Any) -> Any:
    topics = None if names == (None,) else [MetadataRequestTopic(name=name) for name in names]
    if version >= 4:
        more.setdefault("allow_auto_topic_creation", False)
    return cluster.send(MetadataRequest(topics=topics, **more), version)


def shown(response: Any) -> dict[str | None, ErrorCode]:
    return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}


def test_a_list_of_all_topics_leaves_out_the_others(cluster: Cluster) -> None:
    cluster.allow("T:DESCRIBE")
    assert shown(metadata(cluster, None)) == {TOPIC: ErrorCode.NONE}
    cluster.allow()
    assert shown(metadata(cluster, None)) == {}
    assert metadata(cluster, None).brokers


@pytest.mark.parametrize("version", [0, 12])
def test_an_existing_topic_looks_like_a_missing_one(cluster: Cluster, version: int) -> None:
    cluster.allow()
    assert shown(metadata(cluster, TOPIC, MISSING, version=version)) == {TOPIC: REFUSED, MISSING: REFUSED}
    answers = metadata(cluster, TOPIC, version=version).topics
    assert [(answer.topic_id, answer.partitions, answer.is_internal) for answer in answers] == [
        (NO_TOPIC_ID, [], False)
    ]


def test_the_other_topics_of_a_request_are_described(cluster: Cluster) -> None:
    cluster.allow("T:DESCRIBE")
    assert shown(metadata(cluster, OTHER, TOPIC)) == {OTHER: REFUSED, TOPIC: ErrorCode.NONE}


def test_a_topic_by_id_is_refused_without_its_name(cluster: Cluster) -> None:
    cluster.allow()
    topics = [MetadataRequestTopic(name=None, topic_id=cluster.topic_id)]
    found = cluster.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12).topics
    assert [(topic.error_code, topic.name, topic.topic_id) for topic in found] == [(REFUSED, None, cluster.topic_id)]
    unknown = [MetadataRequestTopic(name=None, topic_id=UUID(int=99))]
    found = cluster.send(MetadataRequest(topics=unknown, allow_auto_topic_creation=False), 12).topics
    assert [topic.error_code for topic in found] == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_topic_is_created_on_request_only_with_the_right_to_create_it(cluster: Cluster) -> None:
    cluster.allow("C:DESCRIBE")
    cluster.authorizer.set_acls(*cluster.acls_of("T:DESCRIBE", topic="made"))
    assert shown(metadata(cluster, "made", allow_auto_topic_creation=True)) == {"made": REFUSED}
    cluster.authorizer.set_acls(*cluster.acls_of("T:DESCRIBE", "T:CREATE", topic="made"))
    assert shown(metadata(cluster, "made", allow_auto_topic_creation=True)) == {"made": ErrorCode.NONE}


def test_pages_of_topics_contain_only_what_the_client_may_describe(cluster: Cluster) -> None:
    cluster.allow("T:DESCRIBE")
    every = cluster.send(DescribeTopicPartitionsRequest(topics=[], cursor=None), 0)
    assert shown(every) == {TOPIC: ErrorCode.NONE}
    cursor = Cursor(topic_name=OTHER, partition_index=0)  # a hidden topic, whose name sorts before the other
    rest = cluster.send(DescribeTopicPartitionsRequest(topics=[], cursor=cursor), 0)
    assert shown(rest) == {TOPIC: ErrorCode.NONE}
    both = [TopicRequest(name=TOPIC), TopicRequest(name=OTHER)]
    assert shown(cluster.send(DescribeTopicPartitionsRequest(topics=both, cursor=None), 0)) == {
        TOPIC: ErrorCode.NONE,
        OTHER: REFUSED,
    }
    cluster.allow()
    assert shown(cluster.send(DescribeTopicPartitionsRequest(topics=[], cursor=None), 0)) == {}


# ---- authorized operations


def test_the_operations_are_those_that_the_client_may_do(cluster: Cluster) -> None:
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    cluster.allow("T:READ", "C:DESCRIBE", "C:ALTER")
    found = metadata(cluster, TOPIC, version=10, **asked)
    assert found.topics[0].topic_authorized_operations == bit_field((AclOperation.READ, AclOperation.DESCRIBE))
    assert found.cluster_authorized_operations == bit_field((AclOperation.DESCRIBE, AclOperation.ALTER))
    cluster.allow("T:ALL")
    found = metadata(cluster, TOPIC, version=10, **asked)
    assert found.cluster_authorized_operations == 0  # not even DESCRIBE
    assert metadata(cluster, TOPIC, version=10).topics[0].topic_authorized_operations == NOT_ASKED


def test_describe_cluster_shows_its_operations_to_those_who_may_describe_it(cluster: Cluster) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    cluster.allow()
    found = cluster.send(request, 2)
    assert (found.error_code, found.cluster_authorized_operations) == (ErrorCode.NONE, 0)
    assert found.brokers
    cluster.allow("C:ALL")
    assert cluster.send(request, 2).cluster_authorized_operations == CLUSTER_OPERATIONS


def test_groups_show_their_operations(cluster: Cluster) -> None:
    cluster.allow("G:DELETE")
    found = cluster.send(DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=True), 5).groups[0]
    assert found.authorized_operations in (NOT_ASKED, bit_field((AclOperation.DELETE, AclOperation.DESCRIBE)))


# ---- records


def produce(cluster: Cluster, *names: str, acks: int = -1) -> Any:
    data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch())]) for name in names
    ]
    return cluster.send(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data), 9)


def codes_by_topic(response: Any) -> dict[str, ErrorCode]:
    return {topic.name: ErrorCode(topic.partition_responses[0].error_code) for topic in response.responses}


def test_batches_for_other_topics_are_appended(cluster: Cluster) -> None:
    cluster.allow("T:WRITE")
    # the CRC of the batch is wrong, so an authorized batch is answered with INVALID_RECORD
    assert codes_by_topic(produce(cluster, OTHER, TOPIC)) == {OTHER: REFUSED, TOPIC: ErrorCode.INVALID_RECORD}
    assert codes_by_topic(produce(cluster, MISSING)) == {MISSING: REFUSED}


def test_an_unanswered_produce_request_without_rights_ends_the_connection(cluster: Cluster) -> None:
    cluster.allow()
    with pytest.raises(KafkaError):
        produce(cluster, TOPIC, acks=0)
    cluster.allow("T:WRITE")
    with pytest.raises(KafkaError):
        produce(cluster, TOPIC, OTHER, acks=0)


def fetch(cluster: Cluster, *names: str, session_id: int = 0, epoch: int = -1) -> Any:
    topics = [
        FetchTopic(topic=name, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])
        for name in names
    ]
    request = FetchRequest(
        replica_id=-1, max_bytes=1000, session_id=session_id, session_epoch=epoch, topics=topics, min_bytes=0
    )
    return cluster.send(request, 12)


def test_a_right_that_is_lost_ends_the_reading_of_a_session(cluster: Cluster) -> None:
    """Later requests of a session do not name its partitions."""
    cluster.allow("T:READ")
    opened = fetch(cluster, TOPIC, OTHER, epoch=0)
    codes = {topic.topic: ErrorCode(topic.partitions[0].error_code) for topic in opened.responses}
    assert codes == {TOPIC: ErrorCode.NONE, OTHER: REFUSED}
    cluster.allow()
    later = fetch(cluster, TOPIC, session_id=opened.session_id, epoch=1)
    assert {p.error_code for topic in later.responses for p in topic.partitions} == {REFUSED}


def test_a_missing_topic_cannot_be_told_from_a_hidden_one(cluster: Cluster) -> None:
    cluster.allow()
    found = fetch(cluster, TOPIC, MISSING)
    assert [(topic.topic, topic.partitions[0].error_code) for topic in found.responses] == [
        (TOPIC, REFUSED),
        (MISSING, REFUSED),
    ]


# ---- groups and transactions


def commit(cluster: Cluster, *names: str) -> Any:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")]
    topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in names]
    return cluster.send(OffsetCommitRequest(group_id=GROUP, topics=topics), 8)


def fetched_topics(cluster: Cluster) -> list[str]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    return sorted(topic.name for topic in cluster.send(request, 9).groups[0].topics)


def test_offsets_of_other_topics_are_committed_and_hidden_ones_are_not_listed(cluster: Cluster) -> None:
    cluster.allow("G:READ", "T:READ")
    codes = {topic.name: topic.partitions[0].error_code for topic in commit(cluster, TOPIC, OTHER).topics}
    assert codes == {TOPIC: ErrorCode.NONE, OTHER: REFUSED}
    assert fetched_topics(cluster) == [TOPIC]
    cluster.allow("G:READ")
    assert fetched_topics(cluster) == []


def test_the_list_of_groups_is_filtered(cluster: Cluster) -> None:
    cluster.allow("G:READ", "T:READ")
    commit(cluster, TOPIC)

    def listed() -> list[str]:
        return [group.group_id for group in cluster.send(ListGroupsRequest(), 4).groups]

    assert listed() == [GROUP]
    cluster.allow("C:DESCRIBE")
    assert listed() == [GROUP]
    cluster.allow()
    assert listed() == []


def test_the_list_of_transactions_is_filtered(cluster: Cluster) -> None:
    def listed() -> list[str]:
        states = cluster.send(ListTransactionsRequest(), 0).transaction_states
        return [state.transactional_id for state in states]

    from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest

    cluster.allow("X:WRITE")
    request = InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=1000)
    assert error_codes(cluster.send(request, 4)) == {ErrorCode.NONE}
    assert listed() == [TRANSACTION]
    cluster.allow()
    assert listed() == []


def test_a_regular_expression_finds_only_what_the_client_may_describe(cluster: Cluster) -> None:
    group = "by-regex"
    read_group = cluster.acls_of("G:READ")[0]._replace(resource_name=group)
    cluster.authorizer.set_acls(read_group, *cluster.acls_of("T:READ"))
    beat = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="a-member",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex=f"{TOPIC}|{OTHER}",
        topic_partitions=[],
    )
    found: list[UUID] = []
    while not found:  # the expression is resolved after the first heartbeat
        response = cluster.send(beat, 1)
        assert response.error_code == ErrorCode.NONE
        if response.assignment is not None:
            found = [topic.topic_id for topic in response.assignment.topic_partitions]
        beat = ConsumerGroupHeartbeatRequest(group_id=group, member_id="a-member", member_epoch=response.member_epoch)
    assert found == [cluster.topic_id]


# ---- topics are created and deleted


def create(cluster: Cluster, *names: str, **more: Any) -> Any:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return cluster.send(CreateTopicsRequest(topics=topics, **more), 7).topics


def test_a_prefix_decides_which_topics_may_be_created(cluster: Cluster) -> None:
    cluster.allow("T:CREATE")
    found = {topic.name: topic for topic in create(cluster, TOPIC, "team-x", validate_only=True)}
    assert found["team-x"].error_code == REFUSED
    assert found[TOPIC].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_the_configs_of_a_new_topic_need_a_right_of_their_own(cluster: Cluster) -> None:
    cluster.allow("C:CREATE")
    [topic] = create(cluster, "fresh", validate_only=True)
    assert topic.error_code == ErrorCode.NONE
    assert (topic.topic_config_error_code, topic.configs, topic.num_partitions) == (REFUSED, [], -1)
    cluster.authorizer.set_acls(*cluster.acls_of("C:CREATE", "T:DESCRIBE_CONFIGS", topic="fresh"))
    [topic] = create(cluster, "fresh", validate_only=True)
    assert (topic.topic_config_error_code, topic.num_partitions) == (ErrorCode.NONE, 1)
    assert topic.configs


def delete(cluster: Cluster, **more: Any) -> list[tuple[str | None, UUID, ErrorCode]]:
    found = cluster.send(DeleteTopicsRequest(timeout_ms=1000, **more), 6 if "topics" in more else 5).responses
    return [(topic.name, topic.topic_id, ErrorCode(topic.error_code)) for topic in found]


def test_a_deletion_by_id_shows_the_name_only_to_those_who_may_describe_the_topic(cluster: Cluster) -> None:
    topics = [DeleteTopicState(name=None, topic_id=cluster.topic_id)]
    cluster.allow()
    assert delete(cluster, topics=list(topics)) == [(None, cluster.topic_id, REFUSED)]
    cluster.allow("T:DESCRIBE")
    assert delete(cluster, topics=list(topics)) == [(TOPIC, cluster.topic_id, REFUSED)]


def test_a_deletion_by_name_hides_whether_the_topic_exists(cluster: Cluster) -> None:
    cluster.allow()
    assert delete(cluster, topic_names=[TOPIC, MISSING]) == [
        (TOPIC, NO_TOPIC_ID, REFUSED),
        (MISSING, NO_TOPIC_ID, REFUSED),
    ]


def test_a_topic_is_deleted_with_the_right_to_delete_it(cluster: Cluster) -> None:
    cluster.authorizer.set_acls(*cluster.acls_of("C:CREATE", topic="doomed"))
    assert [topic.error_code for topic in create(cluster, "doomed")] == [ErrorCode.NONE]
    cluster.authorizer.set_acls(*cluster.acls_of("T:DELETE", topic="doomed"))
    found = delete(cluster, topic_names=["doomed", TOPIC])
    assert {name: code for name, _, code in found} == {"doomed": ErrorCode.NONE, TOPIC: REFUSED}


# ---- forwarding


def test_the_controller_authorizes_the_client_behind_the_broker(cluster: Cluster) -> None:
    """The envelope carries the principal. The rights of the broker do not help the client, nor the reverse."""
    header = RequestHeader(api_key=19, api_version=7, correlation_id=1, client_id="c")
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="by-envelope", num_partitions=1, replication_factor=1)], validate_only=True
    )

    def send(principal: KafkaPrincipal) -> Any:
        return cluster.send(
            EnvelopeRequest(
                request_data=encode(header, 2) + encode(request, 7),
                request_principal=write_principal(principal),
                client_host_address=b"\x0a\x00\x00\x01",
            ),
            0,
            to_controller=True,
        )

    from barnabas.protocol.wire.codec import decode
    from barnabas.protocol.wire.messages.create_topics import CreateTopicsResponse

    def code(response: Any) -> ErrorCode:
        assert response.error_code == ErrorCode.NONE
        answer = decode(CreateTopicsResponse, 7, bytes(response.response_data), 5)
        return ErrorCode(answer.topics[0].error_code)

    alice = KafkaPrincipal("User", "alice")
    cluster.allow("C:CLUSTER_ACTION", "C:CREATE")  # the broker, which is ANONYMOUS here, may create topics
    assert code(send(alice)) == REFUSED
    broker = cluster.acls_of("C:CLUSTER_ACTION")
    client = [acl._replace(principal="User:alice", host="10.0.0.1") for acl in cluster.acls_of("C:CREATE")]
    cluster.authorizer.set_acls(*broker, *client)
    assert code(send(alice)) == ErrorCode.NONE
    cluster.authorizer.set_acls(*broker, *(acl._replace(host="10.0.0.2") for acl in client))
    assert code(send(alice)) == REFUSED
    cluster.authorizer.set_acls(*client)
    assert send(alice).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# ---- order and the audit log


def test_a_request_without_rights_is_refused_before_it_is_decoded(cluster: Cluster) -> None:
    """The body of this request would be an error of the protocol, which closes the connection."""
    cluster.allow()
    found = cluster.send(DescribeAclsRequest(resource_type_filter=99, operation=99, permission_type=99), 3)
    assert found.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_probing_checks_are_not_written_to_the_audit_log(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.allow()
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        metadata(cluster, None)
        cluster.send(ListGroupsRequest(), 4)
        assert messages(caplog, AUDIT_LOGGER) == []
        metadata(cluster, TOPIC)
    assert messages(caplog, AUDIT_LOGGER) == [
        "Principal = User:ANONYMOUS is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = "
        f"Topic:LITERAL:{TOPIC} for request = Metadata with resourceRefCount = 1 based on rule DefaultDeny"
    ]
