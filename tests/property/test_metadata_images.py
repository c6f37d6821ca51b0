"""Properties of the metadata room: an image survives its snapshot, and no run of requests breaks the invariants."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.wire.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.server.metadata.controller.brokers import decide_fence_broker
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.features import bootstrap_records
from barnabas.server.metadata.image.cluster import ClusterImage, MetadataProvenance
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.records.codec import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
    RegisterBrokerRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from barnabas.server.metadata.snapshot import image_records
from tests.configs import controller_config

BROKERS = (1, 2, 3)
NAMES = ("a", "b", "c.d", "c_d")

steps = st.one_of(
    st.builds(
        lambda name, count, factor: CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=factor)]
        ),
        st.sampled_from(NAMES),
        st.integers(-1, 5),
        st.integers(-1, 4),
    ),
    st.builds(lambda name: DeleteTopicsRequest(topic_names=[name]), st.sampled_from(NAMES)),
    st.builds(
        lambda name, count: CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)]
        ),
        st.sampled_from(NAMES),
        st.integers(0, 8),
    ),
    st.builds(
        lambda name, op, value: IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name=name,
                    configs=[AlterableConfig(name="cleanup.policy", config_operation=op, value=value)],
                )
            ]
        ),
        st.sampled_from(NAMES),
        st.integers(0, 3),
        st.sampled_from(["delete", "compact", "compact,delete", "nonsense", ""]),
    ),
    st.builds(lambda kind: ElectLeadersRequest(election_type=kind, topic_partitions=None), st.sampled_from([0, 1])),
    st.tuples(st.sampled_from(["fence", "beat", "shut down"]), st.sampled_from(BROKERS)),
)


def start() -> Controller:
    controller = Controller(controller_config(node_id=1), ClusterImage(cluster_id="c"))
    brokers = [RegisterBrokerRecord(broker_id=number, broker_epoch=number, fenced=False) for number in BROKERS]
    controller.apply(controller.image, [*bootstrap_records(), *brokers])
    return controller


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=25), st.integers(0, 2**32))
def test_no_run_of_requests_breaks_the_cluster(run: list[Any], seed: int) -> None:
    controller = start()
    ctx = DecideContext(now_ms=0, rng=random.Random(seed), settings=controller.settings, version=5)
    log = []
    for step in run:
        before = controller.image
        if isinstance(step, tuple):
            what, broker = step
            if what == "fence":
                decision: Any = decide_fence_broker(before, broker, ctx)
            else:
                beat = BrokerHeartbeatRequest(
                    broker_id=broker,
                    broker_epoch=broker,
                    current_metadata_offset=10**6,
                    want_shut_down=what == "shut down",
                )
                decision = controller.decide(before, beat, ctx)
        else:
            decision = controller.decide(before, step, ctx)
        log += decision.records
        controller.apply(before, decision.records)
        check_invariants(controller.image)
    # A restart is the log applied again; a snapshot is as good as the log.
    replayed = start()
    replayed.apply(replayed.image, log)
    assert replayed.image.same_state_as(controller.image)
    assert restored(controller.image).same_state_as(controller.image)


def check_invariants(image: ClusterImage) -> None:
    assert set(image.topics.by_name) == {topic.name for topic in image.topics.by_id.values()}
    for topic in image.topics:
        assert topic.partitions
        assert image.topics.get_by_id(topic.topic_id) == topic
        for partition in topic.partitions:
            assert set(partition.isr) <= set(partition.replicas)
            assert partition.isr or not partition.has_leader
            assert len(set(partition.replicas)) == len(partition.replicas)
            if partition.has_leader:
                assert partition.leader in partition.isr
                assert image.brokers.is_unfenced(partition.leader)
    for resource in image.configs.by_resource:
        assert resource.name in image.topics, "configs of a topic that does not exist"


def restored(image: ClusterImage) -> ClusterImage:
    delta = ClusterDelta(ClusterImage(cluster_id=image.cluster_id))
    for record in image_records(image):
        delta.apply(decode_record(encode_record(record)))
    return delta.finish(MetadataProvenance())


names = st.text(max_size=5)
small = st.integers(-128, 127)
other_records = st.one_of(
    st.builds(
        ConfigRecord, resource_type=st.sampled_from([2, 4, 16, 32]), resource_name=names, name=names,
        value=st.none() | names,
    ),
    st.builds(
        AccessControlEntryRecord, id=st.uuids(), resource_type=small, resource_name=names, pattern_type=small,
        principal=names, host=names, operation=small, permission_type=small,
    ),
    st.builds(
        UserScramCredentialRecord, name=names, mechanism=st.sampled_from([1, 2]), salt=st.binary(max_size=4),
        stored_key=st.binary(max_size=4), server_key=st.binary(max_size=4), iterations=st.integers(0, 9999),
    ),
    st.builds(
        ClientQuotaRecord,
        entity=st.lists(
            st.builds(EntityData, entity_type=st.sampled_from(["user", "client-id"]), entity_name=st.just("x") | names),
            min_size=1, max_size=1,
        ),
        key=st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]),
        value=st.floats(0, 1e9), remove=st.booleans(),
    ),
    st.builds(
        DelegationTokenRecord, owner=names, requester=names, renewers=st.lists(names, max_size=2),
        issue_timestamp=st.integers(0, 9), max_timestamp=st.integers(0, 9), expiration_timestamp=st.integers(0, 9),
        token_id=names,
    ),
    st.builds(
        RegisterBrokerRecord, broker_id=st.integers(0, 5), incarnation_id=st.uuids(), broker_epoch=st.integers(0, 9),
        rack=st.none() | names, fenced=st.booleans(), in_controlled_shutdown=st.booleans(),
        log_dirs=st.lists(st.uuids(), max_size=2), cordoned_log_dirs=st.none() | st.lists(st.uuids(), max_size=1),
    ),
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(st.lists(other_records, max_size=15), st.lists(other_records, max_size=6))
def test_a_snapshot_gives_an_equal_image_and_differences_lead_from_one_to_the_other(
    first: list[Any], second: list[Any]
) -> None:
    base = ClusterDelta(ClusterImage(cluster_id="c"))
    for record in first:
        base.apply(record)
    image = base.finish(MetadataProvenance(5))
    assert restored(image).same_state_as(image)
    delta = ClusterDelta(image)
    for record in second:
        delta.apply(record)
    after = delta.finish(MetadataProvenance(9))
    found = ClusterDelta.between(image, after)
    assert found.finish(MetadataProvenance(9)).same_state_as(after)
    assert ClusterDelta.between(after, after).is_empty
    assert isinstance(after.topics.by_id.get(UUID(int=1)), type(None))
