"""Table: attacks by many connections that send requests without waiting for the responses."""

from __future__ import annotations

import selectors
import socket
import statistics
import threading
import time
from typing import Final

from tests.system.broker.wire_client import WireClient

from barnabas.core.ids import CONSUMER_REPLICA_ID
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from bench.attacks.records import TOPIC, create
from bench.attacks.registry import Steps, attack

CONNECTIONS: Final = 64
PARTITIONS: Final = 8
SECONDS: Final = 6.0
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


@attack("pipelined-fetches", f"{CONNECTIONS} connections, each with 64 small Fetch requests on the way at any time")
def pipelined_fetches(address: str) -> Steps:
    """Meanwhile a newcomer connects and asks for metadata, again and again: the answer has its latencies."""
    host, port = address.rsplit(":", 1)
    client = WireClient(address, timeout_s=600.0)
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
    pipelines = [_Pipeline((host, int(port)), frame) for _ in range(CONNECTIONS)]
    yield
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
            key.data.go_on(events)
    newcomers.join()
    worst = sorted(latencies)[int(len(latencies) * 0.99)]
    return f"a newcomer's first answer: median {statistics.median(latencies):.0f} ms, p99 {worst:.0f} ms"
