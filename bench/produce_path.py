"""Shell: the CPU time of one Produce request in the broker, from the received bytes to the written response.

    python -m bench.produce_path             one batch of 16 KB for one partition, acks=all, one in-sync replica
    python -m bench.produce_path --fetch     a Fetch of such a batch

The broker runs in this process, and a transport that only counts bytes stands for the socket. So the figures contain
the whole path of the production code (frames, decoding, dispatch, checks, the write into the page cache, index, answer)
and not the system calls of the socket. The minimum over many rounds is printed: the other rounds include what other
processes do to the caches. Each stage is measured by itself, so that the sum shows what is left.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final, cast

import uvloop
from rich.console import Console
from rich.table import Table

from barnabas import AsyncAdmin
from barnabas.client.values import NewTopic
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.validate import Origin, validate_and_assign
from barnabas.protocol.transport.accepted_connection import AcceptedConnection
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.messages import fetch, produce
from barnabas.protocol.wire.schema import Request
from barnabas.server.node.config import build_config
from barnabas.server.node.server import Node
from barnabas.server.node.typed_configs import LOG

ROUNDS: Final = 60
REQUESTS: Final = 200
"""Requests in one round."""
PRODUCE_VERSION: Final = 12
FETCH_VERSION: Final = 12
_NOW_MS: Final = 1_700_000_000_000


class CountingTransport:
    """Stands for a socket whose peer always reads."""

    def __init__(self) -> None:
        self.written = 0

    def writelines(self, buffers: list[bytes]) -> None:
        self.written += sum(map(len, buffers))

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


def least_us(run: Callable[[], object], times: int = REQUESTS, rounds: int = ROUNDS) -> float:
    """The least CPU time of one call in microseconds, over `rounds` rounds of `times` calls."""
    least = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(times):
            run()
        least = min(least, time.process_time() - began)
    return least / times * 1e6


async def measure(records: int, size: int, *, fetching: bool) -> list[tuple[str, float]]:
    with tempfile.TemporaryDirectory(prefix="produce-path-") as folder:
        config = build_config({}, data_dir=folder, listener="PLAINTEXT://127.0.0.1:0")
        node, ready = Node(config), asyncio.Event()
        running = asyncio.ensure_future(node.run(lambda _: ready.set()))
        await ready.wait()
        try:
            async with AsyncAdmin(bootstrap_servers=node.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic("bench", 1)])
            batch = bytes(build_batch([SimpleRecord(None, b"v" * size, _NOW_MS + i) for i in range(records)]))
            listener = _listener_of()
            rows = _produce_rows(listener, batch)
            return _fetch_rows(listener, len(batch)) if fetching else rows
        finally:
            node.stop()
            await running


def _listener_of() -> Listener:
    """The listener of the node in this process."""
    return next(found for found in gc.get_objects() if isinstance(found, Listener) and found.endpoint.port)


def _connection(listener: Listener) -> tuple[AcceptedConnection, CountingTransport]:
    connection, transport = AcceptedConnection(listener), CountingTransport()
    connection.connection_made(cast("Any", transport))
    return connection, transport


def _frame(request: Request, version: int) -> bytes:
    _, buffers = ClientConnection("bench").send(request, version)
    return b"".join(bytes(buffer) for buffer in buffers)


def _produce_request(batch: bytes) -> produce.ProduceRequest:
    data = produce.PartitionProduceData(index=0, records=batch)
    topic = produce.TopicProduceData(name="bench", partition_data=[data])
    return produce.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[topic])


def _produce_rows(listener: Listener, batch: bytes) -> list[tuple[str, float]]:
    request = _produce_request(batch)
    frame = _frame(request, PRODUCE_VERSION)
    connection, transport = _connection(listener)
    connection.data_received(frame)
    answered = transport.written
    whole = least_us(lambda: connection.data_received(frame))
    assert transport.written == answered * (ROUNDS * REQUESTS + 1), "every request is answered, with the same length"
    body = encode(request, PRODUCE_VERSION)
    response = produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name="bench", partition_responses=[produce.PartitionProduceResponse(index=0, base_offset=1)]
            )
        ]
    )
    rules = LOG.from_defaults().validation_rules("bench", Origin.CLIENT)
    return [
        ("Produce, received bytes to written response", whole),
        ("  decode the request", least_us(lambda: decode(produce.ProduceRequest, PRODUCE_VERSION, body))),
        (
            "  check the batch and assign offsets",
            least_us(lambda: validate_and_assign(batch, rules, first_offset=0, leader_epoch=0, now_ms=_NOW_MS)),
        ),
        ("  encode the response", least_us(lambda: encode(response, PRODUCE_VERSION))),
    ]


def _fetch_rows(listener: Listener, size: int) -> list[tuple[str, float]]:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size, current_leader_epoch=-1)
    topic = fetch.FetchTopic(topic="bench", partitions=[partition])
    request = fetch.FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=size, session_id=0, session_epoch=-1, topics=[topic]
    )
    frame = _frame(request, FETCH_VERSION)
    connection, transport = _connection(listener)
    connection.data_received(frame)
    answered = transport.written
    assert answered > size, "the response contains the batch"
    whole = least_us(lambda: connection.data_received(frame))
    body = encode(request, FETCH_VERSION)
    return [
        ("Fetch, received bytes to written response", whole),
        ("  decode the request", least_us(lambda: decode(fetch.FetchRequest, FETCH_VERSION, body))),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.produce_path", description=__doc__)
    parser.add_argument("--records", type=int, default=16)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a record's value")
    parser.add_argument("--fetch", action="store_true")
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rows = runner.run(measure(arguments.records, arguments.size, fetching=arguments.fetch))
    table = Table("stage", "us of CPU")
    for stage, us in rows:
        table.add_row(stage, f"{us:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
