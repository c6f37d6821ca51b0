"""Share groups over the wire and by the command line: sessions, acknowledgements, offsets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from barnabas.cli.app import build_app
from barnabas.core.errors import ErrorCode
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.messages import share_acknowledge as sa
from barnabas.protocol.wire.messages import share_fetch as sf
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.testing import EmbeddedBroker
from tests.system.broker.wire_client import WireClient

GROUP_RESOURCE = 32


class Member:
    """A member of a share group that sends its requests one by one."""

    def __init__(self, client: WireClient, group: str, member: str, topic_id: UUID) -> None:
        self.client, self.group, self.member, self.topic_id = client, group, member, topic_id
        self.epoch = 0

    def beat(self, topic: str, epoch: int = 0) -> Any:
        return self.client.call(
            ShareGroupHeartbeatRequest(
                group_id=self.group, member_id=self.member, member_epoch=epoch, subscribed_topic_names=[topic]
            ),
            1,
        )

    def fetch(self, *acks: tuple[int, int, int], most: int = 100, wait_ms: int = 0, strict: bool = False) -> Any:
        partition = sf.FetchPartition(
            partition_index=0,
            acknowledgement_batches=[
                sf.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                for first, last, kind in acks
            ],
        )
        request = sf.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=most,
            batch_size=most,
            share_acquire_mode=int(strict),
            topics=[sf.FetchTopic(topic_id=self.topic_id, partitions=[partition])],
        )
        response = self.client.call(request, 2)
        if not response.error_code:
            self.epoch += 1
        return response

    def taken(self, **options: Any) -> list[tuple[int, int, int]]:
        response = self.fetch(**options)
        assert response.error_code == 0, response.error_message
        partitions = [p for topic in response.responses for p in topic.partitions]
        assert [(p.error_code, p.error_message) for p in partitions if p.error_code] == []
        return [(a.first_offset, a.last_offset, a.delivery_count) for p in partitions for a in p.acquired_records]

    def acknowledge(self, *acks: tuple[int, int, int], epoch: int | None = None) -> Any:
        batches = [
            sa.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in acks
        ]
        partition = sa.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        request = sa.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[sa.AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])] if acks else [],
        )
        response = self.client.call(request, 2)
        if not response.error_code and epoch is None:
            self.epoch += 1
        return response


@pytest.fixture
def queue(client: WireClient, topic: str, group: str) -> UUID:
    """A topic with ten records in two batches, and a share group that begins with the first record."""
    created = CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)])
    assert [answer.error_code for answer in client.call(created, 7).topics] == [0]
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=group,
        configs=[AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")],
    )
    altered = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert [answer.error_code for answer in altered] == [0]
    client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6)  # as a client does first
    for _ in range(2):
        produce(client, topic, 5)
    (found,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
    topic_id: UUID = found.topic_id
    return topic_id


def produce(client: WireClient, topic: str, count: int) -> None:
    batch = build_batch([SimpleRecord(None, b"x", 1) for _ in range(count)])
    partition = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )
    assert client.call(request, 9).responses[0].partition_responses[0].error_code == 0


def cli(broker: EmbeddedBroker, *words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(build_app(("share-groups",)), ["share-groups", *words, "-b", broker.bootstrap_servers])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if "--json" in words else result.output


def test_share_session_acquires_and_acknowledges_records(
    client: WireClient, topic: str, group: str, queue: UUID
) -> None:
    member = Member(client, group, "m1", queue)
    joined = member.beat(topic)
    assert joined.error_code == 0
    assert [(t.topic_id, t.partitions) for t in joined.assignment.topic_partitions] == [(queue, [0])]
    assert member.acknowledge((0, 0, 1), epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge((0, 0, 1), epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.taken(most=3) == [(0, 4, 1)]  # the batch that reaches MaxRecords is acquired whole
    assert member.taken(most=3, strict=True) == [(5, 7, 1)]  # unless the request is in record-limit mode
    assert member.acknowledge((0, 2, 1), (3, 4, 2)).responses[0].partitions[0].error_code == 0
    assert member.taken(wait_ms=10_000) == [(3, 4, 2), (8, 9, 1)]
    refused = member.acknowledge((0, 9, 1), (20, 20, 1)).responses[0].partitions[0]
    assert refused.error_code == ErrorCode.INVALID_REQUEST  # all or nothing
    member.epoch = 99
    assert member.fetch().error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge((3, 9, 1), epoch=-1).responses[0].partitions[0].error_code == 0
    member.epoch = 1
    assert member.fetch().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_records_of_a_closed_connection_are_released(
    client: WireClient, connect: Callable[[], WireClient], topic: str, group: str, queue: UUID
) -> None:
    other = connect()
    first, second = Member(client, group, "m1", queue), Member(other, group, "m2", queue)
    first.beat(topic)
    second.beat(topic)
    assert first.taken() == [(0, 9, 1)]
    assert second.taken() == []
    client.socket.close()
    assert second.taken(wait_ms=5_000) == [(0, 9, 2)]  # the delivery counts, since its result is unknown


def test_delayed_share_fetch_acquires_released_records(
    client: WireClient, connect: Callable[[], WireClient], topic: str, group: str, queue: UUID
) -> None:
    first, second = Member(client, group, "m1", queue), Member(connect(), group, "m2", queue)
    first.beat(topic)
    second.beat(topic)
    first.taken()
    second.taken()
    partition = sf.FetchPartition(partition_index=0)
    parked = second.client.send(
        sf.ShareFetchRequest(
            group_id=group,
            member_id="m2",
            share_session_epoch=second.epoch,
            max_wait_ms=10_000,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=100,
            batch_size=100,
            topics=[sf.FetchTopic(topic_id=queue, partitions=[partition])],
        ),
        2,
    )
    first.acknowledge((0, 4, 1), (5, 9, 2))
    response = second.client.receive(parked)
    (acquired,) = response.responses[0].partitions[0].acquired_records
    assert (acquired.first_offset, acquired.last_offset, acquired.delivery_count) == (5, 9, 2)


def test_command_line_lists_and_resets_share_group_offsets(
    broker: EmbeddedBroker, client: WireClient, topic: str, group: str, queue: UUID
) -> None:
    member = Member(client, group, "m1", queue)
    joined = member.beat(topic)
    member.taken(most=5)
    member.acknowledge((0, 3, 1))
    assert {"group": group, "state": "Stable"} in cli(broker, "list", "--json")
    shown = cli(broker, "describe", group, "--json")
    assert shown["members"][0]["partitions"] == [f"{topic}-0"]
    expected = {"topic": topic, "partition": 0, "start": 0, "lag": 6, "leader_epoch": 0}
    assert shown["offsets"] == [expected]
    cli(broker, "reset-offsets", group, "--to", "latest", code=1)  # the group has a member
    member.acknowledge(epoch=-1)
    member.beat(topic, epoch=-1)
    assert joined.member_epoch > 0
    expected["start"] = 4  # what was released with the session was written, and with it where the group stands
    planned = [{"topic": topic, "partition": 0, "from": 4, "to": 10}]
    assert cli(broker, "reset-offsets", group, "--to", "latest", "--dry-run", "--json") == planned
    assert cli(broker, "describe", group, "--json")["offsets"] == [expected]
    assert cli(broker, "reset-offsets", group, "--to", "latest", "--json") == planned
    assert cli(broker, "describe", group, "--json")["offsets"] == [{**expected, "start": 10, "lag": 0}]
    again = Member(client, group, "m2", queue)
    again.beat(topic)
    assert again.taken() == []
    produce(client, topic, 2)
    assert again.taken() == [(10, 11, 1)]
    again.acknowledge(epoch=-1)
    again.beat(topic, epoch=-1)
    assert "deleted the offsets" in cli(broker, "delete-offsets", group, "--topic", topic)
    assert cli(broker, "describe", group, "--json")["offsets"] == []
    assert "deleted" in cli(broker, "delete", group, "--yes")
    assert group not in [g["group"] for g in cli(broker, "list", "--json")]
