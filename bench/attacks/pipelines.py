"""Table: attacks by many connections that send requests without waiting for the responses."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import statistics
import threading
import time
from collections.abc import Callable
from typing import Final
from urllib.request import urlopen
from uuid import UUID

from tests.system.broker.wire_client import WireClient

from barnabas.core.ids import CONSUMER_REPLICA_ID
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType, compress
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.protocol.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.wire.messages.push_telemetry import PushTelemetryRequest
from bench.attacks.largest import ANSWER_S, LARGEST, entries_of, with_group
from bench.attacks.records import MB, TOPIC, create, produce
from bench.attacks.registry import PAGES, Steps, attack

CONNECTIONS: Final = 64
PARTITIONS: Final = 8
SECONDS: Final = 6.0
WIDE: Final = 10_000
HALF: Final = 200
NEWCOMERS_EVERY_S: Final = 0.05


class _Pipeline:
    """One connection that always has requests on the way."""

    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setblocking(False)
        self._request = request
        self._rest = memoryview(request)

    def go_on(self, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                self.socket.recv(1 << 20)
            if events & selectors.EVENT_WRITE:
                self._rest = self._rest[self.socket.send(self._rest) :] or memoryview(self._request)
        except BlockingIOError:
            pass


Frames = Callable[[int], bytes]
"""The bytes that a connection sends again and again, by the number of the connection."""


def pipelined(name: str, what: str, *settings: str) -> Callable[[Callable[[str], Frames]], Callable[[str], Frames]]:
    """Register an attack by CONNECTIONS connections that always have requests on the way. The decorated function
    prepares the broker. Meanwhile a newcomer connects and asks for metadata, again and again: the answer has its
    latencies."""

    def add(prepare: Callable[[str], Frames]) -> Callable[[str], Frames]:
        def run(address: str) -> Steps:
            frames = prepare(address)
            host, port = address.rsplit(":", 1)
            pipelines = [_Pipeline((host, int(port)), frames(index)) for index in range(CONNECTIONS)]
            yield
            return _keep_busy(address, pipelines)

        attack(name, f"{CONNECTIONS} connections, each with {what} on the way at any time", *settings)(run)
        return prepare

    return add


def _keep_busy(address: str, pipelines: list[_Pipeline]) -> str:
    selector = selectors.DefaultSelector()
    for pipeline in pipelines:
        selector.register(pipeline.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, pipeline)
    latencies: list[float] = []
    end = time.monotonic() + SECONDS

    def connect() -> None:
        while (before := time.monotonic()) < end:
            with WireClient(address, timeout_s=600.0) as newcomer:
                newcomer.call(MetadataRequest(topics=[]), 5)
            latencies.append((time.monotonic() - before) * 1000)
            time.sleep(NEWCOMERS_EVERY_S)

    newcomers = threading.Thread(target=connect)
    newcomers.start()
    while time.monotonic() < end:
        for key, events in selector.select(NEWCOMERS_EVERY_S):
            try:
                key.data.go_on(events)
            except ConnectionError:
                selector.unregister(key.fileobj)
    closed = len(pipelines) - len(selector.get_map())
    for pipeline in pipelines:
        pipeline.socket.close()
    newcomers.join()
    worst = sorted(latencies)[int(len(latencies) * 0.99)]
    return (
        f"a newcomer's first answer: median {statistics.median(latencies):.0f} ms, p99 {worst:.0f} ms"
        + f"; {closed} connections were closed" * (closed > 0)
    )


@pipelined("pipelined-fetches", "64 small Fetch requests")
def fetches(address: str) -> Frames:
    client = WireClient(address, timeout_s=ANSWER_S)
    create(client, PARTITIONS)
    partitions = [FetchPartition(partition=index, partition_max_bytes=1_000) for index in range(PARTITIONS)]
    fetch = FetchRequest(
        replica_id=CONSUMER_REPLICA_ID,
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=partitions)],
    )
    frame = client.frame(fetch, 11)[1] * 64
    return lambda index: frame


@pipelined("pipelined-metadata", f"64 Metadata requests for all of {WIDE} partitions")
def wide_metadata(address: str) -> Frames:
    client = WireClient(address, timeout_s=ANSWER_S)
    create(client, WIDE)
    frame = client.frame(MetadataRequest(topics=None), 9)[1] * 64
    return lambda index: frame


@pipelined("pipelined-offsets", "OffsetFetch requests of 60,000 entries")
def offsets(address: str) -> Frames:
    client = with_group(address)
    topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(60_000)))
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
    frame = client.frame(request, 8)[1]
    return lambda index: frame


@pipelined("pipelined-bombs", "16 zstd batches of 10 KB, which inflate to 70 MB each and are refused,")
def bombs(address: str) -> Frames:
    client = WireClient(address, timeout_s=ANSWER_S)
    create(client, 1)
    batch = build_batch([SimpleRecord(None, bytes(70 * MB), 1)], codec=CompressionType.ZSTD)
    frame = client.frame(produce([batch]), 9)[1] * 16
    return lambda index: frame


@pipelined("pipelined-metrics", "pushes of 16,000 points of client metrics")
def client_metrics(address: str) -> Frames:
    client, silent = (WireClient(address, timeout_s=ANSWER_S) for _ in range(2))
    configs = [
        AlterableConfig(name="metrics", config_operation=0, value="*"),
        AlterableConfig(name="interval.ms", config_operation=0, value="100"),
    ]
    resource = AlterConfigsResource(resource_type=16, resource_name="all", configs=configs)
    client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    metric = b"\n\x09" + b"x" * 9 + b"\x2a\x0b\n\x09" + b"\x21" + bytes(8)
    scope = b"".join(b"\x12" + bytes([len(metric)]) + metric for _ in range(16_000))
    body = compress(CompressionType.ZSTD, scope)

    def frame(index: int) -> bytes:
        asked = client.call(GetTelemetrySubscriptionsRequest(client_instance_id=UUID(int=index + 1)), 0)
        push = PushTelemetryRequest(
            client_instance_id=UUID(int=index + 1),
            subscription_id=asked.subscription_id,
            compression_type=CompressionType.ZSTD,
            metrics=body,
        )
        return silent.frame(push, 0)[1]

    return frame


def _largest(api: ApiKey) -> Callable[[str], Frames]:
    def prepare(address: str) -> Frames:
        row = LARGEST[api]
        frame = WireClient(address, timeout_s=ANSWER_S).frame(row.build(UUID(int=1), entries_of(row)), row.version)[1]
        return lambda index: frame

    return prepare


pipelined(
    "pipelined-acls",
    "the largest CreateAcls requests",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
)(_largest(ApiKey.CREATE_ACLS))
pipelined("pipelined-tokens", "the largest CreateDelegationToken requests", "delegation.token.secret.key=secret")(
    _largest(ApiKey.CREATE_DELEGATION_TOKEN)
)


@attack("half-requests", f"{HALF} connections with nine tenths of a request of 1 MB each")
def half_requests(address: str) -> Steps:
    yield
    half = (1_000_000).to_bytes(4, "big") + bytes(900_000)
    clients = [WireClient(address, timeout_s=ANSWER_S) for _ in range(HALF)]
    for client in clients:
        client.raw(half)
    time.sleep(SECONDS / 2)
    return f"{sum(client.socket.fileno() >= 0 for client in clients)} connections"


@attack("half-pages", "200 connections with half an HTTP request to the page of metrics")
def half_pages(address: str) -> Steps:
    yield
    port = int(os.environ[PAGES])
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    for each in sockets:
        with contextlib.suppress(OSError):
            each.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ")
    latencies: list[float] = []
    refused = 0
    end = time.monotonic() + SECONDS
    while (before := time.monotonic()) < end:
        try:
            with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as page:
                page.read()
            latencies.append((time.monotonic() - before) * 1000)
        except OSError:
            refused += 1
        time.sleep(NEWCOMERS_EVERY_S)
    worst = f"{max(latencies):.0f} ms at most" if latencies else "never"
    return f"a health probe from the same address is answered after {worst}, {refused} were refused"
