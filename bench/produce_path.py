"""Shell: the cost of one Produce or Fetch request in the broker, from the received bytes to the written response.

    python -m bench.produce_path             one batch of 16 KB for one partition, acks=all, one in-sync replica
    python -m bench.produce_path --fetch     a Fetch of such a batch
    python -m bench.produce_path --tls       the same through TLS 1.3, whose records the client has encrypted before

The broker runs in this process, and a transport that only counts bytes stands for the socket. So the figures contain
the whole path of the production code (frames, decoding, dispatch, checks, the write into the page cache, index, answer)
and not the system calls of the socket. The producer is idempotent, as clients are by default.

The first table has the CPU time. The minimum over many rounds is printed: the other rounds include what other processes
do to the caches. Some stages are measured by themselves. The second table is exact and the same on a busy machine: the
Python calls and bytecode instructions of one request, by the part of the code that they are in. A test limits the
calls (`tests/unit/bench/test_bench_produce_path.py`). docs/PERFORMANCE.md has the budget of a request.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, Final, cast

import uvloop
from rich.console import Console
from rich.table import Table

from barnabas import AsyncAdmin
from barnabas.client.values import NewTopic
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.validate import Origin, validate_and_assign
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.messages import fetch, produce
from barnabas.protocol.wire.schema import Request
from barnabas.server.node.config import build_config
from barnabas.server.node.server import Node
from barnabas.server.node.typed_configs import LOG
from barnabas.testing.ports import free_ports
from bench.security import SecureListener, make_certificates

ROUNDS: Final = 300
REQUESTS: Final = 40
"""Requests in one round: few, so that they stay in the CPU's cache, as they do when the kernel has just copied them."""
PRODUCE_VERSION: Final = 12
FETCH_VERSION: Final = 12
_NOW_MS: Final = 1_700_000_000_000
_WARM_UP: Final = 20


class CountingTransport:
    """Stands for a socket whose peer always reads."""

    def __init__(self) -> None:
        self.written = 0
        self.first = b""
        """What was written until `start_counting`."""
        self._counting = False

    def start_counting(self) -> None:
        self._counting = True

    def writelines(self, buffers: list[bytes]) -> None:
        self.written += sum(map(len, buffers))
        if not self._counting:
            self.first += b"".join(buffers)

    def write(self, data: bytes) -> None:
        self.writelines([data])

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


PARTS: Final = {
    "protocol/transport/": "transport",
    "protocol/wire/server_conn": "transport",
    "protocol/wire/frame_buffer": "transport",
    "protocol/wire/headers": "transport",
    "protocol/wire/apis": "transport",
    "protocol/wire/": "decode and encode",
    "<": "decode and encode",  # generated functions
    "protocol/records/": "check",
    "core/": "dispatch and metrics",
    "server/broker/dispatch": "dispatch and metrics",
    "server/broker/": "handler",
    "server/node/": "handler",
    "server/replication/": "leader",
    "server/storage/": "log",
}
"""The parts of the path, by the beginning of a module's path within the package."""


@dataclass(frozen=True)
class Counted:
    """The Python calls and bytecode instructions of one request, by part."""

    calls: Counter[str]
    instructions: Counter[str]


def count(run: Callable[[], object]) -> Counted:
    """Count the work of one call of `run`, exactly."""
    counted = Counted(Counter(), Counter())
    parts: dict[str, str] = {}

    def part_of(frame: FrameType) -> str:
        name = frame.f_code.co_filename
        if name not in parts:
            inside = name.rpartition("/barnabas/")[2]
            parts[name] = next((part for start, part in PARTS.items() if inside.startswith(start)), "")
        return parts[name]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        part = part_of(frame)
        if not part:
            return None  # this module
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            counted.calls[part] += 1
        elif event == "opcode":
            counted.instructions[part] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return counted


class TlsClient:
    """The client's end of a connection with TLS."""

    def __init__(self, folder: Path) -> None:
        context = ssl.create_default_context(cafile=str(folder / "authority.pem"))
        context.check_hostname = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)

    def shake_hands(self, received: bytes) -> bytes:
        """The bytes to send after these bytes of the server."""
        self._incoming.write(received)
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()

    def encrypt(self, frame: bytes) -> bytes:
        self._tls.write(frame)
        return self._outgoing.read()


class RequestPath:
    """A connection to a broker in this process, without a socket. `topic` is the topic that it produces to."""

    def __init__(
        self, listener: Listener, topic: str, records: int, size: int, client: TlsClient | None = None
    ) -> None:
        self._topic, self._records, self._size = topic, records, size
        self._sequence = 0
        self.batch = self._next_batch()
        self._sequence = 0
        self.transport = CountingTransport()
        self._listener = listener
        self._connection = listener.new_connection()
        self._connection.connection_made(cast("Any", self.transport))
        self._client = client
        if client is not None:
            self._shake_hands(client)
        self.transport.start_counting()

    def _shake_hands(self, client: TlsClient) -> None:
        self._receive(client.shake_hands(b""))
        self._receive(client.shake_hands(self.transport.first))

    def send(self, frame: bytes) -> int:
        """Let the broker receive a request. Returns the number of bytes of the response."""
        before = self.transport.written
        self._listener.turns.left = 1.0  # as if each request came in a turn of the loop of its own
        self._receive(frame)
        return self.transport.written - before

    def _receive(self, data: bytes) -> None:
        rest = memoryview(data)
        while len(rest):
            target = self._connection.get_buffer(-1)
            size = min(len(target), len(rest))
            target[:size] = rest[:size]
            self._connection.buffer_updated(size)
            rest = rest[size:]

    def produce_frame(self) -> bytes:
        """The next Produce request of one idempotent producer."""
        return self._sent(_frame(self.produce_request(self._next_batch()), PRODUCE_VERSION))

    def produce_request(self, batch: bytes) -> produce.ProduceRequest:
        data = produce.PartitionProduceData(index=0, records=batch)
        topic = produce.TopicProduceData(name=self._topic, partition_data=[data])
        return produce.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[topic])

    def fetch_request(self) -> fetch.FetchRequest:
        """A Fetch of the first batch, without a session."""
        size = len(self.batch)
        partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size, current_leader_epoch=-1)
        topic = fetch.FetchTopic(topic=self._topic, partitions=[partition])
        return fetch.FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=size, session_id=0, session_epoch=-1, topics=[topic]
        )

    def fetch_frame(self) -> bytes:
        return self._sent(_frame(self.fetch_request(), FETCH_VERSION))

    def _sent(self, frame: bytes) -> bytes:
        """The bytes that the client sends for a frame."""
        return frame if self._client is None else self._client.encrypt(frame)

    def _next_batch(self) -> bytes:
        values = [SimpleRecord(None, b"v" * self._size, _NOW_MS + i) for i in range(self._records)]
        batch = build_batch(values, producer_id=7, producer_epoch=0, base_sequence=self._sequence)
        self._sequence += self._records
        return bytes(batch)


@asynccontextmanager
async def open_path(
    records: int = 16,
    size: int = 1000,
    *,
    settings: Mapping[str, str] = MappingProxyType({}),
    prepare: Callable[[AsyncAdmin], Awaitable[object]] | None = None,
    tls: bool = False,
) -> AsyncIterator[RequestPath]:
    """Start a broker with one topic, and send it a few requests of each kind."""
    with tempfile.TemporaryDirectory(prefix="produce-path-") as name:
        folder = Path(name)
        if tls:
            make_certificates(folder)
            settings = {**settings, **SecureListener("ssl", folder).broker_settings(*free_ports(2))}
        listener = None if tls else "PLAINTEXT://127.0.0.1:0"
        config = build_config(settings, data_dir=str(folder / "data"), listener=listener)
        node, ready = Node(config), asyncio.Event()
        running = asyncio.ensure_future(node.run(lambda _: ready.set()))
        await ready.wait()
        try:
            async with AsyncAdmin(bootstrap_servers=node.bootstrap_servers.partition(",")[0]) as admin:
                await admin.create_topics([NewTopic("bench", 1)])
                if prepare is not None:
                    await prepare(admin)
            client = TlsClient(folder) if tls else None
            path = RequestPath(_listener_of(node, "SECURE" if tls else "PLAINTEXT"), "bench", records, size, client)
            for _ in range(_WARM_UP):
                path.send(path.produce_frame())
                path.send(path.fetch_frame())
            yield path
        finally:
            node.stop()
            await running


def _listener_of(node: Node, name: str) -> Listener:
    """The listener of this name, of a node in this process."""
    ports = {int(address.rpartition(":")[2]) for address in node.bootstrap_servers.split(",")}
    # `isinstance` would ask a weak proxy for the class of its object, which may not exist any more.
    listeners: list[Listener] = [one for one in gc.get_objects() if issubclass(type(one), Listener)]
    return next(one for one in listeners if one.endpoint.name == name and one.endpoint.port in ports)


def _frame(request: Request, version: int) -> bytes:
    _, buffers = ClientConnection("bench").send(request, version)
    return b"".join(bytes(buffer) for buffer in buffers)


def least_us(run: Callable[[Any], object], arguments: Callable[[], Iterable[Any]] = lambda: [None] * REQUESTS) -> float:
    """The least CPU time of one call in microseconds, over `ROUNDS` rounds. `arguments` gives those of one round."""
    least = float("inf")
    for _ in range(ROUNDS):
        values = list(arguments())
        began = time.process_time()
        for value in values:
            run(value)
        least = min(least, (time.process_time() - began) / len(values))
    return least * 1e6


Rows = list[tuple[str, float]]


def produce_rows(path: RequestPath) -> Rows:
    answered = path.send(path.produce_frame())
    before = path.transport.written
    whole = least_us(path.send, lambda: [path.produce_frame() for _ in range(REQUESTS)])
    assert path.transport.written == before + answered * ROUNDS * REQUESTS, "every request has a response of this size"
    body = encode(path.produce_request(path.batch), PRODUCE_VERSION)
    answers = [produce.PartitionProduceResponse(index=0, base_offset=1)]
    response = produce.ProduceResponse(
        responses=[produce.TopicProduceResponse(name="bench", partition_responses=answers)]
    )
    rules = LOG.from_defaults().validation_rules("bench", Origin.CLIENT)
    check: dict[str, Any] = {"first_offset": 0, "leader_epoch": 0, "now_ms": _NOW_MS}
    return [
        ("Produce, received bytes to written response", whole),
        ("  decode the request", least_us(lambda _: decode(produce.ProduceRequest, PRODUCE_VERSION, body))),
        ("  check the batch and assign offsets", least_us(lambda _: validate_and_assign(path.batch, rules, **check))),
        ("  encode the response", least_us(lambda _: encode(response, PRODUCE_VERSION))),
    ]


def fetch_rows(path: RequestPath) -> Rows:
    frame = path.fetch_frame()
    assert path.send(frame) > len(path.batch), "the response contains the batch"
    body = encode(path.fetch_request(), FETCH_VERSION)
    return [
        ("Fetch, received bytes to written response", least_us(lambda _: path.send(frame))),
        ("  decode the request", least_us(lambda _: decode(fetch.FetchRequest, FETCH_VERSION, body))),
    ]


async def measure(records: int, size: int, *, fetching: bool, tls: bool) -> tuple[Rows, Counted]:
    async with open_path(records, size, tls=tls) as path:
        frame = path.fetch_frame() if fetching else path.produce_frame()
        counted = count(lambda: path.send(frame))
        return (fetch_rows(path) if fetching else produce_rows(path)), counted


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.produce_path", description=__doc__)
    parser.add_argument("--records", type=int, default=16)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a record's value")
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--tls", action="store_true")
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rows, counted = runner.run(
            measure(arguments.records, arguments.size, fetching=arguments.fetch, tls=arguments.tls)
        )
    table = Table("stage", "us of CPU")
    for stage, us in rows:
        table.add_row(stage, f"{us:.1f}")
    Console().print(table)
    table = Table("part", "Python calls", "instructions")
    for part, instructions in counted.instructions.most_common():
        table.add_row(part, str(counted.calls[part]), str(instructions))
    table.add_row("all", str(counted.calls.total()), str(counted.instructions.total()))
    Console().print(table)


if __name__ == "__main__":
    main()
