"""Hostile, slow and greedy clients: the broker's memory stays bounded, and a well-behaved client is served
meanwhile."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.wire.schema import Request
from barnabas.testing import EmbeddedBroker
from barnabas.testing.process import BrokerProcess
from tests.progress import wait_until
from tests.system.broker.wire_client import WireClient

MB = 1 << 20
HELLO = ApiVersionsRequest(client_software_name="polite", client_software_version="1")
TOPIC, BROKER, GROUP = 2, 4, 32


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "data", settings=("offsets.topic.num.partitions=1",)) as it:
        yield it


@pytest.fixture
def polite(broker: BrokerProcess) -> Iterator[Polite]:
    with Polite(broker.bootstrap_servers) as client:
        yield client


class Polite(threading.Thread):
    """A well-behaved client that sends small requests one after another in a thread, and counts the responses."""

    def __init__(self, address: str) -> None:
        super().__init__(name="polite")
        self.answers = 0
        self.slowest_s = 0.0
        self._client = WireClient(address, timeout_s=60.0)
        self._enough = threading.Event()

    def run(self) -> None:
        while not self._enough.is_set():
            began = time.monotonic()
            assert self._client.call(HELLO, 3).error_code == 0
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self.answers += 1

    def __enter__(self) -> Polite:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self.join(60)
        assert not self.is_alive()
        assert self.answers, "the polite client never got a response"


def peak_bytes(broker: BrokerProcess) -> int:
    """The broker's peak resident memory since `forget_peak`."""
    assert broker.process is not None
    for line in Path(f"/proc/{broker.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def forget_peak(broker: BrokerProcess) -> int:
    """Resets the peak. Returns the broker's present resident memory."""
    assert broker.process is not None
    Path(f"/proc/{broker.process.pid}/clear_refs").write_text("5")
    return broker.resident_bytes()


def big_topic(address: str, name: str, megabytes: int) -> None:
    with WireClient(address) as client:
        client.call(CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]), 7)
        record = SimpleRecord(None, random.Random(1).randbytes(1_000_000), int(time.time() * 1000))
        data = [PartitionProduceData(index=0, records=build_batch([record]))]
        request = ProduceRequest(
            acks=-1, timeout_ms=9000, topic_data=[TopicProduceData(name=name, partition_data=data)]
        )
        for _ in range(megabytes):
            assert client.call(request, 9).responses[0].partition_responses[0].error_code == 0


def fetch(topic: str, *, wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MB)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=50 * MB,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


def test_memory_is_bounded_when_clients_read_no_responses(broker: BrokerProcess, polite: Polite) -> None:
    """60 clients send 200 requests for 30 MB each, and read no response: 360 GB if the broker buffered all."""
    big_topic(broker.bootstrap_servers, "unread", 30)
    before = forget_peak(broker)
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            client = stack.enter_context(WireClient(broker.bootstrap_servers))
            client.raw(b"".join(client.frame(fetch("unread"), 11)[1] for _ in range(200)))
        heard = polite.answers + 200
        while polite.answers < heard:
            assert polite.is_alive()
        assert peak_bytes(broker) - before < 700 * MB


def test_two_thousand_slow_connections_do_not_block_other_clients(broker: BrokerProcess, polite: Polite) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 5000:
        pytest.skip("needs 5,000 file descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 5000), hard))
    host, _, port = broker.bootstrap_servers.rpartition(":")
    before = forget_peak(broker)
    with contextlib.ExitStack() as stack:
        lorises = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(2000)]
        for byte in struct.pack(">i", 1000)[1:] + b"\x00":
            for loris in lorises:
                loris.send(bytes((byte,)))
        answers = polite.answers
        while polite.answers < answers + 100:
            assert polite.is_alive()
    assert peak_bytes(broker) - before < 100 * MB


def test_flood_on_one_connection_does_not_block_other_clients(broker: BrokerProcess, polite: Polite) -> None:
    topics = [CreatableTopic(name=f"flood-{i}", num_partitions=5, replication_factor=1) for i in range(40)]
    with WireClient(broker.bootstrap_servers, timeout_s=60.0) as client:
        client.call(CreateTopicsRequest(topics=topics), 7)
        frames = [client.frame(MetadataRequest(topics=None), 9) for _ in range(1000)]
        sender = threading.Thread(target=client.raw, args=(b"".join(frame for _, frame in frames),))
        sender.start()
        client.receive(frames[0][0])
        answers = polite.answers
        for number, _ in frames[1:]:
            client.receive(number)
        sender.join()
    assert polite.answers - answers >= 20, "other clients were not served during the flood"


@pytest.mark.parametrize(
    ("kind", "names"),
    [(BROKER, ["1"] * 20_000), (TOPIC, ["asked-again"] * 20_000), (GROUP, [f"g{i}" for i in range(50_000)])],
    ids=["broker", "topic", "groups"],
)
def test_describe_configs_response_size_is_limited(broker: BrokerProcess, kind: int, names: list[str]) -> None:
    """A resource takes a few bytes in the request and about 50 KB in the response."""
    before = forget_peak(broker)
    with WireClient(broker.bootstrap_servers, timeout_s=60.0) as client:
        topic = CreatableTopic(name="asked-again", num_partitions=1, replication_factor=1)
        client.call(CreateTopicsRequest(topics=[topic]), 7)
        wanted = [DescribeConfigsResource(resource_type=kind, resource_name=n, configuration_keys=None) for n in names]
        request = DescribeConfigsRequest(resources=wanted, include_synonyms=True, include_documentation=True)
        results = client.call(request, 4).results
    assert len(results) == len(names)
    codes = [ErrorCode(result.error_code) for result in results]
    assert codes[0] is ErrorCode.NONE
    assert codes[-1] is ErrorCode.POLICY_VIOLATION
    assert peak_bytes(broker) - before < 150 * MB


@pytest.mark.parametrize(
    ("build", "version"),
    [
        (lambda: MetadataRequest(topics=[MetadataRequestTopic(name=f"n{i}") for i in range(250_000)]), 9),
        (
            lambda: ListOffsetsRequest(
                topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0)] * 250_000)]
            ),
            5,
        ),
        (
            lambda: CreateTopicsRequest(
                topics=[CreatableTopic(name="t", configs=[CreatableTopicConfig(name="c", value="v" * 100)] * 50_000)]
            ),
            7,
        ),
    ],
    ids=["metadata", "list-offsets", "create-topics"],
)
def test_request_with_an_oversized_list_is_rejected(
    broker: BrokerProcess, build: Callable[[], Request], version: int
) -> None:
    request = build()
    before = forget_peak(broker)
    with WireClient(broker.bootstrap_servers, timeout_s=60.0) as client:
        client.send(request, version)
        assert client.closed_by_peer()
    assert peak_bytes(broker) - before < 64 * MB


def test_delayed_fetches_of_closed_connections_are_cancelled() -> None:
    with EmbeddedBroker() as broker, WireClient(broker.bootstrap_servers) as client:
        topic = CreatableTopic(name="quiet", num_partitions=1, replication_factor=1)
        client.call(CreateTopicsRequest(topics=[topic]), 7)
        gone = [WireClient(broker.bootstrap_servers) for _ in range(50)]
        for each in gone:
            each.send(fetch("quiet", wait_ms=60_000), 11)
        assert broker.node is not None
        assert broker.node.broker is not None
        readers = broker.node.broker.partitions.require("quiet", 0).consumer_fetches
        wait_until(lambda: len(readers) == 50, "50 fetches are delayed", progress=lambda: len(readers))
        for each in gone:
            each.socket.close()
        wait_until(lambda: len(readers) == 0, "all delayed fetches are cancelled", progress=lambda: len(readers))
