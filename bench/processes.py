"""Shell: `python -m bench.processes`: the throughput of one, two or more broker processes on this host.

The client sends the same encoded Produce request again and again, several requests at a time to each leader, so that it
costs little CPU itself; what it does cost is in the table. Each process of the broker can use one core. On a host with
few cores the client and the processes share them, so that the CPU per MB says more than the throughput: it shows what
several processes cost, and the throughput grows as long as cores are free.

    python -m bench.processes --processes 1 2 4 --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import uvloop
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from barnabas import AsyncAdmin
from barnabas.client.values import NewTopic
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.messages import produce
from barnabas.testing.process import BrokerProcess
from bench.servers import cpu_seconds

PARTITIONS: Final = 8
IN_FLIGHT: Final = 5
"""Requests without a response, on each connection, as Kafka's producer has by default."""
BATCH_BYTES: Final = 16_384
_PRODUCE_VERSION: Final = 12


class Round(NamedTuple):
    megabytes_per_s: float
    broker_ms_per_mb: float
    client_ms_per_mb: float


class Stream(asyncio.Protocol):
    """One connection to a leader: sends `frames` in turn, with `IN_FLIGHT` requests at a time, until `stop_at`."""

    def __init__(self, frames: Sequence[bytes], stop_at: float) -> None:
        self._frames = frames
        self._stop_at = stop_at
        self._received = bytearray()
        self._next = 0
        self.answered = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]
        for _ in range(IN_FLIGHT):
            self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            size = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < size:
                return
            del self._received[:size]
            self.answered += 1
            self._open -= 1
            if time.monotonic() < self._stop_at:
                self._send()
            elif not self._open:
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def _send(self) -> None:
        self._transport.write(self._frames[self._next % len(self._frames)])
        self._next += 1
        self._open += 1


async def run_load(address: str, seconds: float) -> int:
    """Produce for so many seconds to all partitions of a new topic. Returns the number of acknowledged batches."""
    async with AsyncAdmin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic("bench", PARTITIONS, 1)])
        described = (await admin.describe_topics(["bench"]))["bench"]
        nodes = {node.broker_id: node for node in (await admin.describe_cluster()).brokers}
    assert not isinstance(described, Exception)
    value = b"v" * 1000
    batch = bytes(build_batch([SimpleRecord(None, value, int(time.time() * 1000))] * (BATCH_BYTES // 1010)))
    by_leader: dict[int, list[bytes]] = {}
    for partition in described.partitions:
        by_leader.setdefault(partition.leader, []).append(_frame(partition.partition, batch))
    loop, stop_at = asyncio.get_running_loop(), time.monotonic() + seconds
    streams = []
    for leader, frames in by_leader.items():
        for part in range(2):  # two connections per leader, so that the broker need not wait for the client
            build = partial(Stream, frames[part::2] or frames, stop_at)
            _, stream = await loop.create_connection(build, nodes[leader].host, nodes[leader].port)
            streams.append(stream)
    await asyncio.gather(*(stream.done for stream in streams))
    return sum(stream.answered for stream in streams)


def _frame(partition: int, batch: bytes) -> bytes:
    data = produce.PartitionProduceData(index=partition, records=batch)
    topic = produce.TopicProduceData(name="bench", partition_data=[data])
    request = produce.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[topic])
    _, buffers = ClientConnection("bench").send(request, _PRODUCE_VERSION)
    return b"".join(bytes(buffer) for buffer in buffers)


def measure(processes: int, seconds: float) -> Round:
    with tempfile.TemporaryDirectory(prefix="bench-processes-") as folder:
        broker = BrokerProcess(Path(folder) / "data", processes=processes)
        broker.start()
        try:
            assert broker.process is not None
            pids = _children(broker.process.pid)
            before, own = sum(map(cpu_seconds, pids)), time.process_time()
            began = time.monotonic()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                batches = runner.run(run_load(broker.bootstrap_servers, seconds))
            took = time.monotonic() - began
            megabytes = batches * BATCH_BYTES / 1e6
            cpu, own = sum(map(cpu_seconds, pids)) - before, time.process_time() - own
        finally:
            broker.stop(60)
    return Round(megabytes / took, cpu * 1000 / megabytes, own * 1000 / megabytes)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.processes", description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    arguments = parser.parse_args()
    found: dict[int, list[Round]] = {count: [] for count in arguments.processes}
    with Progress(transient=True) as progress:
        task = progress.add_task("rounds", total=arguments.rounds * len(found))
        for _ in range(arguments.rounds):
            for count, rounds in found.items():
                rounds.append(measure(count, arguments.seconds))
                progress.advance(task)
    first = found[arguments.processes[0]]
    table = Table("processes", "MB/s", "ratio", "broker ms/MB", "client ms/MB", title=f"{os.cpu_count()} cores")
    for count, rounds in found.items():
        ratio = statistics.median(
            now.megabytes_per_s / base.megabytes_per_s for now, base in zip(rounds, first, strict=True)
        )
        middle = [statistics.median(column) for column in zip(*rounds, strict=True)]
        table.add_row(str(count), f"{middle[0]:.0f}", f"{ratio:.2f}", f"{middle[1]:.1f}", f"{middle[2]:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
