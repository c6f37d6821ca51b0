"""A Fetch with the leader epoch from before a restart is fenced; version 16 returns the new leader (KIP-951)."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.testing import EmbeddedBroker
from tests.system.broker.wire_client import WireClient

TOPIC_IDS_FROM, HINTS_FROM = 13, 16


def test_fetch_with_an_old_leader_epoch_is_fenced_in_every_version(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    with EmbeddedBroker(data_dir=directory) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
    with EmbeddedBroker(data_dir=directory) as broker, WireClient(broker.bootstrap_servers) as client:
        topic = client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12).topics[0]
        leader, epoch = topic.partitions[0].leader_id, topic.partitions[0].leader_epoch
        assert epoch > 0
        port = int(broker.bootstrap_servers.rsplit(":", 1)[1])
        for version in range(9, 18):
            answer = _fetch(client, version, topic.topic_id, epoch - 1)
            partition = answer.responses[0].partitions[0]
            assert ErrorCode(partition.error_code) is ErrorCode.FENCED_LEADER_EPOCH
            hint = (partition.current_leader.leader_id, partition.current_leader.leader_epoch)
            assert hint == ((leader, epoch) if version >= HINTS_FROM else (-1, -1))
            nodes = [(node.node_id, node.port) for node in answer.node_endpoints]
            assert nodes == ([(leader, port)] if version >= HINTS_FROM else [])


def _fetch(client: WireClient, version: int, topic_id: UUID, epoch: int) -> FetchResponse:
    partition = FetchPartition(partition=0, current_leader_epoch=epoch, partition_max_bytes=1000)
    topic = FetchTopic(partitions=[partition])
    if version >= TOPIC_IDS_FROM:
        topic.topic_id = topic_id
    else:
        topic.topic = "t"
    response: FetchResponse = client.call(FetchRequest(max_wait_ms=0, topics=[topic]), version)
    return response
